//! What a group reports to its user: the state of this rank, and what has happened when.

use std::fmt;
use std::time::{Duration, Instant};

use super::rules::record::{Members, Record};
use crate::error::ThreadPanicked;

/// How a rank stands in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupState {
    /// Not a member yet: it founds the group with others, or asks to be taken in. Its calls are held.
    Joining,
    /// A member whose calls start.
    Serving,
    /// A member whose calls are held for a moment, while the members agree on the next view.
    Changing,
    /// Dropped by the others. Its calls end at once; it comes back with a new generation.
    Expelled,
    /// It left by [`Group::leave`](super::Group::leave).
    Left,
    /// A thread of the group has panicked. The QPs of this rank are ended, and the others go on without it; it comes back with a
    /// new generation.
    Broken,
}

impl GroupState {
    /// Whether this generation has ended.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Expelled | Self::Left | Self::Broken)
    }
}

/// The members of a group from one call on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupView {
    /// Its number: 1 for the first view, one more for each later one.
    pub epoch: u32,
    /// Number of the first call that runs in it; calls count modulo 2^32.
    pub first: u32,
    /// The generation of each member, by rank slot.
    pub members: Members,
    /// Pairs of members between which no call of this view sends, the lower slot first. A QP between the two has failed, and their
    /// QPs are being connected anew.
    pub parted: Vec<(u32, u32)>,
}

impl GroupView {
    /// The members with which `rank` exchanges no tokens in this view.
    #[must_use]
    pub fn parted_from(&self, rank: u32) -> Vec<u32> {
        let other = |&(a, b): &(u32, u32)| match (a == rank, b == rank) {
            (true, _) => Some(b),
            (_, true) => Some(a),
            _ => None,
        };
        self.parted.iter().filter_map(other).collect()
    }
}

impl From<&Record> for GroupView {
    fn from(record: &Record) -> Self {
        Self {
            epoch: record.epoch,
            first: record.first,
            members: record.members.clone(),
            parted: record.parted.iter().collect(),
        }
    }
}

/// Why a rank is suspected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cause {
    /// Kernels have waited for it up to the deadline of a call.
    Timeout,
    /// A QP to it ended in error: vendor syndrome << 8 | syndrome.
    QpError(u32),
    /// The HCA says that a QP to it has failed: the type of event.
    QpEvent(u16),
    /// A QP to it ended in error, and later flushes hid the first error. The cause is lost.
    QpFlushed,
    /// No sign of life came from it for one and a half leases, and its own lease has run out.
    Unheard,
    /// Nothing has arrived from it, or could be sent to it, for the stall bound.
    Overdue,
    /// Its process, on this machine, has ended.
    ProcessExit,
    /// It says itself that it has ended.
    Over,
    /// It wants to leave.
    Leaves,
    /// It has not promised a proposal in time.
    Silent,
    /// The caller says so.
    Told(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("kernels wait for it in vain"),
            Self::QpError(syndrome) => write!(f, "a QP to it is in error, syndrome {syndrome:#x}"),
            Self::QpEvent(kind) => write!(f, "a QP to it has failed, event {kind:#x}"),
            Self::QpFlushed => f.write_str("a QP to it was flushed, the cause is lost"),
            Self::Unheard => f.write_str("its lease has run out, and nothing is heard of it"),
            Self::Overdue => f.write_str("no contact with it for the stall bound"),
            Self::ProcessExit => f.write_str("its process has ended"),
            Self::Over => f.write_str("it has ended, as it says itself"),
            Self::Leaves => f.write_str("it leaves"),
            Self::Silent => f.write_str("it does not promise a proposal"),
            Self::Told(why) => f.write_str(why),
        }
    }
}

/// An event of a group, with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupEvent {
    /// Time at which this rank saw it.
    pub at: Instant,
    /// Kind and details of the event.
    pub what: GroupEventKind,
}

