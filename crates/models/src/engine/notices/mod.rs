//! A model of notices: a ring of records in the receiver's memory, over a connection that breaks and is made again.
//!
//! The sender writes a record's body, then its header with its absolute number, in order on one QP. The receiver takes the record that is
//! due, and writes credit back: an absolute count of records. The connection may break at any moment, between the same two incarnations.
//! The receiver then resets its end, takes every whole record, clears the ring, and reports how many records it has accepted. The sender
//! goes on from that number.
//!
//! The reference implementation has a model in Python with the same states. Module `state` holds what the model remembers,
//! `steps` what may happen, `property` what must hold, and `configurations` what is checked.

mod configurations;
mod property;
mod state;
mod steps;

pub use configurations::{Notices, configurations, harmless, larger, mutants};
pub use property::{Mutant, Property};
pub use state::State;
