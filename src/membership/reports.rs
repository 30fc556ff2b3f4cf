//! What a rank tells its user of what it sees, each thing once: causes against members, and what a newcomer waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use membership_rules::look::{Look, Row};
use membership_rules::record::{RankGeneration, Record};
use membership_rules::slots::Slots;

use super::connect::MEET;
use super::event::{Cause, GroupEventKind};
use super::newcomers::held_for;
use super::rank::Rank;
use super::shared::Shared;

/// What this rank has told its user so far.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The ranks reported last, for each cause that follows from looks.
    causes: BTreeMap<Cause, Slots>,
    /// Members whose lease this newcomer does not see. With each: since when, and whether that was reported.
    unseen: BTreeMap<RankGeneration, (Instant, bool)>,
    /// The number of newcomers of this rank's slot that came to nothing before this rank, as told last.
    held_back: u32,
    /// This newcomer reaches too few members, and that was reported.
    waits_for_reach: bool,
    /// The earlier generation of its slot for whose end this rank waits, as told last.
    waits_for: Option<u32>,
}

impl Reports {
    /// Adds and withdraws the causes against members that follow from this look, if they have changed. `whole`: the look has asked for all
    /// keys.
    pub(super) fn tell_causes(
        &mut self,
        rank: &Rank,
        record: &Record,
        look: &Look<Duration>,
        row: &Row,
        whole: bool,
    ) {
        let unanswered = &rank.own.unanswered;
        let late = rank.own.has_promised(record)
            && unanswered.0 == record.number
            && unanswered.1 >= rank.rules.bounds.unanswered;
        let promised: Slots = look.promises.keys().copied().collect();
        let silent = match record.open.as_ref().filter(|_| late) {
            Some(open) => open.keep.without(&promised),
            None => Slots::default(),
        };
        let found = [
            (Cause::Unheard, row.unheard.clone()),
            (Cause::Overdue, row.overdue.clone()),
            (Cause::Over, rank.said_over(record)),
            (Cause::Leaves, look.goodbyes.keys().copied().collect()),
            (Cause::Silent, silent),
        ];
        for (cause, mut now) in found {
            if cause == Cause::Silent && late && !whole {
                continue;
            }
            now.remove(rank.own.slot);
            let before = if now.is_empty() {
                self.causes.remove(&cause)
            } else {
                self.causes.insert(cause.clone(), now.clone())
            };
            let before = before.unwrap_or_default();
            for slot in now.without(&before).iter() {
                rank.shared.suspect(slot, cause.clone());
            }
            for slot in before.without(&now).iter() {
                rank.shared.trust(slot, &cause);
            }
        }
    }

    /// Forgets the causes, since a view begins without any.
    pub(super) fn forget_causes(&mut self) {
        self.causes.clear();
    }

    /// Reports, once each, members with which this newcomer does not connect, because it has not seen their leases for [`MEET`].
    pub(super) fn tell_unseen(&mut self, rank: &Rank, unseen: &BTreeSet<RankGeneration>) {
        let now = Instant::now();
        self.unseen.retain(|who, _| unseen.contains(who));
        for who in unseen {
            let (since, told) = self.unseen.entry(*who).or_insert((now, false));
            let waited = now.duration_since(*since);
            if waited < MEET || std::mem::replace(told, true) {
                continue;
            }
            let generation = who.1;
            let error = format!(
                "this newcomer has not seen its lease for {waited:.1?}, and does not connect with it: a member without a lease is gone, \
                 or its store does not answer"
            );
            rank.shared.tell(GroupEventKind::NotConnected {
                rank: who.0,
                generation,
                error,
            });
        }
    }

    /// Reports that members hold back the slot of this newcomer, once for each newcomer before it that came to nothing.
    pub(super) fn tell_own_wait(&mut self, rank: &Rank, record: &Record) {
        let slot = rank.own.slot;
        let rows = record
            .members
            .iter()
            .filter_map(|who| rank.store.kept().rows.get(&who));
        let failures = rows.filter_map(|row| row.held.get(slot)).max().unwrap_or(0);
        if rank.own.applied == 0 && failures != self.held_back {
            self.held_back = failures;
            if failures > 0 {
                tell_held_back(&rank.shared, slot, failures);
            }
        }
    }

    /// Reports that this newcomer waits for the end of an `earlier` generation of its slot.
    pub(super) fn tell_earlier(&mut self, rank: &Rank, earlier: Option<u32>) {
        if earlier == self.waits_for {
            return;
        }
        self.waits_for = earlier;
        if let Some(generation) = earlier {
            rank.shared.tell(GroupEventKind::Waits {
                rank: rank.own.slot,
                generation,
            });
        }
    }

    /// Reports once that this newcomer reaches too few members to come in.
    pub(super) fn tell_reach(&mut self, rank: &Rank, record: &Record) {
        let waits = rank.rules.waits_for_reach(&rank.own, record);
        let is_new = waits.is_some() && !self.waits_for_reach;
        self.waits_for_reach = waits.is_some();
        let Some(apart) = waits.filter(|_| is_new) else {
            return;
        };
        let (members, apart) = (record.members.len(), apart.iter().collect::<Vec<u32>>());
        let error = format!(
            "this newcomer waits: writes to {} of {members} members, {apart:?}, get no answer, and it must reach more than half. \
             It comes in when they do",
            apart.len()
        );
        rank.shared.tell(GroupEventKind::Failed { error });
    }
}

/// Reports that slot `rank` waits, because `failures` newcomers of it came to nothing one after the other.
pub(super) fn tell_held_back(shared: &Shared, rank: u32, failures: u32) {
    let wait = held_for(shared.bounds.lease_ttl, failures);
    shared.tell(GroupEventKind::HeldBack {
        rank,
        failures,
        wait,
    });
}
