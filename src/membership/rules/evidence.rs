//! Evidence: the contents of a look, and what a rank concludes from it: clocks, its row, and the ranks that are gone.
//!
//! No conclusion but the end of a process is final: a sign of life, contact or a gap withdraws it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::clocks::{Bounds, Clock, LOOKS, Span, rescale};
use super::named::{Rule, Rules};
use super::record::{Members, Promise, Record};
use super::slots::Slots;

/// Calls that a rank's device may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// None.
    Closed,
    /// Those up to this one.
    UpTo(u32),
    /// All.
    Open,
}

/// Whether a rank wants to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It stays.
    No,
    /// It wants to, and has not said so in this view.
    Wants,
    /// It has said so: its limit is its last call.
    Said,
}

/// What a rank knows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own<S> {
    /// The slot of this rank in the team.
    pub(crate) slot: u32,
    /// The generation of the rank that this process is, from 1 on.
    pub(crate) generation: u32,
    /// Epoch of the newest view that its device has; 0: none yet.
    pub(crate) applied: u32,
    /// Calls that its device may start.
    pub(crate) limit: Limit,
    /// The promise for the view behind `applied`, and the newest proposal for which it was given.
    pub(crate) promised: Option<(u64, Promise)>,
    /// Ranks to which its QPs are in Err for the change under way.
    pub(crate) fenced: Slots,
    /// Ranks to which a QP is in Err.
    pub(crate) broken: Slots,
    /// Ranks to which its QPs were made anew: newcomers, and those that it is parted from.
    pub(crate) connected: Slots,
    /// Ranks to which it has made QPs anew that carry nothing: of newcomers and of members that a newcomer has found.
    pub(crate) unproven: Slots,
    /// Clocks of ranks unheard.
    pub(crate) unheard: BTreeMap<u32, Clock<S>>,
    /// Clocks of ranks without contact.
    pub(crate) apart: BTreeMap<u32, Clock<S>>,
    /// The proposal that its clock runs for, and for how long it is unanswered.
    pub(crate) unanswered: (u64, S),
    /// Whether it has proposed itself alone in this view (P3).
    pub(crate) solo: bool,
    /// Whether it wants to go.
    pub(crate) leaving: Leaving,
}

/// What a rank tells the others: one key that it writes when it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Ranks of which it has heard nothing for U.
    pub(crate) unheard: Slots,
    /// Members to which a QP is in Err, though nothing parts them.
    pub(crate) broken: Slots,
    /// Members without contact for the stall bound.
    pub(crate) overdue: Slots,
    /// Members of which a word has arrived since the last look, nothing being broken.
    pub(crate) meets: Slots,
    /// Ranks to which its QPs were made anew, and have carried a write each way.
    pub(crate) connected: Slots,
    /// Ranks to which they were made anew, and have carried none for twice as long as an HCA tries.
    pub(crate) unproven: Slots,
    /// Members whose process it has seen to end, if it is the rank that reports ends for its machine.
    pub(crate) ended: Slots,
    /// Whether the view parts it from members, and it has calls to make before that view: till then it connects with none of them.
    pub(crate) behind: bool,
}

impl Row {
    /// Whether it says something against others, by which they part or go.
    pub(crate) fn accuses(&self) -> bool {
        let against = [&self.unheard, &self.broken, &self.overdue, &self.ended];
        !against.into_iter().all(Slots::is_empty)
    }
}

/// A rank that asks to be taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Whether this generation holds its lease.
    pub(crate) holds: bool,
    /// The row that this generation has written.
    pub(crate) row: Row,
}

