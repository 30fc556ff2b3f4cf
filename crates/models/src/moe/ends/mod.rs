//! A model of when a call has ended, so that the host may overwrite a view. It has one rank, whose program combines its calls, abandons
//! them, or goes on without either.
//!
//! The kernels of a stream run one at a time. A kernel reads its call's view from its begin to its end, and the host acts at any moment
//! between. A call ends with its combine, with the combine of a later call, when it is abandoned, or when the call two later begins. The
//! device reports this in one word, `finished`: the last call that has ended together with all calls before it.

mod configuration;
mod state;
mod steps;

pub use configuration::{Ends, Mutant};
