//! A model of notices as the engine sends them: over control streams, of which several may be open and any may end, between the same two
//! lives.
//!
//! The sender keeps each notice until the receiver's program has taken it, and keeps no more than the inbox has room for. One stream at a
//! time carries notices. A new stream begins with the number for which the receiver has said it waits. The receiver takes the notice whose
//! number is due, drops one with a lower number, and reports how many its program has taken. A stream keeps its order. When it ends, it
//! loses what is under way.
//!
//! Module `state` has the state, `steps` the steps, `property` what must hold, and `configurations` what is checked.

mod configurations;
mod property;
mod state;
mod steps;

pub use configurations::{Stream, configurations, harmless, larger, mutants};
pub use property::{Mutant, Property};
pub use state::State;
