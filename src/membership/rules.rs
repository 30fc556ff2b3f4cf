//! What a rank does next about the group's view: one pure function over what it sees.
//!
//! A change is propose → promise → commit. Any member may do any of it, nobody is special, and whoever does not promise is
//! removed by a further, smaller proposal. Each [`Step`] is done before the next is asked for; between two steps anything may
//! have happened. `rules_model` runs this function for several ranks in every order.

use std::collections::{BTreeMap, BTreeSet};

use super::choose::Suspicions;
use super::record::{Goodbye, GroupRecord, Members, Promise, later, newer};

/// Calls that a rank's device may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// None from now on; what it has started is still to be read.
    Closed,
    /// Those up to this one.
    UpTo(u32),
    /// All.
    Open,
}

/// What a rank knows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    /// Its slot.
    pub(crate) slot: u32,
    /// Its generation.
    pub(crate) generation: u32,
    /// Epoch of the newest view that its device has; 0: none yet.
    pub(crate) viewed: u32,
    /// Epoch whose view is in force without a limit; 0: none yet.
    pub(crate) applied: u32,
    /// Calls that its device may start.
    pub(crate) limit: Limit,
    /// The promise for the view behind `applied`, and the newest proposal for which it was given.
    pub(crate) promised: Option<(u64, Promise)>,
    /// Ranks, by slot, to which its QPs are in error for the change under way.
    pub(crate) fenced: BTreeSet<u32>,
}

/// What a rank sees when it looks around.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Promises for the open proposal, by slot.
    pub(crate) promises: BTreeMap<u32, Promise>,
    /// The last call that its device has started.
    pub(crate) started: u32,
    /// Whether the older of the device's two views is still needed.
    pub(crate) older_view_needed: bool,
    /// Slot and generation of ranks that must go: known dead, leaving, or silent towards the proposal for too long. Never this
    /// rank itself.
    pub(crate) gone: BTreeSet<(u32, u32)>,
    /// Those of `gone` that live and have said goodbye in the view of the record, and the last call that each starts in it. Nobody
    /// fences them before all are through with that view.
    pub(crate) leaves: BTreeMap<(u32, u32), u32>,
    /// Who suspects whom.
    pub(crate) suspicions: Suspicions,
    /// Whether another member doubts this rank.
    pub(crate) accused: bool,
    /// Ranks that ask to be taken in and that all members, and each other, have connected to. With this rank, if it is one.
    pub(crate) joining: Members,
    /// Ranks with which this rank's QPs are in Rts, by slot and generation.
    pub(crate) connected: BTreeSet<(u32, u32)>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, until something changes.
    Wait,
    /// Put this record in the place of the one that was seen.
    Store(GroupRecord),
    /// Let the device start no call; SeqCst fence; read what it has started.
    Close,
    /// Let the device start calls up to this one.
    Limit(u32),
    /// QPs to these slots to ERR.
    Fence(BTreeSet<u32>),
    /// Write this promise for the open proposal.
    Promise(Promise),
    /// Give the device the view of the record.
    View,
    /// Let the device start any call.
    Open,
    /// This rank is not in the view, or will not be in the next: it ends, and comes back with a new generation.
    Leave,
}

impl Step {
    /// Whether the next step follows from the same look at the store. A record that has changed meanwhile has another proposal,
    /// smaller than the one that was seen: whoever is fenced for the one is out of the other, and the promise is the same number.
    /// No view comes without a promise of this rank.
    pub(crate) fn goes_on(&self) -> bool {
        match self {
            Self::Close | Self::Limit(_) | Self::Fence(_) | Self::View => true,
            Self::Wait | Self::Store(_) | Self::Promise(_) | Self::Open | Self::Leave => false,
        }
    }
}

impl Local {
    /// A rank that asks to be taken in.
    pub(crate) fn joiner(slot: u32, generation: u32) -> Self {
        Self {
            slot,
            generation,
            viewed: 0,
            applied: 0,
            limit: Limit::Closed,
            promised: None,
            fenced: BTreeSet::new(),
        }
    }

    /// Whether a member that wants to go says so now. It starts no call from then on, and whoever has seen it may let it go.
    pub(crate) fn says_goodbye(&self, record: &GroupRecord) -> bool {
        self.applied == record.epoch && self.limit == Limit::Open
    }

    /// What it says, `started` being the last call that its device has started. Calls before its view are others' as well: it
    /// makes them in any case.
    pub(crate) fn goodbye(&self, record: &GroupRecord, started: u32) -> Goodbye {
        Goodbye {
            epoch: record.epoch,
            last: later(started, record.first.wrapping_sub(1)),
        }
    }

    /// The last call that this rank makes with the others, if a view has let it go since it said goodbye.
    pub(crate) fn last_call(&self, record: &GroupRecord) -> Option<u32> {
        let (generation, first) = record.left.get(&self.slot)?;
        (*generation == self.generation).then(|| first.wrapping_sub(1))
    }

    fn is_in(&self, members: &Members) -> bool {
        members.get(&self.slot) == Some(&self.generation)
    }

