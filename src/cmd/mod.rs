//! The commands of `wv`: demo and sim.

pub mod demo;
pub mod sim;
pub mod softhca_library;