/// What a rank has before it when it looks. All but the times is by slot of the generation that the record names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look<S> {
    /// Since the end of the look before.
    pub(crate) passed: S,
    /// The slowest store call since then; one that failed counts as longer than any bound.
    pub(crate) call: S,
    /// Slots that hold a lease; this rank has just renewed its own.
    pub(crate) holders: Slots,
    /// Slots whose `takings` have grown since the last look, or that have written a proposal or promise since then.
    pub(crate) wrote: Slots,
    /// Slots from which a word has arrived since the last look, or to which a QP has completed something since then.
    pub(crate) heard: Slots,
    /// Slots with which this happened within the stall bound: calls that wait for a third rank send nothing for a while.
    pub(crate) contact: Slots,
    /// Whether this rank makes calls. The words of others that arrive at one that makes none show that they live, and not that
    /// they exchange anything with it.
    pub(crate) calls: bool,
    /// Slots for which calls wait, and from which nothing has come since the last look.
    pub(crate) silent: Slots,
    /// Processes of this machine seen to end, of members and of those that the open proposal takes in.
    pub(crate) ended: Slots,
    /// Ranks on the machine of this one, itself among them: all of them see the same processes end.
    pub(crate) beside: Slots,
    /// Rows of members that hold a lease. The own one is put in its place by [`Rules::observe`]'s result.
    pub(crate) rows: BTreeMap<u32, Row>,
    /// The ranks that ask, by slot and generation.
    pub(crate) asks: BTreeMap<(u32, u32), Ask>,
    /// Promises for the open proposal.
    pub(crate) promises: BTreeMap<u32, Promise>,
    /// The last calls of members that have said goodbye in this view.
    pub(crate) goodbyes: BTreeMap<u32, u32>,
    /// Whether the device has a place for the view of the record: no call needs the oldest of those that it holds.
    pub(crate) has_place: bool,
    /// Whether this rank has calls to make before the view of the record.
    pub(crate) behind: bool,
    /// Whether this rank and all living members are through with every call before the view of the record.
    pub(crate) through: bool,
    /// The last call that the device has started.
    pub(crate) started: u32,
    /// A rank is connected with a later generation of this newcomer's slot.
    pub(crate) overtaken: bool,
}

impl<S: Span> Own<S> {
    /// A rank that asks to be taken in.
    pub(crate) fn newcomer(slot: u32, generation: u32) -> Self {
        Self {
            slot,
            generation,
            applied: 0,
            limit: Limit::Closed,
            promised: None,
            fenced: Slots::default(),
            broken: Slots::default(),
            connected: Slots::default(),
            unproven: Slots::default(),
            unheard: BTreeMap::new(),
            apart: BTreeMap::new(),
            unanswered: (0, S::default()),
            solo: false,
            leaving: Leaving::No,
        }
    }

    /// Whether it is a member of the view of `record`.
    pub(crate) fn is_member(&self, record: &Record) -> bool {
        record.is_member(self.slot, self.generation)
    }

    /// Whether the newest view is in force here.
    pub(crate) fn is_current(&self, record: &Record) -> bool {
        self.applied == record.epoch
    }

    /// Whether the view to be has this very rank, and it has promised the open proposal.
    pub(crate) fn has_promised(&self, record: &Record) -> bool {
        self.promised.is_some_and(|(of, _)| of == record.number)
    }

    /// Whether the proposal that is open names it.
    pub(crate) fn is_proposed(&self, record: &Record) -> bool {
        let Some(open) = &record.open else {
            return false;
        };
        let comes = open.takes.get(self.slot) == Some(self.generation);
        comes || self.is_member(record) && open.keep.contains(self.slot)
    }
}

impl<S> Look<S> {
    /// The ranks that ask, hold their leases and may come in by slot and generation. P6: the rule decides on each generation by
    /// itself.
    pub(super) fn newcomers(
        &self,
        record: &Record,
        rules: &Rules<S>,
    ) -> BTreeMap<u32, (u32, &Row)> {
        let mut all = BTreeMap::new();
        for (&(slot, generation), ask) in &self.asks {
            if record.members.contains_key(slot) || record.was_dropped(slot, generation) {
                continue;
            }
            if ask.holds {
                all.insert(slot, (generation, &ask.row));
            } else if !rules.follows(Rule::EachGeneration) {
                all.remove(&slot);
            }
        }
        all
    }
}

impl<S: Span> Rules<S> {
    /// Whether this look lies behind a gap: nothing is concluded from the time before it.
    fn is_gap(&self, look: &Look<S>) -> bool {
        self.follows(Rule::OwnGap) && look.passed > self.bounds.between
            || self.follows(Rule::StoreGap) && look.call > self.bounds.call
    }

