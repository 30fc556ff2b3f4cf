//! Decides what a rank does next, by P1 to P10 and the rules of leaving: one pure function over its look.

use std::collections::BTreeMap;

use crate::choice::choice;
use crate::clocks::Span;
use crate::evidence::Rules;
use crate::look::{Leaving, Limit, Look, Own, Row};
use crate::members::Members;
use crate::record::{Proposal, Record, later, newer};
use crate::rulebook::Rulebook;
use crate::slots::{Pairs, Slots};

/// What a rank does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waits until something changes.
    Wait,
    /// Opens this proposal in the record that was seen.
    Propose(Proposal),
    /// P4: closes the calls, executes a SeqCst fence, reads which call has started and sets that as the limit. Then moves the QPs to these
    /// ranks to Err. Then writes [`Own::promise`].
    Promise(Slots),
    /// Makes the open proposal the view, from this call on.
    Commit(u32),
    /// Lets the device start calls up to this one.
    Limit(u32),
    /// Gives the device the view of the record, and then lets it start any call.
    View,
    /// Says that this call is the rank's last one, and starts none after it.
    Goodbye(u32),
    /// Ends the calls and QPs: the view does not have this rank, or this rank is the last one and wants to leave.
    End,
    /// P3: ends, because a proposal leaves this rank out again and every rank in that proposal is gone.
    GiveUp,
}

/// What a rank would propose.
enum Wish {
    Nothing,
    This(Proposal),
    GiveUp,
}

impl<S: Span, B: Rulebook> Rules<S, B> {
    /// Returns the next step. `look.rows` has this rank's own row, which [`Rules::row`] has made from this look.
    pub fn next(&self, own: &Own<S>, record: &Record, look: &Look<S>) -> Step {
        let member = own.is_member(record);
        // P10.
        if record.was_dropped(own.slot, own.generation) {
            return self.end(own, record, look);
        }
        if member && !own.is_current(record) {
            return apply(own, record, look);
        }
        // P6.
        if !member && own.applied == 0 && look.overtaken {
            return Step::End;
        }
        if let Some(step) = leave(own, record, look) {
            return step;
        }
        let gone = self.gone(own, record, look);
        match self.wish(own, record, look, &gone) {
            Wish::This(proposal) => return Step::Propose(proposal),
            Wish::GiveUp => return Step::GiveUp,
            Wish::Nothing => {}
        }
        let Some(open) = record.open.as_ref().filter(|_| own.is_proposed(record)) else {
            return Step::Wait;
        };
        if !own.has_promised(record) {
            return self.promise(own, record, open, look);
        }
        self.commit(record, open, look)
    }

    /// P10: returns the next step of a rank that is not in the view. A rank that the others dropped ends at once. A leaver first makes the
    /// calls before the view with the others.
    fn end(&self, own: &Own<S>, record: &Record, look: &Look<S>) -> Step {
        let left = record.left.get(&own.slot);
        let Some((_, first)) = left.filter(|left| left.0 == own.generation) else {
            return Step::End;
        };
        let last = Limit::UpTo(first.wrapping_sub(1));
        if own.limit != last {
            return Step::Limit(first.wrapping_sub(1));
        }
        if self.book.leaver_ends(look.through) {
            Step::End
        } else {
            Step::Wait
        }
    }

    /// P4: returns the promise, or a wait before it. It never waits for QPs: a pair that broke meanwhile is broken in the new view, and the
    /// next view parts it.
    fn promise(&self, own: &Own<S>, record: &Record, open: &Proposal, look: &Look<S>) -> Step {
        if !own.is_member(record) {
            // This newcomer makes the pairs that it has not proven anew when the view stands.
            return Step::Promise(open.parts.of(own.slot));
        }
        // Newcomers promise first: no member closes its calls before all newcomers have promised.
        if self.book.waits_for_newcomers(open, &look.promises)
            || self.book.waits_for_qps(own, record, open)
        {
            return Step::Wait;
        }
        Step::Promise(self.book.fence(own.slot, record, open))
    }

