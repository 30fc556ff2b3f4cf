//! The engine: what an HCA does by itself, between the rings and the wire.

pub mod transport;
