//! A model of membership change, with the device's call counter as a process of its own: prepare, promise, commit, apply.
//!
//! The store is one record, changed by compare-and-set only; promises are keys of their own. Host and device of a rank are two processes
//! that share `started` (written by the device), `limit` and the two views (written by the host). Deaths, false suspicions and aborts
//! happen at every step, also to the proposer. A host that knows for certain that a process has ended may end its QPs to that process
//! before any view says so.

mod configuration;
mod state;
mod steps;

pub use configuration::{Epoch, Mutant};
