//! The commands of `wv`: bench, demo and sim.

pub mod bench;
pub mod demo;
pub mod output;
pub mod sim;
pub mod softhca_library;
mod tied;
mod time;
