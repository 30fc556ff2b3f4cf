//! The commands `wv demo` and `wv chaos`: rank processes dispatch and combine tokens, and check every step against the scalar reference
//! implementation.
//!
//! The ranks are processes of this program (`wv demo-rank`). On software HCAs each has `libsofthca.so` preloaded, so its host code is the
//! code that would drive a ConnectX. They meet in a directory of the demo, tell the demo on their standard output how they get on, and end
//! when it ends.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it. So the demo knows nothing of chaos, which disturbs it.
//!
//! ```text
//! commands.rs        `wv demo`: which way a run takes
//! chaos/             ranks that are killed and disturbed: `wv demo --kill` and `wv chaos`
//! launched.rs one_process.rs processes.rs   a rank of a launcher's job; all ranks as threads; a process for each rank
//! run.rs             the begin and the end of a run
//! explain.rs         `--explain`
//! report.rs          the result, as text and as JSON
//! rank.rs            one rank: its steps and their check, alone or in a group
//! devices.rs launch.rs   the devices of ranks; rank processes
//! data/ messages.rs  inputs and outputs; what a rank tells the demo
//! options.rs         the options of `wv demo`
//! kill.rs record.rs clock.rs   `--kill`; records of ranks and of who disturbs them; their clock
//! counters.rs error.rs   what HCAs count; why a demo ended early
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

mod chaos;
mod clock;
mod commands;
mod counters;
mod data;
mod devices;
mod error;
mod explain;
mod kill;
mod launch;
mod launched;
mod messages;
mod one_process;
mod options;
mod processes;
mod rank;
mod record;
mod report;
mod run;

pub use chaos::{ChaosOptions, run_chaos};
pub use commands::run;
pub use options::DemoOptions;
pub use rank::{RankOptions, run_rank};