    /// P5: returns the commit if all have promised. The view begins after every call that an old member has started or may still start.
    fn commit(&self, record: &Record, open: &Proposal, look: &Look<S>) -> Step {
        let needed = open.all();
        let promised: Slots = look.promises.keys().copied().collect();
        if !self.book.have_promised(&needed, &promised) {
            return Step::Wait;
        }
        let kept = open.keep.iter();
        let promises = kept.filter_map(|slot| look.promises.get(&slot)?.last);
        let lasts = promises.chain(self.book.last_of_leavers(open));
        Step::Commit(self.book.first_call(record.first, lasts))
    }

    /// P1 to P3: returns what this rank would propose.
    fn wish(&self, own: &Own<S>, record: &Record, look: &Look<S>, gone: &Slots) -> Wish {
        if own.applied == 0 {
            return self.found(own, record, look, gone);
        }
        let Some(open) = &record.open else {
            return self
                .first(own, record, look, gone)
                .map_or(Wish::Nothing, Wish::This);
        };
        if !own.is_proposed(record) {
            return self.left_out(own, open, gone);
        }
        self.smaller(own, record, open, look, gone)
            .map_or(Wish::Nothing, Wish::This)
    }

    /// P6: returns the proposal of a newcomer that no longer hears any member of the view: the ranks that ask found the group anew. If an
    /// open proposal takes in a newcomer that lives, that newcomer proposes instead.
    fn found(&self, own: &Own<S>, record: &Record, look: &Look<S>, gone: &Slots) -> Wish {
        // A generation waits while an earlier one of its slot asks as well.
        let first = look
            .asks
            .keys()
            .all(|(slot, of)| *slot != own.slot || *of == own.generation);
        if !record.slots().is_subset(gone) || !first {
            return Wish::Nothing;
        }
        let only = |takes| {
            Wish::This(Proposal {
                by: own.slot,
                takes,
                ..Proposal::default()
            })
        };
        if let Some(open) = &record.open {
            // A newcomer may have the slot of a member. So what counts is the newcomer's own lease, which it holds while it asks.
            let lives = |slot: u32, generation: u32| {
                let ask = look.asks.get(&(slot, generation));
                slot == own.slot || ask.is_some_and(|ask| ask.holds)
            };
            let mut living = open.takes.clone();
            living.retain(lives);
            if own.is_proposed(record) {
                let smaller = !open.keep.is_empty() || living.len() < open.takes.len();
                return if smaller { only(living) } else { Wish::Nothing };
            }
            living.remove(own.slot);
            if !living.is_empty() {
                return Wish::Nothing;
            }
        }
        let asks = self.book.newcomers(look, record);
        let mut takes = Slots::default();
        takes.insert(own.slot);
        for (&slot, (_, row)) in asks.iter().filter(|it| !gone.contains(*it.0)) {
            let joined = takes.without(&[slot].into_iter().collect());
            let both = |other: u32| {
                let theirs = asks.get(&other);
                theirs.is_some_and(|(_, theirs)| theirs.connected.contains(slot))
            };
            if joined.is_subset(&row.connected) && joined.iter().all(both) {
                takes.insert(slot);
            }
        }
        let mut takes = of_slots(&asks, &takes);
        takes.insert(own.slot, own.generation);
        only(takes)
    }

    /// P3: returns what a rank does that the open proposal leaves out. It waits, unless every rank in the proposal is gone. Then it
    /// proposes itself alone, once in each view, because others that are left out may have fenced it. A leaver does that too, and ends as
    /// the last rank of the view that it makes.
    fn left_out(&self, own: &Own<S>, open: &Proposal, gone: &Slots) -> Wish {
        if !open.all().is_subset(gone) {
            return Wish::Nothing;
        }
        if !self.book.may_go_alone(own.solo) {
            return Wish::GiveUp;
        }
        Wish::This(Proposal {
            by: own.slot,
            keep: [own.slot].into_iter().collect(),
            ..Proposal::default()
        })
    }

