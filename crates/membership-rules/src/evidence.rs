//! Evidence: what a rank concludes from a look. These are its clocks, its row, and the ranks that are gone.
//!
//! Only the end of a process is a final conclusion. A sign of life, contact or a gap withdraws any other.

use std::time::Duration;

use crate::clocks::{Bounds, Clock, LOOKS, Span, rescale};
use crate::look::{Look, Own, Row};
use crate::record::Record;
use crate::rulebook::Rulebook;
use crate::slots::Slots;

/// The rules, with their bounds.
#[derive(Clone, Debug)]
pub struct Rules<S, B = ()> {
    /// The bounds of the clocks.
    pub bounds: Bounds<S>,
    /// The rules that a model may leave out. A group follows all of them.
    pub book: B,
}

impl<S> Rules<S> {
    /// Returns all rules, with these bounds.
    pub const fn new(bounds: Bounds<S>) -> Self {
        Self { bounds, book: () }
    }
}

impl<S: Span, B: Rulebook> Rules<S, B> {
    /// Returns whether this look comes after a gap. Nothing is concluded from the time before a gap.
    fn is_gap(&self, look: &Look<S>) -> bool {
        self.book.is_own_gap(look.passed, self.bounds.between)
            || self.book.is_store_gap(look.call, self.bounds.call)
    }

    /// Clocks, evidence: moves the clocks of `own` on to this look. Returns the slots that this rank meets.
    pub fn observe(&self, own: &mut Own<S>, record: &Record, look: &Look<S>) -> Slots {
        let gap = self.is_gap(look);
        // A call without an answer takes time like any other call.
        let raw = look.passed.max(look.call);
        let passed = if gap { S::default() } else { raw };
        if gap {
            own.unheard.clear();
            own.apart.clear();
        }
        self.observe_proposal(own, record, if gap { None } else { Some(passed) }, raw);
        let members = record.slots();
        let open = record.open.as_ref();
        let mut near = open.map_or_else(|| members.clone(), |open| members.with(&open.all()));
        // A newcomer's slot may be that of a member, which has to be gone before the newcomer founds anew.
        if own.is_member(record) || !members.contains(own.slot) {
            near.remove(own.slot);
        }
        let parted = record.parted.of(own.slot);
        let still = open.is_some() || !own.is_current(record);
        let mut meets = Slots::default();
        // A rank counts as met for the stall bound after its last word. While no word of any member arrives, a missing word says nothing.
        let others = members.without(&own.broken);
        let hears = self.book.is_fresh(&look.heard.and(&others));
        own.unheard.retain(|slot, _| near.contains(*slot));
        own.apart.retain(|slot, _| near.contains(*slot));
        for slot in near.iter() {
            let contact = look.contact.contains(slot) && look.calls;
            self.observe_life(own, slot, look, passed);
            let theirs = look.rows.get(&slot);
            let behind = look.behind || theirs.is_some_and(|row| row.behind);
            let waits = self.book.waits_for_calls(behind);
            let broken = own.broken.contains(slot);
            let fails = if parted.contains(slot) {
                (broken || !own.connected.contains(slot)) && !waits
            } else {
                broken || look.silent.contains(slot)
            };
            if !fails && contact && members.contains(slot) {
                meets.insert(slot);
            }
            if !fails || still || !members.contains(slot) {
                own.apart.remove(&slot);
            } else if hears && passed > S::default() {
                let clock = own.apart.entry(slot).or_default();
                clock.look(passed, self.bounds.stalled);
            }
        }
        if !self.book.may_accuse(&meets) {
            own.apart.clear();
        }
        meets
    }

    /// Moves the clock of the open proposal on. The clock starts anew with each proposal, with this rank's promise, and after a gap.
    fn observe_proposal(&self, own: &mut Own<S>, record: &Record, passed: Option<S>, raw: S) {
        let (of, time) = own.unanswered;
        own.unanswered = match (&record.open, passed) {
            (None, _) => (record.number, S::default()),
            (Some(_), _) if of != record.number => (record.number, S::default()),
            (Some(_), passed) => {
                let bound = self.bounds.unanswered;
                (of, self.book.unanswered(time, passed, raw, bound))
            }
        };
    }

