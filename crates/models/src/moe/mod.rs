//! The MoE protocol, in three models: its signals, its membership and its rejoin.
//!
//! `signals` has part A of the protocol: words, slots, credits, skips, deadlines of 2 and 3 ranks in seven orders of phases.
//! `epoch` has part B: the device's call counter against hosts that prepare, promise, commit and apply a change of members.
//! `rejoin` has part J: what a survivor clears before a slot is used by a new generation.

pub mod epoch;
mod property;
pub mod rejoin;
pub mod signals;

pub use property::Property;

/// Most states of a model.
const MOST_STATES: usize = 6_000_000;

type Broken = crate::explore::Broken<Property>;