    /// P2: returns a smaller proposal in the place of the open one, which only loses ranks. If members go, it takes in no newcomer and
    /// unites no pair.
    fn smaller(
        &self,
        own: &Own<S>,
        record: &Record,
        open: &Proposal,
        look: &Look<S>,
        gone: &Slots,
    ) -> Option<Proposal> {
        let all = open.all();
        let comes = open.comes();
        let mut drop = gone.and(&all);
        if own.unanswered.0 == record.number && own.unanswered.1 >= self.bounds.unanswered {
            let promised: Slots = look.promises.keys().copied().collect();
            drop.add(&comes.without(&promised));
            if own.has_promised(record) {
                drop.add(&open.keep.without(&promised));
            }
        }
        drop.remove(own.slot);
        if let Some(grown) = self.book.grown(own, record, open, gone) {
            return Some(grown);
        }
        let leaves = self.leavers(own, &open.keep, look, &drop);
        let mut keep = open.keep.without(&drop);
        keep.take_away(&leaves.keys().copied().collect());
        if keep == open.keep {
            // If only newcomers are gone or have not answered, only they are taken out.
            if comes.and(&drop).is_empty() {
                return None;
            }
            let mut takes = open.takes.clone();
            takes.retain(|slot, _| !drop.contains(slot));
            return Some(Proposal {
                by: own.slot,
                parts: open.parts.inside(&open.keep.with(&takes.slots())),
                takes,
                ..open.clone()
            });
        }
        let grows = open.takes.is_empty() && record.parted.is_subset(&open.parts);
        let parts = if grows { &open.parts } else { &record.parted };
        let mut leaves = leaves;
        leaves.extend(&open.leaves);
        keep.contains(own.slot).then(|| Proposal {
            by: own.slot,
            parts: parts.inside(&keep),
            keep,
            leaves,
            ..Proposal::default()
        })
    }

    /// P1: returns the proposal of a rank when none is open. It expels ranks first; otherwise it parts pairs; otherwise it takes in
    /// newcomers.
    fn first(
        &self,
        own: &Own<S>,
        record: &Record,
        look: &Look<S>,
        gone: &Slots,
    ) -> Option<Proposal> {
        let members = record.slots();
        let mut drop = gone.and(&members);
        drop.add(&choice(&self.book, &members.without(&drop), &look.rows));
        let leaves = self.leavers(own, &members, look, &drop);
        let mut keep = members.without(&drop);
        keep.take_away(&leaves.keys().copied().collect());
        let parts = record.parted.with(&broken(&members, look));
        if keep != members {
            return keep.contains(own.slot).then(|| Proposal {
                by: own.slot,
                parts: parts.inside(&keep),
                keep,
                leaves,
                ..Proposal::default()
            });
        }
        if parts != record.parted {
            return Some(Proposal {
                by: own.slot,
                keep,
                parts,
                ..Proposal::default()
            });
        }
        self.comes(own, record, look, keep)
    }

    /// P1, P6: returns a proposal that takes in newcomers and unites pairs. A newcomer comes in if both ends of each of its pairs have said
    /// how the pair is, and if more than half of its pairs are proven. A pair is united if both ends call it connected.
    fn comes(
        &self,
        own: &Own<S>,
        record: &Record,
        look: &Look<S>,
        keep: Slots,
    ) -> Option<Proposal> {
        let holds = |slot: u32| look.rows.get(&slot).filter(|_| look.holders.contains(slot));
        let connected = |a, b| holds(a).is_some_and(|row| row.connected.contains(b));
        let mut parts = record.parted.clone();
        for (a, b) in record.parted.iter() {
            if connected(a, b) && connected(b, a) {
                parts.remove(a, b);
            }
        }
        let asks = self.book.newcomers(look, record);
        let mut ready = Slots::default();
        for &slot in asks.keys() {
            let all = keep.with(&ready);
            let Some(apart) = self.apart(slot, &all, &asks, look) else {
                continue;
            };
            if !self.book.is_larger_part(&all, &apart) {
                continue;
            }
            for other in apart.iter() {
                parts.insert(slot, other);
            }
            ready.insert(slot);
        }
        let takes = of_slots(&asks, &ready);
        (!takes.is_empty() || parts != record.parted).then(|| Proposal {
            by: own.slot,
            keep,
            takes,
            parts,
            ..Proposal::default()
        })
    }

