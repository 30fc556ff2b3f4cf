//! Files between two machines, copied by the host engine: `wv p2p serve | put | get`.
//!
//! A server has a directory and two addresses. One is for requests, which are lines of JSON over TCP. The other one is that of its engine,
//! which answers name. The bytes of files go by RDMA alone, through a window of a few slots in the server's memory. In a put the client
//! writes a slot, then says so. In a get the server fills a slot, says so, and the client reads it. Both ends sum the bytes that they see,
//! and a file gets its name only if the sums are equal. With a key both addresses take only clients that have it, and requests are
//! encrypted. Bytes that go by RDMA are not encrypted.

pub mod client;
mod door;
pub mod figures;
mod files;
mod requests;
pub mod server;

use std::io;

use warpverbs::config::ConfigError;
use warpverbs::engine::{EngineError, HostError, Outcome, ProviderError};
use warpverbs::team::StoreError;

use figures::EngineFigures;

/// The key of a store under which servers are found by name.
pub const SERVERS: &str = "p2p";
/// The number of bytes of a slot.
const SLOT: u64 = 1 << 20;
/// The number of slots of a window.
const SLOTS: u64 = 4;
/// The most requests that a server serves at a time by default. Each takes a window of 4 MiB.
pub const AT_ONCE: usize = 64;
/// The largest value of the option that replaces [`AT_ONCE`]. It makes 16 GiB of windows.
pub const MOST_AT_ONCE: usize = 4096;

/// Why a file was not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum P2pError {
    /// An error of the engine.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An environment variable with a wrong value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An error of the store in which servers have names.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The memory for the file cannot be allocated.
    #[error(transparent)]
    Memory(#[from] ProviderError),
    /// A file cannot be opened, read or written.
    #[error("{path}: {source}")]
    File {
        /// The path of the file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A name that cannot be one of a file in the server's directory.
    #[error(
        "{name:?} is no name of a file; it must be 1 to 255 bytes without '/', that do not begin with '.'"
    )]
    Name {
        /// The name that the other end or the user gave.
        name: String,
    },
    /// The other end has refused something, or has not answered.
    #[error("{place}: {reason}")]
    Other {
        /// The address of the other end.
        place: String,
        /// What the other end said, or why it said nothing.
        reason: String,
    },
    /// The connection to the other end has ended.
    #[error("{place} is gone: {reason}")]
    Gone {
        /// The address of the other end.
        place: String,
        /// How that became known.
        reason: String,
    },
    /// A transfer that did not end as done.
    #[error("the transfer at byte {offset} {}: {reason}", how(*.outcome))]
    Transfer {
        /// The offset in the file.
        offset: u64,
        /// How the transfer ended.
        outcome: Outcome,
        /// The reason.
        reason: String,
    },
    /// A transfer that has not ended in time.
    #[error("the transfer at byte {offset} has not ended in time")]
    Late {
        /// The offset in the file.
        offset: u64,
    },
    /// The bytes of a file have changed on their way.
    #[error(
        "{path}: the sum of what was sent is {sent:#018x}, of what came {came:#018x}: the file is not kept"
    )]
    Sum {
        /// The path of the file.
        path: String,
        /// The sum of the bytes that were sent.
        sent: u64,
        /// The sum of the bytes that arrived.
        came: u64,
    },
}

impl From<EngineError> for P2pError {
    fn from(error: EngineError) -> Self {
        Self::Host(error.into())
    }
}

impl P2pError {
    /// Returns the error as text for the other end. It leaves out the other end's own address.
    fn to_other_end(&self) -> String {
        match self {
            Self::Other { reason, .. } => reason.clone(),
            error => error.to_string(),
        }
    }
}

fn how(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "is done",
        Outcome::Failed => "has failed",
        Outcome::Cancelled => "was cancelled",
        Outcome::TimedOut => "has timed out",
    }
}

/// A file that was copied.
#[derive(Clone, Debug)]
pub struct Copied {
    /// Length of the file in bytes.
    pub bytes: u64,
    /// What the engine of this process has done to copy the file.
    pub engine: EngineFigures,
}

/// A sum of bytes that depends on their order: FNV-1a over words.
#[derive(Clone, Copy, Debug)]
struct Sum(u64);

impl Sum {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes. All calls for a file but the last must add whole slots.
    fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut value = [0; 8];
            value.copy_from_slice(word);
            self.step(u64::from_le_bytes(value));
        }
        for byte in words.remainder() {
            self.step(u64::from(*byte));
        }
    }

    fn step(&mut self, value: u64) {
        self.0 = (self.0 ^ value)
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(23);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_tells_any_flipped_bit_and_any_two_bytes_exchanged() {
        let bytes: Vec<u8> = (0..100).collect();
        let of = |bytes: &[u8]| {
            let mut sum = Sum::new();
            sum.add(bytes);
            sum.0
        };
        let whole = of(&bytes);
        for bit in 0..800 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of(&other), whole, "bit {bit}");
        }
        for at in 1..100 {
            let mut other = bytes.clone();
            other.swap(at - 1, at);
            assert_ne!(of(&other), whole, "byte {at}");
        }
    }
}