    fn observe_life(&self, own: &mut Own<S>, slot: u32, look: &Look<S>, passed: S) {
        let bound = self.unheard_bound(own);
        let before = own.unheard.get(&slot).copied();
        let counted = before.is_some_and(|clock| counts(&clock, bound));
        if !self.book.may_be_withdrawn(counted) {
            return;
        }
        if look.holders.contains(slot) || self.book.is_heard(look, slot) {
            own.unheard.remove(&slot);
        } else if self.book.has_written(look, slot) {
            // The rank lived after the last look, but this look misses it.
            own.unheard.insert(slot, Clock::first());
        } else {
            let clock = self.book.missed(before, passed, bound);
            own.unheard.insert(slot, clock);
        }
    }

    /// Returns how long a rank must not be heard to be unheard. A newcomer founds the group anew only after `found`.
    fn unheard_bound(&self, own: &Own<S>) -> S {
        if own.applied == 0 {
            self.bounds.found
        } else {
            self.bounds.unheard
        }
    }

    /// Returns what this rank tells the others. `meets`: the result of [`Rules::observe`].
    pub fn row(&self, own: &Own<S>, record: &Record, look: &Look<S>, meets: Slots) -> Row {
        let bound = self.unheard_bound(own);
        let unheard = own.unheard.iter();
        let overdue = own.apart.iter();
        let mut broken = Slots::default();
        if own.is_current(record) {
            broken = own.broken.and(&record.slots());
            broken.take_away(&record.parted.of(own.slot));
        }
        let mut ended = Slots::default();
        if self.tells_ends(own, record, look) {
            // For a newcomer's slot, the next look may show another generation.
            ended = look.ended.and(&record.slots());
        }
        Row {
            ended,
            unheard: unheard
                .filter(|(_, clock)| counts(clock, bound))
                .map(|(slot, _)| *slot)
                .collect(),
            overdue: overdue
                .filter(|(_, clock)| clock.time >= self.bounds.stalled)
                .map(|(slot, _)| *slot)
                .collect(),
            broken,
            meets,
            connected: own.connected.clone(),
            unproven: own.unproven.without(&own.connected),
            behind: look.behind && !record.parted.of(own.slot).is_empty(),
        }
    }

    /// Evidence: returns whether this rank reports ends of processes of its machine. The lowest living rank of the machine does. The other
    /// ranks conclude only from what they see themselves.
    fn tells_ends(&self, own: &Own<S>, record: &Record, look: &Look<S>) -> bool {
        let beside = look.beside.and(&look.holders).and(&record.slots());
        let lowest = beside.without(&look.ended).first();
        lowest.is_none_or(|lowest| own.slot <= lowest)
    }

    /// Returns the slots with which this rank connects anew now: newcomers, all members if this rank is itself a newcomer, and the ranks
    /// from which the view parts it.
    pub fn to_connect(&self, own: &Own<S>, record: &Record, look: &Look<S>) -> Slots {
        let mut all: Slots = self.book.newcomers(look, record).into_keys().collect();
        if own.applied == 0 {
            all.add(&record.slots());
        }
        if own.is_current(record) {
            all.add(&record.parted.of(own.slot));
        }
        all.remove(own.slot);
        all
    }

    /// Evidence: returns the slots that are gone. A member is gone if its process has ended, or if this rank and every other member with a
    /// lease have not heard of it. Members that this rank itself gives up do not count as others. This rank never counts as gone. If this
    /// rank is a newcomer, the member that had its slot may count as gone.
    pub fn gone(&self, own: &Own<S>, record: &Record, look: &Look<S>) -> Slots {
        let empty = Row::default();
        let row = |slot: &u32| look.rows.get(slot).unwrap_or(&empty);
        let mut ended = look.ended.clone();
        // A rank that does not act has read the rows of few ranks.
        for (slot, row) in &look.rows {
            if look.holders.contains(*slot) && record.members.contains_key(*slot) {
                ended.add(&row.ended);
            }
        }
        ended.add(&self.book.ended_by_asks(record, look));
        let mut unheard = row(&own.slot).unheard.clone();
        if !unheard.is_empty() {
            let given_up = unheard.with(&ended);
            let seconds = look.holders.and(&record.slots()).without(&given_up);
            for second in seconds.iter().filter(|slot| *slot != own.slot) {
                self.book.second(&mut unheard, &row(&second).unheard);
            }
        }
        unheard.add(&ended);
        if own.is_member(record) {
            unheard.remove(own.slot);
        }
        unheard
    }
}

