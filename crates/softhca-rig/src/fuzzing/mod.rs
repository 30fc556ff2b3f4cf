//! Bytes from a fuzzer, given to the device where it takes bytes from strangers.
//!
//! | target | what the bytes are |
//! |---|---|
//! | [`ioctls`] | verbs ioctls on an open descriptor, and the memory that they point into |
//! | [`commands`] | PRM commands on an open context |
//! | [`wqes`] | send WQEs in the ring of a connected QP |
//! | [`packets`] | RoCEv2 packets from the peer of a connected QP |
//!
//! Each ends with everything closed and no object left. `./x fuzz` runs them under a fuzzer, `tests/fuzz_corpus.rs` with what
//! the fuzzer has found so far.

mod commands;
mod input;
mod ioctls;
mod packets;
mod wqes;

pub use commands::{bring_up_numbers, commands};
pub use ioctls::{ARENA, ioctls};
pub use packets::packets;
pub use wqes::{IOVA, wqe_keys, wqes};

type Target = (&'static str, fn(&[u8]));

/// All targets, by name.
pub const TARGETS: [Target; 4] = [
    ("ioctls", ioctls),
    ("commands", commands),
    ("wqes", wqes),
    ("packets", packets),
];
