//! Queues that a thread of the host posts to, whatever stands behind them: traits, and the providers.
//!
//! A [`Lane`] is one send queue, used by one thread: it takes the WQEs of a chain as far as it can, and says why it stopped. A
//! [`Reaper`] is where the WQEs of many lanes complete, used by the same thread. Every WQE that a lane has taken is accounted for
//! once: as done, or as failed with its cause, signalled or not, also when the lane is in error.
//!
//! `mlx5` posts to QPs of an HCA, made by DevX, with the segments of mlx5-prm. `sink` has no HCA: what is rung for completes, which
//! shows what all the rest costs. `memory` is host memory that HCAs of this process and of peers read and write.

mod chain;
mod error;
mod memory;
pub(crate) mod mlx5;
pub(crate) mod sink;
mod wake;

use std::fmt;
use std::time::Duration;

use mlx5_prm::cqe::Syndrome;

pub use chain::{Chain, LocalRange, Tag, Verb, Work};
pub use error::ProviderError;
pub use memory::HostMemory;
pub use wake::Wake;
pub(crate) use wake::Watched;

/// Why a WQE has failed, as the HCA says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `syndrome` of the CQE.
    pub syndrome: u8,
    /// `vendor_err_synd` of the CQE.
    pub vendor: u8,
}

impl Cause {
    /// The WQE was flushed: another one has failed before, or the QP was put into the error state.
    pub const FLUSHED: Self = Self {
        syndrome: 0x05,
        vendor: 0,
    };

    /// Whether the WQE itself is wrong, so that it fails on every queue: lengths, keys, bounds, rights.
    #[must_use]
    pub fn is_of_the_request(self) -> bool {
        let own = [
            Syndrome::LOCAL_LENGTH_ERR,
            Syndrome::LOCAL_QP_OP_ERR,
            Syndrome::LOCAL_PROT_ERR,
            Syndrome::REMOTE_INVAL_REQ_ERR,
            Syndrome::REMOTE_ACCESS_ERR,
            Syndrome::REMOTE_OP_ERR,
        ];
        own.contains(&Syndrome(self.syndrome))
    }

    /// Whether it only follows from what has happened to another WQE.
    #[must_use]
    pub fn is_flush(self) -> bool {
        self.syndrome == Self::FLUSHED.syndrome
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "syndrome {:#04x} ({:#04x})", self.syndrome, self.vendor)
    }
}

/// Why a post stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The queue has no room for the next WQE: it may be posted again when something has completed.
    Full,
    /// The queue takes nothing more.
    Failed,
}

/// What a post has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// WQEs that the lane has taken.
    pub count: usize,
    /// Why not all.
    pub stop: Option<Stop>,
}

/// What a reaper has found: all WQEs of a lane up to one are accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number of the lane.
    pub lane: u32,
    /// Index of the last of these WQEs, modulo 2^16.
    pub index: u16,
    /// Why that one has failed.
    pub cause: Option<Cause>,
}

/// One send queue. One thread uses it.
pub trait Lane: Send {
    /// By which completions name it.
    fn number(&self) -> u32;

    /// So many WQEs of up to `ranges` local ranges it takes in any case.
    fn room(&self, ranges: u32) -> u32;

    /// Takes the WQEs of `chain` from number `first` on, as many as it can. The HCA sees none of them before [`Lane::ring`].
    fn post(&mut self, chain: &Chain, first: usize) -> Posted;

    /// Lets the HCA run what was posted.
    fn ring(&mut self);

    /// Accounts for the WQEs that `completion`, one of this lane, is about, in their order: the tag of each, and why it has failed.
    /// After the first failure the lane takes nothing more.
    fn retire(&mut self, completion: &Completion, each: impl FnMut(Tag, Option<Cause>));

    /// WQEs that are not accounted for.
    fn in_flight(&self) -> u32;

    /// Whether one of those is of this slot.
    fn holds(&self, slot: u32) -> bool;
}

/// Where WQEs complete. One thread uses it, the one that uses its lanes.
pub trait Reaper: Send {
    /// Adds to `found` what has completed, until `found` has `most` entries.
    fn reap(&mut self, found: &mut Vec<Completion>, most: usize);

    /// Sleeps until something has completed, `wake` wakes, or the time is over. It may return early.
    ///
    /// # Errors
    /// What the system refuses.
    fn sleep(&mut self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError>;
}

/// Lanes and reapers that fit each other.
pub trait Provider: 'static {
    /// Its send queues.
    type Lane: Lane;
    /// Its completion queues.
    type Reaper: Reaper;
}
