//! A queue that a thread of the host posts to, and where its WQEs complete: the traits.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use mlx5_prm::cqe::Syndrome;

use crate::provider::chain::{Chain, Tag};
use crate::provider::error::ProviderError;
use crate::provider::wake::Wake;

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

    /// `syndrome` of what no HCA has said: `vendor` is the error number of the system.
    pub const SYSTEM: u8 = 0xe0;

    /// A call of the system has failed with this error number.
    #[must_use]
    pub fn of_system(errno: i32) -> Self {
        Self {
            syndrome: Self::SYSTEM,
            vendor: u8::try_from(errno).unwrap_or(u8::MAX),
        }
    }

    /// Returns the error number of the system; none where an HCA has said the cause.
    #[must_use]
    pub fn errno(self) -> Option<i32> {
        (self.syndrome == Self::SYSTEM).then(|| self.vendor.into())
    }

    /// Whether it fails on every queue: the WQE itself is wrong, by its lengths, keys, bounds or rights, or the peer's process has ended.
    #[must_use]
    pub fn is_of_the_request(self) -> bool {
        if let Some(libc::ESRCH | libc::EFAULT) = self.errno() {
            return true;
        }
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

    /// Returns whether it only follows from what has happened to another WQE.
    #[must_use]
    pub fn is_flush(self) -> bool {
        self.syndrome == Self::FLUSHED.syndrome
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno() {
            Some(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(errno)),
            None => write!(f, "syndrome {:#04x} ({:#04x})", self.syndrome, self.vendor),
        }
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

/// What a reaper has found of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number of the lane.
    pub lane: u32,
    /// What is accounted for.
    pub what: Completed,
    /// Index of the last of these WQEs, modulo 2^16.
    pub index: u16,
    /// Why that one has failed.
    pub cause: Option<Cause>,
}

/// WQEs that a completion accounts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// All of the send queue up to one.
    Sends,
    /// One of the receive queue, which a WRITE of the peer with this immediate has consumed.
    Receive(Option<u32>),
}

/// One send queue, and beside it receive WQEs that WRITEs of the peer with an immediate consume. One thread uses it.
pub trait Lane: Send {
    /// By which completions name it.
    fn number(&self) -> u32;

    /// So many WQEs of up to `ranges` local ranges it takes in any case.
    fn room(&self, ranges: u32) -> u32;

    /// Takes the WQEs of `chain` with these numbers, as many as it can. The HCA sees none of them before [`Lane::ring`].
    fn post(&mut self, chain: &Chain, which: Range<usize>) -> Posted;

    /// Lets the HCA run what was posted.
    fn ring(&mut self);

    /// Accounts for the WQEs that `completion`, one of this lane, is about, in their order: the tag of each, and why it has failed.
    /// After the first failure the lane takes nothing more.
    fn retire(&mut self, completion: &Completion, each: impl FnMut(Tag, Option<Cause>));

    /// WQEs of the send queue that are not accounted for.
    fn in_flight(&self) -> u32;

    /// Posts receive WQEs. The thread knows the lane, so that what completes of it is known for its.
    fn open(&mut self) {}

    /// Accounts for the receive WQE that `completion`, one of this lane, is about, and posts it again unless the lane has failed.
    fn receive(&mut self, _completion: &Completion) {}

    /// Receive WQEs that are not accounted for.
    fn receives(&self) -> u32 {
        0
    }

    /// Returns whether one of those is of this slot.
    fn holds(&self, slot: u32) -> bool;

    /// Returns whether the thread that uses it does its work, by [`Lane::advance`]. Else an HCA does.
    fn copies(&self) -> bool {
        false
    }

    /// Does a bounded part of the work: what is accounted for then.
    fn advance(&mut self) -> Option<Completion> {
        None
    }

    /// Fails what is under way of this slot, or all of it. `false`: only an HCA can, which takes the queue into the error state.
    fn flush(&mut self, _slot: Option<u32>) -> bool {
        false
    }
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
