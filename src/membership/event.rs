//! What a group reports to its user: the state of this rank, and what has happened when.

use std::fmt;
use std::time::{Duration, Instant};

use membership_rules::members::Members;
use membership_rules::record::Record;

use crate::error::ThreadPanicked;

/// The state of a rank in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupState {
    /// Not a member yet. The rank founds the group with others, or asks to be taken in. Its calls are held.
    Joining,
    /// A member whose calls start.
    Serving,
    /// A member whose calls are held for a moment, while the members agree on the next view.
    Changing,
    /// Dropped by the other ranks. Its calls end at once, and the rank comes back with a new generation.
    Expelled,
    /// Gone by its own wish, after [`Group::leave`](super::Group::leave).
    Left,
    /// A thread of the group has panicked. The QPs of this rank are ended, and the others go on without it; it comes back with a
    /// new generation.
    Broken,
}

impl GroupState {
    /// Returns whether this generation has ended.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Expelled | Self::Left | Self::Broken)
    }
}

/// The members of a group, from one call on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupView {
    /// Number of the view: 1 for the first view, one more for each later one.
    pub epoch: u32,
    /// Number of the first call that runs in this view. Calls count modulo 2^32.
    pub first: u32,
    /// The generation of each member, by rank slot.
    pub members: Members,
    /// Pairs of members between which no call of this view sends, the lower slot first. A QP between the two ranks of a pair has failed,
    /// and their QPs are being connected anew.
    pub parted: Vec<(u32, u32)>,
}

impl GroupView {
    /// Returns the members with which `rank` exchanges no tokens in this view.
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
    /// Kernels have waited for the rank up to the deadline of a call.
    Timeout,
    /// A QP to the rank ended in error: vendor syndrome << 8 | syndrome.
    QpError(u32),
    /// The HCA says that a QP to the rank has failed: the type of event.
    QpEvent(u16),
    /// A QP to the rank ended in error, and later flushes hid the first error. The cause is lost.
    QpFlushed,
    /// No sign of life came from the rank for one and a half leases, and its own lease has run out.
    Unheard,
    /// Nothing has arrived from the rank, or could be sent to it, for the stall bound.
    Overdue,
    /// The process of the rank, on this machine, has ended.
    ProcessExit,
    /// The rank says itself that it has ended.
    Over,
    /// The rank wants to leave.
    Leaves,
    /// The rank has not promised a proposal in time.
    Silent,
    /// The caller of [`Group::suspect`](super::Group::suspect) says so, or this rank itself, in words.
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
    /// Time at which this rank saw the event.
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
        /// All ranks that the words name.
        ranks: Vec<u32>,
    },
    /// This rank has put a proposal into the store.
    Proposed {
        /// Number of the proposal. Each later proposal has a larger number.
        proposal: u64,
        /// The members that the proposal keeps and the newcomers that it takes in.
        members: Members,
    },
    /// This rank has promised a proposal.
    Promised {
        /// Number of the proposal. Each later proposal has a larger number.
        proposal: u64,
        /// The last call that this rank starts in the old view. None if this rank joins.
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
    /// The words that an earlier holder of a slot had written are cleared.
    Cleared {
        /// The slot.
        rank: u32,
    },
    /// The QPs to another rank are connected. That rank wants to come in, or was parted from this one.
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
    /// The QPs to another rank could not be connected; this rank tries again. The other rank wants to come in, or is parted from this one.
    NotConnected {
        /// Slot of the other rank.
        rank: u32,
        /// Generation of the other rank.
        generation: u32,
        /// The error, in words.
        error: String,
    },
    /// A step of a change failed at this rank; this rank tries it again.
    Failed {
        /// The step and its error, in words.
        error: String,
    },
    /// The port of a rail carries nothing any more. The port alone parts this rank from no member; QPs that fail because of it do.
    RailDown {
        /// Number of the rail, from 0 on.
        rail: usize,
    },
    /// The port of a rail carries again.
    RailUp {
        /// Number of the rail, from 0 on.
        rail: usize,
    },
    /// The HCA of a rail has failed for good. When the HCAs of all rails have failed, this rank goes, if two other ranks meet each other.
    RailLost {
        /// Number of the rail, from 0 on.
        rail: usize,
    },
    /// At the start of the group, calls of the store took longer than a sixth of the time to live of a lease. A renewal that is lost
    /// may then cost the lease, and changes take long.
    SlowStore {
        /// Time within which 99 of 100 of these calls ended.
        p99: Duration,
        /// Time to live of the group's leases.
        lease_ttl: Duration,
    },
    /// This rank wants to come in, and an earlier generation of its slot is still a member or asks as well. This rank waits until that
    /// generation is gone.
    Waits {
        /// Slot of both generations.
        rank: u32,
        /// The earlier generation.
        generation: u32,
    },
    /// Newcomers of a slot have come to nothing, one after the other: each was proposed, and dropped before it had served for ten leases.
    /// Members take the next one in only after a wait, which is twice as long each time, at most 64 leases. A member reports this when it
    /// begins to wait, and a rank that wants to come in reports it for its own slot.
    HeldBack {
        /// The slot.
        rank: u32,
        /// Number of newcomers that came to nothing, one after the other.
        failures: u32,
        /// Time from the end of the last newcomer until members may take the next one in.
        wait: Duration,
    },
    /// The store does not answer: no view changes.
    StoreLost {
        /// The error, in words.
        error: String,
    },
    /// The store has lost the group's record, or never had it. The ranks that have had the record cannot write it anew, or this rank hears
    /// of no such rank.
    RecordLost {
        /// Name of the store.
        store: String,
        /// Time for which the store is known to be without the record.
        lost: Duration,
        /// What the ranks wait for, and what to do.
        reason: String,
    },
    /// The group's record was lost from the store and stands there again: one rank has written it anew.
    RecordBack {
        /// Number of the record's view.
        epoch: u32,
        /// Time for which the store was without the record.
        lost: Duration,
    },
    /// The store answers again.
    StoreBack {
        /// Time for which the store did not answer.
        away: Duration,
    },
    /// A thread of the group has panicked: this generation has ended.
    Panicked(ThreadPanicked),
    /// This generation has ended.
    Ended(GroupState),
}