    /// P6: returns the ranks of `all` from which the newcomer in `slot` comes in parted, because its pair with them is not proven. Returns
    /// None if the two ends of some pair have not both said how the pair is.
    fn apart(
        &self,
        slot: u32,
        all: &Slots,
        asks: &BTreeMap<u32, (u32, &Row)>,
        look: &Look<S>,
    ) -> Option<Slots> {
        let (_, own) = asks.get(&slot)?;
        let mut apart = Slots::default();
        for other in all.iter() {
            let theirs = match asks.get(&other) {
                Some((_, row)) => *row,
                None => look
                    .rows
                    .get(&other)
                    .filter(|_| look.holders.contains(other))?,
            };
            let says = |row: &Row, of: u32| {
                let proven = row.connected.contains(of);
                (proven || row.unproven.contains(of)).then_some(proven)
            };
            if !self.book.is_proven(says(own, other)?, says(theirs, slot)?) {
                apart.insert(other);
            }
        }
        Some(apart)
    }

    /// P6: returns the members that this newcomer does not reach, if they are so many that it waits.
    pub fn waits_for_reach(&self, own: &Own<S>, record: &Record) -> Option<Slots> {
        let all = record.slots();
        let apart = own.unproven.without(&own.connected).and(&all);
        let waits = own.applied == 0 && !self.book.is_larger_part(&all, &apart);
        waits.then_some(apart)
    }

    /// Returns the ranks of `keep` that have said goodbye, hold their leases and are not expelled, with their last calls. This rank does
    /// not count its own goodbye.
    fn leavers(
        &self,
        own: &Own<S>,
        keep: &Slots,
        look: &Look<S>,
        drop: &Slots,
    ) -> BTreeMap<u32, u32> {
        let goes = |slot: u32| {
            slot != own.slot
                && keep.contains(slot)
                && look.holders.contains(slot)
                && !drop.contains(slot)
        };
        let said = look.goodbyes.iter().filter(|(slot, _)| goes(**slot));
        said.map(|(slot, last)| (*slot, *last)).collect()
    }
}

/// P7: returns the next step towards a new view. First calls before the view may go on, then the device gets the view, then all calls may
/// start.
fn apply<S: Span>(own: &Own<S>, record: &Record, look: &Look<S>) -> Step {
    let before = record.first.wrapping_sub(1);
    let held = match own.limit {
        Limit::Closed => true,
        Limit::UpTo(last) => newer(before, last),
        Limit::Open => false,
    };
    if own.applied != 0 && held {
        return Step::Limit(before);
    }
    if look.has_place {
        Step::View
    } else {
        Step::Wait
    }
}

/// Returns the step of a member that wants to leave. It says so in a view that is in force, or ends if it is the last member.
fn leave<S: Span>(own: &Own<S>, record: &Record, look: &Look<S>) -> Option<Step> {
    if !own.is_member(record) || own.leaving == Leaving::No {
        return None;
    }
    let says = own.leaving == Leaving::Wants && own.limit == Limit::Open;
    if says && record.open.is_none() {
        let before = record.first.wrapping_sub(1);
        return Some(Step::Goodbye(later(look.started, before)));
    }
    match (record.members.len(), look.through) {
        (1, true) => Some(Step::End),
        (1, false) => Some(Step::Wait),
        _ => None,
    }
}

