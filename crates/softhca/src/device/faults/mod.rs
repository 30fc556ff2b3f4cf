//! Faults that a test or a user has asked for.
//!
//! A [`FaultSpec`] lists them. [`Faults`] holds the faults of one HCA that are still to come. Faults of packets are in the wire
//! (`wire::faults`), faults of commands and completions here.

mod command;
mod parse;
mod pending;
mod spec;

pub use command::FailCommand;
pub(crate) use command::ends_something;
pub use parse::{FaultItemError, FaultSpecError};
pub(crate) use pending::{EntryFate, Faults, Strike};
pub use spec::{
    CommandFault, CommandOutcome, CompletionFault, CompletionMishap, FaultSpec, TimedFault,
};