impl GroupEventKind {
    /// Returns whether this event may keep the rank of slot `own` from serving, or from leaving.
    pub(super) fn holds_up(&self, own: u32) -> bool {
        match self {
            Self::Waits { .. } | Self::NotConnected { .. } | Self::Failed { .. } => true,
            Self::RailLost { .. } | Self::StoreLost { .. } | Self::Panicked(_) => true,
            Self::RecordLost { .. } => true,
            Self::HeldBack { rank, .. } => *rank == own,
            _ => false,
        }
    }

    /// Returns whether this event ends the hindrance of which event `held` tells.
    pub(super) fn ends(&self, held: &Self) -> bool {
        match (self, held) {
            (Self::Viewed(_) | Self::Ended(_), Self::RailLost { .. } | Self::Panicked(_)) => false,
            (Self::Viewed(_) | Self::Ended(_), _) => true,
            (Self::StoreBack { .. }, Self::StoreLost { .. }) => true,
            (Self::RecordBack { .. }, Self::RecordLost { .. }) => true,
            (
                Self::Connected {
                    rank, generation, ..
                },
                Self::NotConnected {
                    rank: other,
                    generation: of,
                    ..
                },
            ) => (rank, generation) == (other, of),
            _ => false,
        }
    }

    /// Returns whether this event is a step that each change has.
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

impl GroupEventKind {
    /// Returns the name of the kind in plain words. The names stay the same; docs/newcomer.md and Python use them.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Suspected { .. } => "suspected",
            Self::Trusted { .. } => "trusted",
            Self::Masked { .. } => "masked",
            Self::Proposed { .. } => "proposed",
            Self::Promised { .. } => "promised",
            Self::Fenced { .. } => "fenced",
            Self::Viewed(_) => "viewed",
            Self::Resumed { .. } => "resumed",
            Self::Cleared { .. } => "cleared",
            Self::Connected { .. } => "connected",
            Self::GoesRound { .. } => "goes round",
            Self::NotConnected { .. } => "not connected",
            Self::Failed { .. } => "failed",
            Self::RailDown { .. } => "rail down",
            Self::RailUp { .. } => "rail up",
            Self::RailLost { .. } => "rail lost",
            Self::SlowStore { .. } => "slow store",
            Self::Waits { .. } => "waits",
            Self::HeldBack { .. } => "held back",
            Self::StoreLost { .. } => "store lost",
            Self::RecordLost { .. } => "record lost",
            Self::RecordBack { .. } => "record back",
            Self::StoreBack { .. } => "store back",
            Self::Panicked(_) => "panicked",
            Self::Ended(_) => "ended",
        }
    }
}

