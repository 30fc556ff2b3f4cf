//! What the commands of `wv` share, and those commands that need nothing else: `wv config`, `wv doctor`, `wv group`, `wv p2p` and
//! `wv sim`. The program `wv` parses the command line.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! config.rs doctor/ group.rs p2p/   commands
//! launched.rs          a command that runs as one rank of a launcher's job
//! sim.rs               `wv sim`, and commands that start themselves again on software HCAs
//! log.rs               events of the library
//! output.rs            results and messages of commands
//! etcd.rs              an etcd that a command starts for its ranks
//! number.rs store.rs   options that are numbers; the store in which ranks meet
//! signals.rs tied.rs   the end of this process by a signal; children that end with this process
//! softhca_library.rs own_faults.rs   where the software HCA is; its faults
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod config;
pub mod doctor;
pub mod etcd;
pub mod group;
pub mod launched;
pub mod log;
pub mod number;
pub mod output;
pub mod own_faults;
pub mod p2p;
mod signals;
pub mod sim;
mod softhca_library;
mod store;
pub mod tied;
