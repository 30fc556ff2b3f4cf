//! What a group needs of a team: the team's place among the ranks, and QPs to one peer at a time.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use membership_rules::record::RankGeneration;
use rendezvous::{Process, Store};

use super::event::Cause;
use crate::team::{Sweep, TeamError};

/// Pause of the thread that watches, between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// An event that an HCA of this rank has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// The port of this rail carries nothing any more.
    PortDown(usize),
    /// The port of this rail carries again.
    PortUp(usize),
    /// The HCA of this rail has failed for good.
    Fatal(usize),
    /// A QP to this rank has failed. The number is the type of the HCA's event.
    Qp(u32, u16),
}

/// How far a rank is in connecting with a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// The other end has not come yet.
    Absent,
    /// Both ends have made QPs, and a write on one of them has had no answer yet.
    Unproven,
    /// A write on each QP was answered.
    Proven,
}

/// The QPs of one rank, as a group sees them.
pub(super) trait Transport: Send + Sync + Debug {
    /// Returns this rank's slot.
    fn slot(&self) -> u32;

    /// Returns this rank's generation.
    fn generation(&self) -> u32;

    /// Returns the number of slots of the team.
    fn slots(&self) -> u32;

    /// Returns the ranks that were connected when this one joined, all of generation 1. Returns none if this rank joins others.
    fn founders(&self) -> Vec<u32>;

    fn store(&self) -> Arc<dyn Store>;

    /// Returns the longest wait of a device call.
    fn deadline(&self) -> Duration;

    /// Returns the longest wait for other ranks in a collective call.
    fn timeout(&self) -> Duration;

    /// Returns the process whose end shows other ranks that this one has ended.
    fn process(&self) -> Process {
        Process::this()
    }

    /// Returns an error if the system of a test gives no thread of this name.
    #[cfg(test)]
    fn may_start(&self, _thread: &str) -> Result<(), crate::error::ThreadRefused> {
        Ok(())
    }

    /// Pauses the thread that watches, between two looks.
    fn rest(&self) {
        std::thread::sleep(LOOK);
    }

    /// Returns the record by which other ranks connect to this generation: key and value. None if this generation has written it before.
    fn hello(&self) -> Result<Option<(String, Vec<u8>)>, TeamError>;

    /// Ends everything with `peer` at once: moves the QPs to it to Err.
    fn fail_peer(&self, peer: u32) -> Result<(), TeamError>;

    /// Closes what this rank has opened of the memory of `peer`, whose calls have ended. Returns false while a kernel uses it: call again.
    fn release_peer(&self, _peer: u32) -> Result<bool, TeamError> {
        Ok(true)
    }

    /// Returns whether nothing that earlier generations of `peer` have posted can still arrive in the layer's memory: they have reported
    /// that their QPs are in Err. The words of `peer` may be cleared only after that. On `false` the caller asks again.
    fn is_silent(&self, _peer: u32, _generation: u32) -> Result<bool, TeamError> {
        Ok(true)
    }

    /// Returns the newest generation of `peer` with which the QPs were ever connected, or 0. Earlier generations are over for this rank.
    fn newest(&self, peer: u32) -> u32;

    /// Connects the QPs to `peer` with those of that generation, whatever state they are in, and proves them by a write on each. Does
    /// not wait for long; called again, it goes on. No kernel gets a guard of the peer before [`Transport::open_peer`]. Until then
    /// this rank may call it again to see whether the other end has begun anew.
    ///
    /// [`TeamError::Unreached`] means [`Meeting::Unproven`] as well: the next call begins another attempt, and the caller waits before it.
    fn connect_peer(&self, peer: u32, generation: u32) -> Result<Meeting, TeamError>;

    /// Returns the longest time for which an HCA tries before it gives up a QP.
    fn patience(&self) -> Duration;

    /// Brings this rank and generation `generation` of `peer`, which was connected and has been failed, together again: on the same
    /// QPs, with the same keys. Both ends call it. It never waits. `true`: the QPs are connected, and a write has been answered on
    /// each. `false`: call it again. No kernel gets a guard of the peer before [`Transport::open_peer`]. Until then this rank may
    /// call it again to see whether the other end has begun another attempt.
    ///
    /// After [`TeamError::Unreached`] the next call begins another attempt: the caller waits before it.
    fn reunite_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError>;

    /// Writes again the records by which this generation of `peer`, or all ranks, connect to this rank, where another writer has
    /// changed them.
    fn tell_again(&self, _peer: u32, _generation: u32) -> Result<(), TeamError> {
        Ok(())
    }

    /// Returns how far the records are by which this rank and generation `generation` of `peer` meet: what this end has told the other, and
    /// what the other has told this one, in words.
    fn words(&self, peer: u32, generation: u32) -> [String; 2];

    /// Writes again the records by which ranks that come find this one, into a store that has lost them.
    fn tell_all_again(&self) -> Result<(), TeamError> {
        Ok(())
    }

    /// Lets kernels post to `peer`, which is connected.
    fn open_peer(&self, peer: u32) -> Result<(), TeamError>;

    /// Returns the records to remove from the store: those by which generations that are over were connected.
    fn leftovers(&self) -> Sweep;

    /// Returns the events of the HCAs since the last call.
    fn alarms(&self) -> Vec<Alarm>;

    /// Returns the number of rails of this rank.
    fn rails(&self) -> usize;

    /// Returns the rails that carry nothing to `peer`. What is posted to QPs of these rails goes by other rails.
    fn left_out(&self, _peer: u32) -> Vec<u32> {
        Vec::new()
    }

    /// Returns a number that grows with the completions that kernels have seen of what they sent to `peer`.
    fn completed(&self, peer: u32) -> Result<u64, TeamError>;

    /// Returns the generations that have ended, if the transport sees that by itself.
    fn ended(&self) -> BTreeSet<RankGeneration> {
        BTreeSet::new()
    }

    /// Returns whether the HCA has a QP to `peer` in error, seen by a kernel or not. This takes a command for each QP.
    fn has_failed(&self, peer: u32) -> Result<bool, TeamError>;

    /// Returns the peers of which kernels have found a QP in error since the last call. It may return other peers as well. In peace it
    /// returns none, whatever the number of ranks.
    fn failing(&self) -> Vec<u32>;

    /// Returns why kernels have found a QP to `peer` in error. Returns None if they have not.
    fn failure(&self, peer: u32) -> Result<Option<Cause>, TeamError>;
}