/// Writes the event in words, without its kind.
impl fmt::Display for GroupEventKind {
    // The function is long because each kind has its arm.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspected { rank, cause } => write!(f, "rank {rank} is suspected: {cause}"),
            Self::Trusted { rank } => write!(f, "rank {rank} is suspected no longer"),
            Self::Masked { ranks } => write!(f, "kernels do not wait for ranks {ranks:?}"),
            Self::Proposed { proposal, members } => {
                let ranks: Vec<u32> = members.keys().collect();
                write!(f, "proposal {proposal} of ranks {ranks:?}")
            }
            Self::Promised { proposal, last } => {
                write!(f, "proposal {proposal} is promised")?;
                match last {
                    Some(last) => write!(f, "; call {last} is the last before it"),
                    None => Ok(()),
                }
            }
            Self::Fenced { ranks } => write!(f, "the QPs to ranks {ranks:?} are in error"),
            Self::Viewed(view) => write!(f, "{view}"),
            Self::Resumed { epoch, held } => {
                write!(f, "calls start in view {epoch}, after {held:.1?}")
            }
            Self::Cleared { rank } => write!(f, "nothing is left of the rank {rank} before"),
            Self::Connected {
                rank,
                generation,
                took,
            } => write!(
                f,
                "rank {rank} of generation {generation} is connected, after {took:.1?}"
            ),
            Self::GoesRound { rank, rails } => write!(
                f,
                "what is posted to rank {rank} on rails {rails:?} goes by others"
            ),
            Self::NotConnected {
                rank,
                generation,
                error,
            } => write!(
                f,
                "rank {rank} of generation {generation} is not connected: {error}"
            ),
            Self::Failed { error } => f.write_str(error),
            Self::RailDown { rail } => write!(f, "the port of rail {rail} is down"),
            Self::RailUp { rail } => write!(f, "the port of rail {rail} is up"),
            Self::RailLost { rail } => write!(f, "the HCA of rail {rail} has failed for good"),
            Self::SlowStore { p99, lease_ttl } => write!(
                f,
                "calls of the store take up to {p99:.1?}, more than a sixth of the {lease_ttl:.1?} for which a lease lives"
            ),
            Self::Waits { rank, generation } => write!(
                f,
                "generation {generation} of rank {rank} is a member still; this one waits until it is gone"
            ),
            Self::HeldBack {
                rank,
                failures,
                wait,
            } => write!(
                f,
                "{failures} newcomers of rank {rank}, one after the other, served for less than ten leases; the next is taken in {wait:.1?} after the last of them, or later"
            ),
            Self::StoreLost { error } => write!(f, "the store does not answer: {error}"),
            Self::RecordLost {
                store,
                lost,
                reason,
            } => write!(
                f,
                "the store {store} is without the group's record, for {lost:.1?}: {reason}"
            ),
            Self::RecordBack { epoch, lost } => write!(
                f,
                "the record of view {epoch} stands in the store again, which was without it for {lost:.1?}"
            ),
            Self::StoreBack { away } => write!(f, "the store answers, after {away:.1?}"),
            Self::Panicked(panicked) => write!(f, "{panicked}"),
            Self::Ended(how) => write!(f, "this generation has ended: {how:?}"),
        }
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