/// The kind of an event, with its details.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupEventKind {
    /// This rank suspects another.
    Suspected {
        /// Slot of the other rank.
        rank: u32,
        /// The cause of the suspicion.
        cause: Cause,
    },
    /// This rank no longer suspects another.
    Trusted {
        /// Slot of the other rank.
        rank: u32,
    },
    /// The host wrote the words that name the ranks for which kernels do not wait.
    Masked {
        /// All ranks that these words name.
        ranks: Vec<u32>,
    },
    /// This rank has put a proposal into the store.
    Proposed {
        /// Number of the proposal; each later one is larger.
        proposal: u64,
        /// The members that it keeps and those that it takes in.
        members: Members,
    },
    /// This rank has promised a proposal.
    Promised {
        /// Number of the proposal; each later one is larger.
        proposal: u64,
        /// The last call that it starts in the old view; none if it joins.
        last: Option<u32>,
    },
    /// The QPs to these ranks are in error.
    Fenced {
        /// Slots of the ranks, ascending.
        ranks: Vec<u32>,
    },
    /// The kernels of this rank have a new view.
    Viewed(GroupView),
    /// All calls may start again.
    Resumed {
        /// Number of the view.
        epoch: u32,
        /// Time for which calls were held.
        held: Duration,
    },
    /// Nothing is left of an earlier holder of a slot.
    Cleared {
        /// The slot.
        rank: u32,
    },
    /// The QPs to a rank that wants to come in, or from which this rank is parted, are connected.
    Connected {
        /// Slot of the other rank.
        rank: u32,
        /// Generation of the other rank.
        generation: u32,
        /// Time from the first try until the QPs were connected.
        took: Duration,
    },
    /// A parted pair is connected again, and some of its rails carried nothing. What is posted to QPs of these rails goes by other
    /// rails. These rails carry again when the pair is connected anew.
    GoesRound {
        /// Slot of the other rank.
        rank: u32,
        /// The rails, in ascending order.
        rails: Vec<u32>,
    },
    /// The QPs to a rank that wants to come in, or from which this rank is parted, could not be connected; it is tried again.
    NotConnected {
        /// Slot of the other rank.
        rank: u32,
        /// Generation of the other rank.
        generation: u32,
        /// The error, in words.
        error: String,
    },
    /// A step of a change failed at this rank; it is tried again.
    Failed {
        /// The step and its error, in words.
        error: String,
    },
    /// The port of a rail carries nothing any more. That alone parts this rank from no member; QPs that fail through it do.
    RailDown {
        /// Number of the rail, from 0 on.
        rail: usize,
    },
    /// The port of a rail carries again.
    RailUp {
        /// Number of the rail, from 0 on.
        rail: usize,
    },
    /// The HCA of a rail has failed for good. When those of all rails have, this rank goes, if two others meet.
    RailLost {
        /// Number of the rail, from 0 on.
        rail: usize,
    },
    /// At the start of the group, calls of the store took longer than a sixth of the time to live of a lease. A renewal that is lost
    /// may then cost the lease, and changes take long.
    SlowStore {
        /// Time that 99 of 100 of these calls took at most.
        p99: Duration,
        /// Time to live of the group's leases.
        lease_ttl: Duration,
    },
    /// This rank wants to come in, and an earlier generation of its slot is a member still. It waits until that one is gone.
    Waits {
        /// The slot.
        rank: u32,
        /// The earlier generation.
        generation: u32,
    },
    /// The store does not answer: no view changes.
    StoreLost {
        /// The error, in words.
        error: String,
    },
    /// The store answers again.
    StoreBack {
        /// Time for which it did not answer.
        away: Duration,
    },
    /// A thread of the group has panicked: this generation has ended.
    Panicked(ThreadPanicked),
    /// This generation has ended.
    Ended(GroupState),
}

impl GroupEventKind {
    /// A step of a change, which each change has.
    pub(super) fn is_step(&self) -> bool {
        matches!(
            self,
            Self::Masked { .. }
                | Self::Proposed { .. }
                | Self::Promised { .. }
                | Self::Fenced { .. }
                | Self::Resumed { .. }
                | Self::Cleared { .. }
                | Self::Connected { .. }
        )
    }
}

impl fmt::Display for GroupView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots: Vec<u32> = self.members.keys().collect();
        let (epoch, first) = (self.epoch, self.first);
        write!(f, "view {epoch} of {slots:?} from call {first} on")?;
        match self.parted[..] {
            [] => Ok(()),
            _ => write!(f, ", parted: {:?}", self.parted),
        }
    }
}
