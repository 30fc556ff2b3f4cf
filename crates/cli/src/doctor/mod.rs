//! `wv doctor`: what this machine can do. Each check has a line, with the command or option that mends a defect.
//!
//! A check is one row of the table `CHECKS` in the file of its group: `software`, `machine`, `nic`, `gpu`, `pair`. The texts in that table
//! are those of the report, of `--explain` and of the page for operators.
//!
//! A process of its own (`probe`) checks each group, and reports each check as it begins and ends. If a check hangs, the doctor (`ask`)
//! kills the process and starts another one for the checks after it. A check changes nothing. Files of the machine are read below a root
//! (`tree`), so that tests can show other machines.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! command.rs         the options, and a run of the doctor
//! page.rs report.rs  the page for operators and `--explain`; results as text and as JSON
//! texts.rs           the texts of all checks
//! ask.rs probe.rs    both ends of the process that checks a group
//! pair.rs            each GPU with each NIC
//! steps.rs loopback.rs   the choices of a rank on a pair; data from a NIC to itself
//! matrix.rs          which ranks of a job reach each other
//! nic.rs gpu.rs machine.rs software.rs store.rs   the other groups
//! couple.rs          two ranks in one process, and the kernel between them
//! engine.rs acs.rs   the host engine on a NIC; ACS of bridges
//! told.rs            what a probe tells the doctor
//! check.rs tree.rs   a check and its result; files of the machine
//! kernels.rs abi.rs  the kernel, and its parameters
//! ```

pub mod abi;
mod acs;
mod ask;
mod check;
mod command;
mod couple;
mod engine;
mod gpu;
mod kernels;
mod loopback;
mod machine;
mod matrix;
mod nic;
mod page;
mod pair;
mod probe;
mod report;
mod software;
mod steps;
mod store;
mod texts;
mod told;
mod tree;

pub use command::{DoctorOptions, run};
pub use kernels::KERNELS;
pub use page::page;
pub use probe::{ProbeOptions, run_probe};
pub use software::Carried;
