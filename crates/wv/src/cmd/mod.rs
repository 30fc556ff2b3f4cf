//! The commands of `wv`: bench, config, demo, doctor, p2p and sim.

pub mod bench;
pub mod config;
pub mod demo;
pub mod doctor;
mod etcd;
mod launched;
pub mod output;
pub mod p2p;
pub mod sim;
pub mod softhca_library;
mod tied;
mod time;