    /// The next step of this rank.
    pub(crate) fn next(&self, record: &GroupRecord, seen: &Seen) -> Step {
        let member = self.is_in(&record.members);
        if record.was_dropped(self.slot, self.generation) {
            return Step::Leave;
        }
        if member && self.applied != record.epoch {
            return self.apply(record, seen);
        }
        let proposed = record.proposed.as_ref().filter(|set| self.is_in(set));
        if let Some(smaller) = self.proposal(record, seen) {
            if self.is_in(&smaller) {
                return Step::Store(record.propose(smaller));
            }
            // Alone with what it says, it may only be the first to find others dead. If it is the one that is ill, others propose
            // to go on without it.
            if seen.accused {
                return Step::Leave;
            }
        }
        match proposed {
            Some(set) if self.promised.is_none_or(|(of, _)| of != record.proposal) => {
                self.promise(record, set, seen)
            }
            Some(_) => record
                .commit(&seen.promises, &seen.leaves)
                .map_or(Step::Wait, Step::Store),
            None => Step::Wait,
        }
    }

    /// B6: calls before the view may go on, then the device gets the view, then all calls may.
    fn apply(&self, record: &GroupRecord, seen: &Seen) -> Step {
        if self.viewed == record.epoch {
            return Step::Open;
        }
        let before = record.first.wrapping_sub(1);
        let held = match self.limit {
            Limit::Closed => true,
            Limit::UpTo(last) => newer(before, last),
            Limit::Open => false,
        };
        if self.applied != 0 && held {
            return Step::Limit(before);
        }
        match seen.older_view_needed {
            true => Step::Wait,
            false => Step::View,
        }
    }

    /// B3: promised once for the view; a further proposal fences more and has the same number.
    fn promise(&self, record: &GroupRecord, proposed: &Members, seen: &Seen) -> Step {
        // Members and those who join are to reach each other before anybody counts on it.
        let mut new = proposed
            .iter()
            .filter(|&(slot, generation)| record.members.get(slot) != Some(generation));
        let reached = |(&slot, &generation): (&u32, &u32)| {
            slot == self.slot || seen.connected.contains(&(slot, generation))
        };
        if self.applied == 0 {
            return match proposed.iter().all(reached) {
                true => Step::Promise(Promise { last: None }),
                false => Step::Wait,
            };
        }
        if !new.all(reached) {
            return Step::Wait;
        }
        let number = match (self.promised, self.limit) {
            (Some((_, promise)), _) => promise,
            (None, Limit::Open) => return Step::Close,
            (None, Limit::Closed) => return Step::Limit(seen.started),
            (None, Limit::UpTo(last)) => Promise { last: Some(last) },
        };
        let leaving: BTreeSet<u32> = record
            .members
            .iter()
            .filter(|&(slot, generation)| proposed.get(slot) != Some(generation))
            .filter(|&(&slot, &generation)| !seen.leaves.contains_key(&(slot, generation)))
            .map(|(&slot, _)| slot)
            .filter(|slot| !self.fenced.contains(slot))
            .collect();
        match leaving.is_empty() {
            true => Step::Promise(number),
            false => Step::Fence(leaving),
        }
    }

    /// B2: whom a new proposal would keep and take in; none while the record is as it should be.
    ///
    /// For a view for which a proposal is open it only removes: who was fenced cannot come back in it.
    fn proposal(&self, record: &GroupRecord, seen: &Seen) -> Option<Members> {
        if self.applied == 0 {
            return self.refound(record, seen);
        }
        if self.applied != record.epoch {
            return None;
        }
        if let Some(set) = record.proposed.as_ref().filter(|set| !self.is_in(set)) {
            // Those who were to go on without this rank have all died. It goes on alone: others who are left may have fenced it.
            let nobody = set
                .iter()
                .all(|(&slot, &generation)| seen.is_dead((slot, generation)));
            return nobody.then(|| Members::from([(self.slot, self.generation)]));
        }
        let now = record.proposed.as_ref().unwrap_or(&record.members);
        let living: BTreeSet<u32> = seen.living(now).into_keys().collect();
        let kept = seen.suspicions.kept(&living);
        let mut next: Members = now
            .iter()
            .filter(|(slot, _)| kept.contains(slot))
            .map(|(&slot, &generation)| (slot, generation))
            .collect();
        if record.proposed.is_none() {
            // J1: a slot that is taken is dropped by one view and given by a later one.
            for (slot, generation) in seen.living(&seen.joining) {
                if !record.members.contains_key(&slot) && !record.was_dropped(slot, generation) {
                    next.insert(slot, generation);
                }
            }
        }
        (next != *now).then_some(next)
    }

    /// Nobody of the view lives, so those who ask found the group anew: their memory is zero, and no call of the old view is
    /// theirs. While somebody lives whom a proposal names, that rank goes on.
    fn refound(&self, record: &GroupRecord, seen: &Seen) -> Option<Members> {
        if !seen.living(&record.members).is_empty() {
            return None;
        }
        let next = match &record.proposed {
            Some(set) if self.is_in(set) => seen.living(set),
            Some(set) if !seen.living(set).is_empty() => return None,
            _ => seen.living(&seen.joining),
        };
        (self.is_in(&next) && record.proposed.as_ref() != Some(&next)).then_some(next)
    }
}

impl Seen {
    /// Whether it has ended, and does not only want to leave.
    fn is_dead(&self, who: (u32, u32)) -> bool {
        self.gone.contains(&who) && !self.leaves.contains_key(&who)
    }

    /// Those of `members` that are not gone.
    fn living(&self, members: &Members) -> Members {
        let lives =
            |(slot, generation): &(&u32, &u32)| !self.gone.contains(&(**slot, **generation));
        let living = members.iter().filter(lives);
        living
            .map(|(&slot, &generation)| (slot, generation))
            .collect()
    }
}
