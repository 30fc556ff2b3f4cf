//! What the thread that follows the rules knows of its rank: all parts of a turn go by it.

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

/// One rank: what its threads share, its store, and how far it is by the rules.
pub(super) struct Rank {
    pub(super) shared: Arc<Shared>,
    pub(super) connector: Arc<Connector>,
    pub(super) store: GroupStore,
    pub(super) rules: Rules<Duration>,
    pub(super) own: Own<Duration>,
    /// The first call of the newest view that its device has, or a later one (`age.rs`).
    pub(super) first: u32,
    /// The ranks to which kernels may post.
    pub(super) opened: Members,
    /// Members that have ended for certain: the QPs to them are in Err, and no view opens them again.
    pub(super) over: BTreeSet<RankGeneration>,
    /// This rank has made all calls up to this one, and the row says so for a leaver that waits.
    pub(super) through: Option<u32>,
    /// It has tried to promise a proposal.
    pub(super) promises: bool,
    /// The number of the last proposal for which this newcomer has woken the members.
    pub(super) rung: u64,
    pub(super) since: Instants,
}

/// Since when something is so.
pub(super) struct Instants {
    pub(super) begun: Instant,
    /// The newest view was given to the device.
    pub(super) viewed: Option<Instant>,
    /// This rank has left, and ends the calls that it is still part of.
    pub(super) left: Option<Instant>,
    /// Calls have been held.
    pub(super) held: Option<Instant>,
    /// The store has not answered.
    pub(super) away: Option<Instant>,
    /// A turn has followed the record that the store had.
    pub(super) touched: Instant,
}

impl Rank {
    /// Slot and generation of this rank.
    pub(super) fn own(&self) -> RankGeneration {
        (self.own.slot, self.own.generation)
    }

    /// Returns whether this rank removes what others have left.
    pub(super) fn is_lowest(&self, record: &Record) -> bool {
        record.members.keys().next() == Some(self.own.slot)
    }

    /// Members that hold their leases, as far as this rank has read, and this rank if it is one.
    pub(super) fn holders(&self, record: &Record) -> Slots {
        let mut holders = self.store.reader.kept.members.among(&record.members);
        if self.own.is_member(record) {
            holders.insert(self.own.slot);
        }
        holders
    }

    /// Members that say themselves that they have ended.
    pub(super) fn said_over(&self, record: &Record) -> Slots {
        let said = self.store.reader.kept.over.iter();
        let said = said.filter(|who| record.is_member(who.0, who.1));
        said.map(|who| who.0).collect()
    }

    /// Members whose process was seen to end, or that say so themselves, and newcomers of the open proposal.
    pub(super) fn ended(&self, record: &Record) -> Slots {
        let mut ended = self.shared.lock().suspects.ended();
        let kept = &self.store.reader.kept;
        ended.add(&self.said_over(record));
        // The thread that watches processes knows members of this rank's views only.
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

    /// Returns whether a call of this rank is under way in a change that it has promised.
    pub(super) fn has_waiting_call(&self, record: &Record) -> bool {
        let layer = &self.shared.layer;
        self.own.has_promised(record) && layer.finished() != layer.started()
    }

    /// Without a thread now, the next turn tries again.
    pub(super) fn wake_connector(&self) {
        if let Err(error) = self.connector.wake(&self.shared) {
            let error = error.to_string();
            self.shared.tell(GroupEventKind::Failed { error });
        }
    }
}
