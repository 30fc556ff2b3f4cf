//! Faults of packets that a test asks for: packets get lost, doubled, late, out of order or damaged.
//!
//! A [`FaultLayer`] stands between an endpoint and its carrier. It uses no clock and no operating system: time comes as an argument and
//! chance from a seed. So equal packets meet equal fates. Each direction draws from its own random numbers. The layer holds a packet as
//! long as it is late; [`FaultLayer::deadline_ns`] says until when.
//!
//! A damaged packet keeps its old ICRC, so the receiver must notice the damage.

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
