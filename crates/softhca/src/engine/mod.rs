//! The engine: what an HCA does by itself, between the rings and the wire.
//!
//! ```text
//! UAR register ──> doorbell: the record says how far to run
//!                    └─> send: fetch, decode ─┬─> loopback (peer in this process) ──┐
//!                                             └─> wire (RoCEv2 over UDP) ───────────┴─> completion ──> CQ
//! peer's request ──> responder: keys, memory, receive WQEs
//! ```
//!
//! One thread per process serves all HCAs in turns; nothing in a turn blocks. In strict mode a WQE runs only after
//! a store to the doorbell register; the doorbell record, not the value stored, decides what runs. Software sees the bytes of
//! a WQE no later than those of the next WQE of the same QP.

mod arming;
mod atomics;
mod completion;
mod datagram;
mod decode;
pub(crate) mod doorbell;
mod express;
mod fetch;
pub(crate) mod flush;
mod grh;
mod local;
mod loopback;
pub(crate) mod overlap;
mod pace;
pub(crate) mod path;
mod placing;
mod receive;
mod responder;
pub(crate) mod scrutiny;
mod send;
mod thread;
pub mod transport;
mod turn;
mod umr;
mod wake;
pub(crate) mod watch;

pub(crate) use thread::start;
pub(crate) use turn::turn;
pub(crate) use wake::kick;
pub use wake::{softhca_kick, softhca_wake_word};

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds of a clock that never goes back.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // A clock that starts at 1 s: arithmetic on intervals never meets 0.
    let since = START.get_or_init(Instant::now).elapsed();
    1_000_000_000 + u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2)
}
