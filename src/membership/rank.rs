//! What the thread that follows the rules knows of its rank. All parts of a turn use this.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::evidence::Rules;
use membership_rules::look::Own;
use membership_rules::members::Members;
use membership_rules::record::{RankGeneration, Record};
use membership_rules::slots::Slots;

use super::connector::Connector;
use super::event::GroupEventKind;
use super::group_store::GroupStore;
use super::shared::Shared;

/// One rank: what its threads share, its store, and how far it has come by the rules.
pub(super) struct Rank {
    pub(super) shared: Arc<Shared>,
    pub(super) connector: Arc<Connector>,
    pub(super) store: GroupStore,
    pub(super) rules: Rules<Duration>,
    pub(super) own: Own<Duration>,
    /// The first call of the newest view that the device of this rank has, or a later call (`age.rs`).
    pub(super) first: u32,
    /// The ranks to which kernels of this rank may post.
    pub(super) opened: Members,
    /// Members that have ended for certain. The QPs to them are in Err, and no view opens these QPs again.
    pub(super) over: BTreeSet<RankGeneration>,
    /// A last call of a leaver up to which this rank has made all calls. The row tells it to leavers that wait.
    pub(super) through: Option<u32>,
    /// This rank has tried to promise a proposal.
    pub(super) promises: bool,
    /// The number of the last proposal for which this newcomer has woken the members.
    pub(super) rung: u64,
    pub(super) since: Instants,
}

/// The times since which the state of a rank is what it is.
pub(super) struct Instants {
    pub(super) begun: Instant,
    /// When the newest view was given to the device.
    pub(super) viewed: Option<Instant>,
    /// Since when this rank, which has left, ends the calls that it is still part of.
    pub(super) left: Option<Instant>,
    /// Since when calls are held.
    pub(super) held: Option<Instant>,
    /// Since when the store does not answer.
    pub(super) away: Option<Instant>,
    /// When a turn last followed the record that the store had.
    pub(super) touched: Instant,
}

impl Rank {
    /// Returns slot and generation of this rank.
    pub(super) fn own(&self) -> RankGeneration {
        (self.own.slot, self.own.generation)
    }

    /// Returns whether this rank is the member with the lowest slot, which removes what ranks that are gone have left.
    pub(super) fn is_lowest(&self, record: &Record) -> bool {
        record.members.keys().next() == Some(self.own.slot)
    }

    /// Returns the members that hold their leases, as far as this rank has read, and this rank itself if it is a member.
    pub(super) fn holders(&self, record: &Record) -> Slots {
        let mut holders = self.store.kept().members.among(&record.members);
        if self.own.is_member(record) {
            holders.insert(self.own.slot);
        }
        holders
    }

    /// Returns the members that say themselves that they have ended.
    pub(super) fn said_over(&self, record: &Record) -> Slots {
        let said = self.store.kept().over.iter();
        let said = said.filter(|who| record.is_member(who.0, who.1));
        said.map(|who| who.0).collect()
    }

    /// Returns the members whose process was seen to end or that say so themselves, and the newcomers of the open proposal whose process
    /// was seen to end.
    pub(super) fn ended(&self, record: &Record) -> Slots {
        let mut ended = self.shared.lock().suspects.ended();
        let kept = self.store.kept();
        ended.add(&self.said_over(record));
        // The thread that watches processes knows only the members of this rank's views. A newcomer has no view yet.
        let told = self.shared.transport.ended();
        let seen = |who: &RankGeneration| {
            let near = kept.members.near(*who);
            told.contains(who) || near.is_some_and(|process| process.has_ended())
        };
        if self.own.applied == 0 {
            let seen = record.members.iter().filter(seen);
            ended.add(&seen.map(|who| who.0).collect());
        } else {
            let takes = record.open.iter().flat_map(|open| open.takes.iter());
            let comes = takes.filter(|who| !record.members.contains_key(who.0));
            ended.add(&comes.filter(seen).map(|who| who.0).collect());
            ended.remove(self.own.slot);
        }
        ended
    }

    /// Returns whether this rank has promised a change and a call of it is under way.
    pub(super) fn has_waiting_call(&self, record: &Record) -> bool {
        let layer = &self.shared.layer;
        self.own.has_promised(record) && layer.finished() != layer.started()
    }

    /// Starts the thread that connects, if it has work. If the system gives no thread, the next turn tries again.
    pub(super) fn wake_connector(&self) {
        if let Err(error) = self.connector.wake(&self.shared) {
            let error = error.to_string();
            self.shared.tell(GroupEventKind::Failed { error });
        }
    }
}