/// Returns the pairs of members of which one end, which holds a lease, says that a QP is in Err.
fn broken<S>(members: &Slots, look: &Look<S>) -> Pairs {
    let mut all = Pairs::default();
    for (&slot, row) in &look.rows {
        if members.contains(slot) && look.holders.contains(slot) {
            for other in row.broken.and(members).iter() {
                all.insert(slot, other);
            }
        }
    }
    all
}

/// Returns the generations of the slots of `members` that are in `slots`.
fn of_slots(members: &BTreeMap<u32, (u32, &Row)>, slots: &Slots) -> Members {
    let named = members.iter().filter(|it| slots.contains(*it.0));
    named
        .map(|(slot, (generation, _))| (*slot, *generation))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clocks::Bounds;
    use crate::look::Ask;
    use crate::record::Promise;

    const S: Duration = Duration::from_secs(1);

    fn set(slots: &[u32]) -> Slots {
        slots.iter().copied().collect()
    }

    /// Returns the rules for a lease of 2 s and a store that answers at once.
    fn rules() -> Rules<Duration> {
        Rules::new(Bounds {
            between: S,
            call: S * 2 / 3,
            unheard: S * 3,
            stalled: S * 4,
            unanswered: S * 4,
            found: S * 10,
        })
    }

    fn record() -> Record {
        Record::founded(Members::from([(0, 1), (1, 1), (2, 1)]))
    }

    /// Returns the state of member 0 of the view.
    fn member() -> Own<Duration> {
        Own {
            applied: 1,
            limit: Limit::Open,
            ..Own::newcomer(0, 1)
        }
    }

    /// Returns a look half a second after the one before, with the rows of ranks that hold a lease.
    fn look(holders: &[u32], rows: &[(u32, Row)]) -> Look<Duration> {
        Look {
            passed: S / 2,
            holders: set(holders),
            rows: rows.iter().cloned().collect(),
            has_place: true,
            ..Look::default()
        }
    }

    /// Makes a turn, and returns its step.
    fn turn(own: &mut Own<Duration>, record: &Record, mut look: Look<Duration>) -> Step {
        let rules = rules();
        let meets = rules.observe(own, record, &look);
        let row = rules.row(own, record, &look, meets);
        look.rows.insert(own.slot, row);
        rules.next(own, record, &look)
    }

    fn unheard(slots: &[u32]) -> Row {
        Row {
            unheard: set(slots),
            ..Row::default()
        }
    }

    fn keeps(step: &Step, slots: &[u32]) -> bool {
        matches!(step, Step::Propose(proposal) if proposal.keep == set(slots))
    }

    #[test]
    fn an_ask_without_a_lease_is_nothing() {
        let (mut own, record) = (member(), record());
        for _ in 0..20 {
            let mut look = look(&[0, 1, 2], &[(1, unheard(&[])), (2, unheard(&[]))]);
            look.asks.insert((1, 2), Ask::default());
            look.asks.insert((3, 1), Ask::default());
            assert_eq!(turn(&mut own, &record, look), Step::Wait);
        }
        // A later generation that holds a lease proves nothing about the earlier one either.
        let mut look = look(&[0, 1, 2], &[(1, unheard(&[])), (2, unheard(&[]))]);
        let holds = true;
        let row = Row::default();
        look.asks.insert((1, 2), Ask { holds, row });
        assert_eq!(turn(&mut own, &record, look), Step::Wait);
    }

    #[test]
    fn a_dead_asker_hides_no_living_one() {
        let (mut own, record) = (member(), record());
        own.connected = set(&[3]);
        let ready = Row {
            connected: set(&[3]),
            ..Row::default()
        };
        let mut look = look(&[0, 1, 2], &[(1, ready.clone()), (2, ready)]);
        let row = Row {
            connected: set(&[0, 1, 2]),
            ..Row::default()
        };
        look.asks.insert((3, 5), Ask { holds: true, row });
        // An older and a newer generation of the slot have no lease.
        look.asks.insert((3, 4), Ask::default());
        look.asks.insert((3, 6), Ask::default());
        assert_eq!(rules().to_connect(&own, &record, &look), set(&[3]));
        let step = turn(&mut own, &record, look);
        let Step::Propose(proposal) = step else {
            panic!("{step:?}");
        };
        assert_eq!(proposal.takes, Members::from([(3, 5)]));
        assert_eq!(proposal.keep, set(&[0, 1, 2]));
    }

    #[test]
    fn a_rank_that_goes_is_unheard_by_all_that_look() {
        let (mut own, record) = (member(), record());
        // The first look misses the rank, and six more looks half a second apart make three seconds.
        for _ in 0..6 {
            let rows = [(1, unheard(&[2]))];
            assert_eq!(turn(&mut own, &record, look(&[0, 1], &rows)), Step::Wait);
        }
        // The other rank has not said so.
        let alone = look(&[0, 1], &[(1, unheard(&[]))]);
        assert_eq!(turn(&mut own, &record, alone), Step::Wait);
        let both = look(&[0, 1], &[(1, unheard(&[2]))]);
        assert!(keeps(&turn(&mut own, &record, both), &[0, 1]));
        // A rank without a lease need not say so.
        let mut lonely = own.clone();
        for _ in 0..6 {
            let without = look(&[0], &[]);
            assert!(!keeps(&turn(&mut lonely, &record, without), &[0]));
        }
        assert!(keeps(&turn(&mut lonely, &record, look(&[0], &[])), &[0]));
        // One word of the rank withdraws all of that.
        let mut word = look(&[0, 1], &[(1, unheard(&[2]))]);
        word.heard = set(&[2]);
        assert_eq!(turn(&mut own, &record, word), Step::Wait);
        assert!(own.unheard.is_empty());
    }

    #[test]
    fn an_observer_that_was_stopped_takes_nothing_for_gone() {
        let (mut own, record) = (member(), record());
        let rows = [(1, unheard(&[2]))];
        for _ in 0..7 {
            turn(&mut own, &record, look(&[0, 1], &rows));
        }
        // The rank or the store stands still for an hour. After that no lease is left.
        for call in [false, true] {
            let mut stopped = own.clone();
            let mut after = look(&[0], &[]);
            let hour = S * 3600;
            (after.passed, after.call) = if call { (S / 2, hour) } else { (hour, S / 2) };
            assert_eq!(turn(&mut stopped, &record, after), Step::Wait);
            for _ in 0..5 {
                assert_eq!(turn(&mut stopped, &record, look(&[0], &[])), Step::Wait);
            }
        }
    }

    #[test]
    fn a_process_that_has_ended_goes_at_once() {
        let (mut own, record) = (member(), record());
        let mut seen = look(&[0, 1, 2], &[]);
        seen.ended = set(&[2]);
        assert!(keeps(&turn(&mut own, &record, seen), &[0, 1]));
        // Another rank on the machine of rank 1 has seen the end.
        let row = Row {
            ended: set(&[1]),
            ..Row::default()
        };
        let told = look(&[0, 1, 2], &[(2, row)]);
        assert!(keeps(&turn(&mut own, &record, told), &[0, 2]));
    }

    #[test]
    fn of_the_ranks_of_a_machine_the_lowest_that_lives_tells_what_ended_there() {
        let record = record();
        let tells = |slot: u32, holders: &[u32], beside: &[u32], ended: &[u32]| {
            let own = Own { slot, ..member() };
            let mut seen = look(holders, &[]);
            (seen.beside, seen.ended) = (set(beside), set(ended));
            rules().row(&own, &record, &seen, Slots::default()).ended
        };
        assert_eq!(tells(0, &[0, 1, 2], &[0, 1, 2], &[2]), set(&[2]));
        assert_eq!(tells(1, &[0, 1, 2], &[0, 1, 2], &[2]), set(&[]));
        // The lower rank has ended as well, has no lease, or runs on another machine.
        assert_eq!(tells(1, &[0, 1, 2], &[0, 1, 2], &[0, 2]), set(&[0, 2]));
        assert_eq!(tells(1, &[1, 2], &[0, 1, 2], &[2]), set(&[2]));
        assert_eq!(tells(1, &[0, 1, 2], &[1, 2], &[2]), set(&[2]));
        // A rank that does not report ends concludes from what it sees itself.
        let mut own = Own {
            slot: 1,
            ..member()
        };
        let mut seen = look(&[0, 1, 2], &[]);
        (seen.beside, seen.ended) = (set(&[0, 1, 2]), set(&[2]));
        assert!(keeps(&turn(&mut own, &record, seen), &[0, 1]));
    }

    #[test]
    fn a_broken_pair_parts_and_drops_no_rank() {
        let (mut own, record) = (member(), record());
        own.broken = set(&[1]);
        let step = turn(&mut own, &record, look(&[0, 1, 2], &[]));
        let Step::Propose(proposal) = step else {
            panic!("{step:?}");
        };
        assert_eq!(proposal.keep, set(&[0, 1, 2]));
        let pairs: Vec<_> = proposal.parts.iter().collect();
        assert_eq!(pairs, [(0, 1)]);
        // Both ends of the pair fence, and the third rank does not.
        let open = record.propose(proposal).unwrap();
        let fences = |slot, of: &[u32]| {
            let mut own = Own { slot, ..member() };
            let step = turn(&mut own, &open, look(&[0, 1, 2], &[]));
            assert_eq!(step, Step::Promise(set(of)));
        };
        fences(0, &[1]);
        fences(1, &[0]);
        fences(2, &[]);
    }

    #[test]
    fn a_newcomer_promises_first_and_one_without_an_answer_is_taken_out_alone() {
        let record = record();
        let proposal = Proposal {
            keep: set(&[0, 1, 2]),
            takes: Members::from([(3, 1)]),
            ..Proposal::default()
        };
        let open = record.propose(proposal).unwrap();
        let (mut own, mut newcomer) = (member(), Own::newcomer(3, 1));
        let all = || look(&[0, 1, 2], &[]);
        let comes = turn(&mut newcomer, &open, all());
        assert_eq!(comes, Step::Promise(set(&[])));
        assert_eq!(newcomer.promise(&open, 0), Promise { last: None });
        let waits: Vec<Step> = (0..8).map(|_| turn(&mut own, &open, all())).collect();
        assert!(waits.iter().all(|step| *step == Step::Wait));
        assert_eq!(own.limit, Limit::Open);
        let mut answered = all();
        answered.promises = BTreeMap::from([(3, Promise { last: None })]);
        let step = turn(&mut own.clone(), &open, answered);
        assert_eq!(step, Step::Promise(set(&[])));
        let step = turn(&mut own, &open, all());
        let Step::Propose(smaller) = step else {
            panic!("{step:?}");
        };
        assert_eq!((smaller.keep, smaller.takes.len()), (set(&[0, 1, 2]), 0));
    }

    #[test]
    fn an_ended_newcomer_is_taken_out_at_once_and_never_announced() {
        let proposal = Proposal {
            keep: set(&[0, 1, 2]),
            takes: Members::from([(3, 1)]),
            ..Proposal::default()
        };
        let open = record().propose(proposal).unwrap();
        let mut seen = look(&[0, 1, 2], &[]);
        seen.ended = set(&[3]);
        let row = rules().row(&member(), &open, &seen, Slots::default());
        assert_eq!(row.ended, set(&[]));
        let step = turn(&mut member(), &open, seen);
        let Step::Propose(smaller) = step else {
            panic!("{step:?}");
        };
        assert_eq!((smaller.keep, smaller.takes.len()), (set(&[0, 1, 2]), 0));
    }
}
