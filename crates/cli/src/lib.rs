//! The commands of `wv`: bench, config, demo, doctor, group, p2p and sim.

pub mod bench;
pub mod config;
pub mod demo;
pub mod doctor;
mod etcd;
pub mod group;
mod launched;
pub mod log;
mod number;
pub mod output;
mod own_faults;
pub mod p2p;
pub mod sim;
pub mod softhca_library;
mod store;
mod tied;
