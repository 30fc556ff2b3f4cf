//! Ranks that die, stand still, lose each other and come back under running steps: `wv demo --kill` and `wv chaos`, which also
//! drives programs of Python.
//!
//! Every step of every rank is checked against the reference implementation (crate `moe-reference`), with the ranks masked that the rank
//! itself reported. Deeds and reports are collected as records, from which the final table and `--timeline` are made.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! command.rs kills.rs   `wv chaos`; `wv demo --kill`
//! acts.rs            deeds that are done, and their ends
//! checker.rs         `wv chaos --judge`: an earlier run is judged
//! options.rs publish.rs   options; the table and the picture of a run
//! fleet.rs program.rs     rank processes of the demo, and of a program of Python
//! figures.rs timeline.rs verdict.rs watch.rs   what records say: figures, a picture, what may not be, what is overdue
//! deeds.rs processes.rs   which deed is next; processes and their lines
//! told.rs pace.rs table.rs   lines of programs; paces of calls and tokens as a table
//! spaces.rs garbage.rs times.rs tokens.rs   PID namespaces, spoiled keys, times, tokens that ranks have lost
//! away.rs            when a rank is away
//! ```

mod acts;
mod away;
mod checker;
mod command;
mod deeds;
mod figures;
mod fleet;
mod garbage;
mod kills;
mod options;
mod pace;
mod processes;
mod program;
mod publish;
mod spaces;
mod table;
mod timeline;
mod times;
mod tokens;
mod told;
mod verdict;
mod watch;

pub use command::run as run_chaos;
pub(crate) use kills::run as run_kills;
pub use options::ChaosOptions;
