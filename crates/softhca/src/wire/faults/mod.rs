//! Packets that get lost, doubled, late, out of order or damaged because a test asked for it.
//!
//! A [`FaultLayer`] stands between an endpoint and its carrier. It asks no clock and no operating system: time comes as an argument
//! and chance from a seed. So the same packets meet the same fate again. Each direction draws from a sequence of its own. A packet
//! is held here as long as it is late; [`FaultLayer::deadline_ns`] says until when.
//!
//! A damaged packet keeps its old ICRC: the receiver has to notice.

mod layer;
mod queue;
mod sink;
mod spec;

pub use layer::{Fate, FaultCounts, FaultLayer, Recorded};
pub(crate) use sink::FaultySink;
pub use spec::{
    Direction, Mishap, PacketFault, REORDER_DISTANCE, REORDER_PATIENCE_NS, When, Window,
};

#[cfg(test)]
mod tests;
