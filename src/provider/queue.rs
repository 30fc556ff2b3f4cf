//! The traits of a queue that a thread of the host posts to, and of the place where its WQEs complete.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use mlx5_prm::cqe::Syndrome;

use crate::provider::chain::{Chain, Tag};
use crate::provider::error::ProviderError;
use crate::provider::wake::Wake;

/// Why a WQE has failed, as its CQE or the system says.
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

    /// The `syndrome` of a cause that no HCA has reported. Its `vendor` is the error number of the system.
    pub const SYSTEM: u8 = 0xe0;

    /// Returns the cause that a system call has failed with this error number.
    #[must_use]
    pub fn of_system(errno: i32) -> Self {
        Self {
            syndrome: Self::SYSTEM,
            vendor: u8::try_from(errno).unwrap_or(u8::MAX),
        }
    }

    /// Returns the error number of the system. Returns None if an HCA has reported the cause.
    #[must_use]
    pub fn errno(self) -> Option<i32> {
        (self.syndrome == Self::SYSTEM).then(|| self.vendor.into())
    }

    /// Returns whether the WQE fails on every queue: its lengths, keys, bounds or rights are wrong, or the peer's process has ended.
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

    /// Returns whether the WQE failed only because another WQE had failed or the QP had been put into the error state.
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
    /// The queue has no room for the next WQE. The caller may post it again once a WQE has completed.
    Full,
    /// The queue has failed and takes no more WQEs.
    Failed,
}

/// What a post has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The number of WQEs that the lane has taken.
    pub count: usize,
    /// Why the lane has not taken all, if it has not.
    pub stop: Option<Stop>,
}

/// A completion of a lane that a reaper has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number of the lane.
    pub lane: u32,
    /// Which WQEs it accounts for.
    pub what: Completed,
    /// The index of the last of these WQEs, modulo 2^16.
    pub index: u16,
    /// Why the last of these WQEs has failed, if it has.
    pub cause: Option<Cause>,
}

/// WQEs that a completion accounts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// All WQEs of the send queue up to the one that the completion names.
    Sends,
    /// One WQE of the receive queue, which a WRITE of the peer with this immediate has consumed.
    Receive(Option<u32>),
}

/// One send queue, and a receive queue whose WQEs are consumed by the peer's WRITEs with an immediate. One thread uses it.
pub trait Lane: Send {
    /// Returns the number by which completions name the lane.
    fn number(&self) -> u32;

    /// Returns how many WQEs of up to `ranges` local ranges the lane is sure to take.
    fn room(&self, ranges: u32) -> u32;

    /// Takes the WQEs of `chain` with these numbers, as many as fit. The HCA sees none of them before [`Lane::ring`].
    fn post(&mut self, chain: &Chain, which: Range<usize>) -> Posted;

    /// Lets the HCA execute what was posted.
    fn ring(&mut self);

    /// Accounts for the WQEs that `completion` of this lane covers, in their order: gives `each` the tag of the WQE, and why it has failed.
    /// After the first failure the lane takes no more WQEs.
    fn retire(&mut self, completion: &Completion, each: impl FnMut(Tag, Option<Cause>));

    /// Returns the number of WQEs of the send queue that are not accounted for.
    fn in_flight(&self) -> u32;

    /// Posts receive WQEs. The caller has listed the lane before, so it can assign their completions to it.
    fn open(&mut self) {}

    /// Accounts for the receive WQE that `completion` of this lane names, and posts it again unless the lane has failed.
    fn receive(&mut self, _completion: &Completion) {}

    /// Returns the number of receive WQEs that are not accounted for.
    fn receives(&self) -> u32 {
        0
    }

    /// Returns whether a WQE of transfer slot `slot` is not accounted for.
    fn holds(&self, slot: u32) -> bool;

    /// Returns whether the thread that uses the lane moves the bytes, in [`Lane::advance`]. If not, an HCA moves them.
    fn copies(&self) -> bool {
        false
    }

    /// Moves a bounded part of the bytes. Returns a completion if WQEs can be accounted for then.
    fn advance(&mut self) -> Option<Completion> {
        None
    }

    /// Fails the WQEs under way of this slot, or of all slots. Returns false if only the HCA can fail them, once the QP is in the error
    /// state.
    fn flush(&mut self, _slot: Option<u32>) -> bool {
        false
    }
}

/// The place where WQEs complete. The thread that uses its lanes uses it, and no other does.
pub trait Reaper: Send {
    /// Adds completions to `found`, until `found` has `most` entries.
    fn reap(&mut self, found: &mut Vec<Completion>, most: usize);

    /// Sleeps until a WQE has completed, `wake` is woken, or the time is over. It may return early.
    ///
    /// # Errors
    /// An error of the system.
    fn sleep(&mut self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError>;
}

/// A kind of lanes and the reapers that fit them.
pub trait Provider: 'static {
    /// The type of its send queues.
    type Lane: Lane;
    /// The type of its completion queues.
    type Reaper: Reaper;
}

/// What one worker posts to: its lanes, and the reaper that completes their WQEs.
pub struct WorkerLanes<P: Provider> {
    /// The completion queue of the lanes.
    pub reaper: P::Reaper,
    /// The send queues. The reaper knows their numbers.
    pub lanes: Vec<P::Lane>,
}
