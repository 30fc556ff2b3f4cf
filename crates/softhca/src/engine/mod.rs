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

pub(crate) mod completion;
mod for_judges;
pub(crate) mod intake;
mod local;
pub(crate) mod path;
mod receive;
mod run;
pub(crate) mod send;
pub mod transport;

pub(crate) use run::thread::start;
pub(crate) use run::turn::turn;
pub(crate) use run::wake::kick;
pub use run::wake::{softhca_kick, softhca_wake_word};

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds of a clock that never goes back.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // A clock that starts at 1 s: arithmetic on intervals never meets 0.
    let since = START.get_or_init(Instant::now).elapsed();
    1_000_000_000 + u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2)
}
