//! The traits of a queue that a thread of the host posts to, and of the place where its WQEs complete.

use std::ops::Range;
use std::time::Duration;

use crate::provider::chain::{Chain, Tag};
use crate::provider::error::ProviderError;
use crate::provider::wake::Wake;

mod cause;
mod counted;

pub use cause::{Cause, LibfabricCause};
pub(crate) use counted::{Counted, CounterCount, LaneCounts};

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
    /// One operation of the send queue, which the completion names, and none before it: those of this lane complete in any order. A WQE is
    /// accounted for when all its operations have completed.
    Send,
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

    /// Returns whether [`Lane::advance`] has something to do now. Operations that are merely under way are nothing to do.
    fn has_turn(&self) -> bool {
        false
    }

    /// Moves a bounded part of the bytes, or posts what was refused before. Returns a completion if WQEs can be accounted for then.
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