impl<B> Rules<Duration, B> {
    /// Takes over the bounds of the store's present pace. When the store has become faster, clocks have counted time in which others could
    /// not have answered. So each clock keeps the part of its bound that it has run for.
    pub fn keep_pace(&mut self, own: &mut Own<Duration>, bounds: Bounds<Duration>) {
        let before = std::mem::replace(&mut self.bounds, bounds);
        if own.applied != 0 {
            for clock in own.unheard.values_mut() {
                clock.time = rescale(clock.time, before.unheard, bounds.unheard);
            }
        }
        for clock in own.apart.values_mut() {
            clock.time = rescale(clock.time, before.stalled, bounds.stalled);
        }
        let unanswered = &mut own.unanswered.1;
        *unanswered = rescale(*unanswered, before.unanswered, bounds.unanswered);
    }
}

/// Returns whether the clock has run long enough, and over enough looks, for its rank to count as unheard.
fn counts<S: Span>(clock: &Clock<S>, bound: S) -> bool {
    clock.time >= bound && clock.looks >= LOOKS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::Pace;
    use crate::members::Members;
    use crate::record::Proposal;

    const LEASE: Duration = Duration::from_secs(2);
    /// A time that is shorter than any bound.
    const QUICK: Duration = Duration::from_millis(10);

    /// Rank 0 of three, with the pace of a store.
    struct Watcher {
        rules: Rules<Duration>,
        pace: Pace,
        own: Own<Duration>,
        record: Record,
    }

    impl Watcher {
        fn new(record: Record) -> Self {
            let bounds = Bounds {
                between: LEASE,
                call: LEASE,
                unheard: LEASE,
                stalled: 2 * LEASE,
                unanswered: 2 * LEASE,
                found: LEASE,
            };
            Self {
                rules: Rules::new(bounds),
                pace: Pace::default(),
                own: Own {
                    applied: 1,
                    ..Own::newcomer(0, 1)
                },
                record,
            }
        }

        /// Makes a look that finds nothing of rank 1, after a call that has taken `call`. Returns the row of this rank.
        fn look(&mut self, call: Duration) -> Row {
            self.pace.took(call);
            let rows = Row {
                meets: [0].into_iter().collect(),
                ..Row::default()
            };
            let look = Look {
                passed: call + QUICK,
                call,
                holders: [0, 2].into_iter().collect(),
                heard: [2].into_iter().collect(),
                contact: [2].into_iter().collect(),
                silent: [1].into_iter().collect(),
                calls: true,
                rows: [(2, rows)].into(),
                ..Look::default()
            };
            let meets = self.rules.observe(&mut self.own, &self.record, &look);
            let configured = self.rules.bounds;
            let configured = Bounds {
                stalled: 2 * LEASE,
                unanswered: 2 * LEASE,
                ..configured
            };
            let bounds = self.pace.bounds(LEASE, &configured);
            self.rules.keep_pace(&mut self.own, bounds);
            self.rules.row(&self.own, &self.record, &look, meets)
        }

        /// Makes the store slower step by step, so that no call is a gap, and keeps it slow for some calls.
        fn slow(&mut self) {
            for call in [600, 1100, 2100, 4100, 4900, 4900] {
                let row = self.look(Duration::from_millis(call));
                assert!(!row.accuses(), "calls of {call} ms: {row:?}");
            }
        }

        fn is_late(&self) -> bool {
            self.own.unanswered.1 >= self.rules.bounds.unanswered
        }
    }

    /// Makes quick looks until the slow calls are forgotten. They take less time than the shortest bound.
    fn quick(watcher: &mut Watcher) {
        for _ in 0..20 {
            let row = watcher.look(QUICK);
            assert!(!row.accuses(), "{row:?}");
            assert!(!watcher.is_late());
        }
    }

    #[test]
    fn what_has_passed_while_the_store_was_slow_counts_for_little_behind_it() {
        let founded = Record::founded(Members::from([(0, 1), (1, 1), (2, 1)]));
        let mut watcher = Watcher::new(founded.clone());
        watcher.slow();
        assert!(watcher.own.unheard[&1].time > 3 * LEASE);
        quick(&mut watcher);
        let looks = (0..400).find(|_| watcher.look(QUICK).unheard.contains(1));
        assert!(looks.is_some(), "it is unheard some time");
        let overdue = (0..400).find(|_| watcher.look(QUICK).overdue.contains(1));
        assert!(overdue.is_some(), "and without contact");

        let open = Proposal {
            keep: founded.slots(),
            ..Proposal::default()
        };
        let mut watcher = Watcher::new(founded.propose(open).unwrap());
        watcher.slow();
        assert!(watcher.own.unanswered.1 > 4 * LEASE);
        quick(&mut watcher);
        let late = (0..600).find(|_| {
            watcher.look(QUICK);
            watcher.is_late()
        });
        assert!(late.is_some(), "it is late some time");
    }
}