    /// Sections 3 and 4: moves the clocks of `own` on to this look. Returns the slots that this rank meets.
    pub(crate) fn observe(&self, own: &mut Own<S>, record: &Record, look: &Look<S>) -> Slots {
        let gap = self.is_gap(look);
        // A call without an answer takes time as any other.
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
        // Of a newcomer the slot may be that of a member, which has to be gone before the newcomer founds anew.
        if own.is_member(record) || !members.contains(own.slot) {
            near.remove(own.slot);
        }
        let parted = record.parted.of(own.slot);
        let still = open.is_some() || !own.is_current(record);
        let mut meets = Slots::default();
        // A rank counts as met for the stall bound behind its last word. While no word of any member arrives, that says nothing.
        let others = members.without(&own.broken);
        let hears = !self.follows(Rule::Fresh) || !look.heard.and(&others).is_empty();
        own.unheard.retain(|slot, _| near.contains(*slot));
        own.apart.retain(|slot, _| near.contains(*slot));
        for slot in near.iter() {
            let contact = look.contact.contains(slot) && look.calls;
            self.observe_life(own, slot, look, passed);
            let theirs = look.rows.get(&slot);
            let behind = look.behind || theirs.is_some_and(|row| row.behind);
            let waits = behind && self.follows(Rule::BehindSaysNothing);
            let broken = own.broken.contains(slot);
            let fails = match parted.contains(slot) {
                true => (broken || !own.connected.contains(slot)) && !waits,
                false => broken || look.silent.contains(slot),
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
        if meets.is_empty() && self.follows(Rule::Lonely) {
            own.apart.clear();
        }
        meets
    }

    /// The clock of the open proposal: it starts anew with each, with this rank's promise, and behind a gap.
    fn observe_proposal(&self, own: &mut Own<S>, record: &Record, passed: Option<S>, raw: S) {
        let (of, time) = own.unanswered;
        own.unanswered = match (&record.open, passed) {
            (None, _) => (record.number, S::default()),
            (Some(_), _) if of != record.number => (record.number, S::default()),
            (Some(_), _) if !self.follows(Rule::AnswerGap) => {
                (of, time.plus(raw).min(self.bounds.unanswered))
            }
            (Some(_), None) => (of, S::default()),
            (Some(_), Some(passed)) => (of, time.plus(passed).min(self.bounds.unanswered)),
        };
    }

    fn observe_life(&self, own: &mut Own<S>, slot: u32, look: &Look<S>, passed: S) {
        let bound = self.unheard_bound(own);
        let veto = self.follows(Rule::Veto) && look.heard.contains(slot);
        let wrote = self.follows(Rule::Takings) && look.wrote.contains(slot);
        let clock = own.unheard.get(&slot);
        let counted = clock.is_some_and(|clock| counts(clock, bound));
        if counted && !self.follows(Rule::Withdrawn) {
            return;
        }
        if look.holders.contains(slot) || veto {
            own.unheard.remove(&slot);
            return;
        }
        let first = Clock {
            time: S::default(),
            looks: 1,
        };
        if wrote {
            // It lived since the last look, and this one misses it.
            own.unheard.insert(slot, first);
            return;
        }
        let blank = match self.follows(Rule::FirstLook) {
            true => first,
            false => Clock {
                time: passed.min(bound),
                looks: LOOKS,
            },
        };
        let clock = own.unheard.entry(slot);
        let clock = clock.and_modify(|clock| clock.look(passed, bound));
        clock.or_insert(blank);
        if !self.follows(Rule::Unheard) {
            let (time, looks) = (bound, LOOKS);
            own.unheard.insert(slot, Clock { time, looks });
        }
    }

    /// A newcomer founds anew only behind `found`.
    fn unheard_bound(&self, own: &Own<S>) -> S {
        match own.applied {
            0 => self.bounds.found,
            _ => self.bounds.unheard,
        }
    }

    /// What this rank tells the others, `meets` being what [`Rules::observe`] has returned.
    pub(crate) fn row(&self, own: &Own<S>, record: &Record, look: &Look<S>, meets: Slots) -> Row {
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
            // Of a newcomer the next look may show another.
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

    /// Section 4: whether this rank reports ends of processes of its machine, which the lowest living rank of the machine does. The
    /// others go by what they see themselves.
    fn tells_ends(&self, own: &Own<S>, record: &Record, look: &Look<S>) -> bool {
        let beside = look.beside.and(&look.holders).and(&record.slots());
        let lowest = beside.without(&look.ended).first();
        lowest.is_none_or(|lowest| own.slot <= lowest)
    }

    /// The slots with which this rank connects anew now: newcomers (if it is one itself, all ranks), and those from which the view
    /// parts it.
    pub(crate) fn to_connect(&self, own: &Own<S>, record: &Record, look: &Look<S>) -> Slots {
        let mut all: Slots = look.newcomers(record, self).into_keys().collect();
        if own.applied == 0 {
            all.add(&record.slots());
        }
        if own.is_current(record) {
            all.add(&record.parted.of(own.slot));
        }
        all.remove(own.slot);
        all
    }

    /// Section 4: the slots that are gone. A member is gone if its process has ended, or if this rank and every other member with a
    /// lease have not heard of it. Members that this rank gives up itself do not count among the others. This rank never counts as
    /// gone. For a newcomer, the member that had its slot may.
    pub(crate) fn gone(&self, own: &Own<S>, record: &Record, look: &Look<S>) -> Slots {
        let empty = Row::default();
        let row = |slot: &u32| look.rows.get(slot).unwrap_or(&empty);
        let mut ended = look.ended.clone();
        // A rank that does not act has the rows of few.
        for (slot, row) in &look.rows {
            if look.holders.contains(*slot) && record.members.contains_key(*slot) {
                ended.add(&row.ended);
            }
        }
        if !self.follows(Rule::LaterIsNothing) {
            let later = |(slot, generation): &&(u32, u32)| {
                let member = record.members.get(*slot);
                member.is_some_and(|member| member < *generation)
            };
            ended.add(&look.asks.keys().filter(later).map(|it| it.0).collect());
        }
        let mut unheard = row(&own.slot).unheard.clone();
        if self.follows(Rule::Seconded) && !unheard.is_empty() {
            let given_up = unheard.with(&ended);
            let seconds = look.holders.and(&record.slots()).without(&given_up);
            for second in seconds.iter().filter(|slot| *slot != own.slot) {
                unheard.retain(&row(&second).unheard);
            }
        }
        unheard.add(&ended);
        if own.is_member(record) {
            unheard.remove(own.slot);
        }
        unheard
    }
}

impl Rules<Duration> {
    /// Follows the pace of the store. When the store has become faster, clocks have counted time in which others could not have
    /// answered. So each clock keeps the part of its bound that it has run for.
    pub(crate) fn keep_pace(&mut self, own: &mut Own<Duration>, bounds: Bounds<Duration>) {
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

/// Whether a rank counts as unheard: long enough, and in enough looks.
fn counts<S: Span>(clock: &Clock<S>, bound: S) -> bool {
    clock.time >= bound && clock.looks >= LOOKS
}

/// Those of `members` that `slots` names.
pub(super) fn of_slots(members: &BTreeMap<u32, (u32, &Row)>, slots: &Slots) -> Members {
    let named = members.iter().filter(|it| slots.contains(*it.0));
    named
        .map(|(slot, (generation, _))| (*slot, *generation))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::rules::clocks::Pace;
    use crate::membership::rules::record::Proposal;

    const LEASE: Duration = Duration::from_secs(2);
    /// Less than any bound.
    const QUICK: Duration = Duration::from_millis(10);

    /// Rank 0 of three, whose store has taken `call` for each of its last calls.
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

        /// A look that finds nothing of rank 1, behind a call that has taken `call`, and what this rank says then.
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

        /// The store becomes slower step by step, so that no call is a gap, and stays so for some calls.
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

    /// Until the slow calls are forgotten, and for no longer than the shortest bound.
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
