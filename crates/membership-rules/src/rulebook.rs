//! Each rule that a model may leave out, as one method. `()` follows all of them, as a group does; a model has a type of its own, which
//! overrides some, and shows which property is then missed.

use std::collections::BTreeMap;

use crate::clocks::{Clock, Span};
use crate::look::{Look, Own, Row};
use crate::newcomers::{self, OfSlot};
use crate::record::{Promise, Proposal, Record, later};
use crate::slots::Slots;

/// The rules that can be left out. What a method does here is the rule.
pub trait Rulebook {
    /// Own standing still is a gap.
    fn is_own_gap<S: Span>(&self, passed: S, between: S) -> bool {
        passed > between
    }

    /// A store call that was slow or failed is a gap.
    fn is_store_gap<S: Span>(&self, call: S, bound: S) -> bool {
        call > bound
    }

    /// Returns the clock of a rank unheard, after another look that finds nothing of it. It starts at the first look that misses
    /// the rank, and needs four looks. Missing is not unheard before its clock says so.
    fn missed<S: Span>(&self, before: Option<Clock<S>>, passed: S, bound: S) -> Clock<S> {
        match before {
            Some(mut clock) => {
                clock.look(passed, bound);
                clock
            }
            None => Clock::first(),
        }
    }

    /// Evidence: any sign of life withdraws what a clock says. Returns whether a sign of life may still withdraw it. `counts`: the
    /// clock has run long enough to count.
    fn may_be_withdrawn(&self, _counts: bool) -> bool {
        true
    }

    /// L3: a lease that was taken again is a sign of life.
    fn has_written<S>(&self, look: &Look<S>, slot: u32) -> bool {
        look.wrote.contains(slot)
    }

    /// Clocks: words that arrive are signs of life.
    fn is_heard<S>(&self, look: &Look<S>, slot: u32) -> bool {
        look.heard.contains(slot)
    }

    /// Evidence: all ranks that look say the same. Leaves in `unheard` what one more of them says.
    fn second(&self, unheard: &mut Slots, theirs: &Slots) {
        unheard.retain(theirs);
    }

    /// Evidence: a later generation that asks is evidence of nothing. Returns the slots that have ended since others ask.
    fn ended_by_asks<S>(&self, _record: &Record, _look: &Look<S>) -> Slots {
        Slots::default()
    }

    /// Clocks: how long a proposal is unanswered, after `time` before this look. Its clock starts anew after a gap, where no time
    /// has `passed` by the clocks; `raw` is what has passed.
    fn unanswered<S: Span>(&self, time: S, passed: Option<S>, _raw: S, bound: S) -> S {
        passed.map_or(S::default(), |passed| time.plus(passed).min(bound))
    }

    /// Clocks: a rank that meets no other accuses none.
    fn may_accuse(&self, meets: &Slots) -> bool {
        !meets.is_empty()
    }

    /// Clocks of contact stand still while no word of any member arrives: earlier words are old. `heard` are the members
    /// with unbroken QPs of which one has arrived.
    fn is_fresh(&self, heard: &Slots) -> bool {
        !heard.is_empty()
    }

    /// P7: a pair connects after the calls before the view that parted it. So a rank that has those calls to make, which is
    /// `behind`, is not accused and accuses none.
    fn waits_for_calls(&self, behind: bool) -> bool {
        behind
    }

    /// Evidence: the group expels the ranks that the larger side does not reach.
    fn expels(&self, unreached: Slots) -> Slots {
        unreached
    }

    /// Evidence: the ranks of `left` that may have an edge with the one of `row`. Silence is none.
    fn near(&self, left: &Slots, row: &Row) -> Slots {
        left.and(&row.meets)
    }

    /// Evidence: an edge is where both say that they meet.
    fn is_edge(&self, end: End<'_>, other: End<'_>) -> bool {
        end.row.meets.contains(other.slot) && other.row.meets.contains(end.slot)
    }

    /// Evidence: a side has two or more.
    fn smallest_side(&self) -> u32 {
        2
    }

    /// P2: an open proposal only loses. Returns the one with more ranks that takes its place.
    fn grown<S: Span>(
        &self,
        _own: &Own<S>,
        _record: &Record,
        _open: &Proposal,
        _gone: &Slots,
    ) -> Option<Proposal> {
        None
    }

    /// P3: alone, once per view. `solo`: it has proposed itself alone in this one.
    fn may_go_alone(&self, solo: bool) -> bool {
        !solo
    }

    /// P4: newcomers promise first. Returns whether members wait for one.
    fn waits_for_newcomers(&self, open: &Proposal, promises: &BTreeMap<u32, Promise>) -> bool {
        open.takes.keys().any(|slot| !promises.contains_key(&slot))
    }

    /// P4: a promise does not wait for QPs.
    fn waits_for_qps<S>(&self, _own: &Own<S>, _record: &Record, _open: &Proposal) -> bool {
        false
    }

    /// P4: a rank that promises has fenced the ranks that go, without the leavers, and those from which the view parts it.
    fn fence(&self, slot: u32, record: &Record, open: &Proposal) -> Slots {
        let leavers = open.leaves.keys().copied().collect();
        let mut fence = record.slots().without(&open.keep).without(&leavers);
        let parted = open.parts.of(slot).and(&open.all());
        fence.add(&parted.without(&record.parted.of(slot)));
        fence
    }

    /// P5: all have promised.
    fn have_promised(&self, needed: &Slots, promised: &Slots) -> bool {
        needed.is_subset(promised)
    }

    /// P5: the last calls of leavers, after which the view begins too.
    fn last_of_leavers(&self, open: &Proposal) -> Vec<u32> {
        open.leaves.values().copied().collect()
    }

    /// P5: the first call lies after all promises. `before` is the first call of the view that ends.
    fn first_call(&self, before: u32, lasts: impl Iterator<Item = u32>) -> u32 {
        lasts.map(|last| last.wrapping_add(1)).fold(before, later)
    }

    /// P10: a leaver ends when all are `through` with its last call.
    fn leaver_ends(&self, through: bool) -> bool {
        through
    }

    /// P6: the ranks that ask, hold their leases and may come in, by slot, with generation and row. Each generation counts by itself:
    /// of several the latest that holds its lease.
    fn newcomers<'a, S>(
        &self,
        look: &'a Look<S>,
        record: &Record,
    ) -> BTreeMap<u32, (u32, &'a Row)> {
        let may = |slot: u32, generation: u32| {
            !record.members.contains_key(slot) && !record.was_dropped(slot, generation)
        };
        let asks = look.asks.iter();
        let holds = asks.filter(|((slot, of), ask)| ask.holds && may(*slot, *of));
        holds
            .map(|((slot, of), ask)| (*slot, (*of, &ask.row)))
            .collect()
    }

    /// P6: a pair of a newcomer counts as connected when a write each way was answered on each QP, as each end says.
    fn is_proven(&self, one_says: bool, other_says: bool) -> bool {
        one_says && other_says
    }

    /// P6: whether a newcomer that comes parted from `apart` reaches more than half of `all`.
    fn is_larger_part(&self, all: &Slots, apart: &Slots) -> bool {
        apart.is_empty() || 2 * all.without(apart).len() > all.len()
    }

    /// P6: a rank keeps to one of the generations that ask for a slot.
    fn successor(&self, asks: &[u32], of: OfSlot) -> Option<u32> {
        newcomers::successor(asks, of)
    }

    /// P6: a newcomer ends when a rank is connected with a later generation of its slot.
    fn is_overtaken(&self, generation: u32, theirs: Option<u32>) -> bool {
        newcomers::is_overtaken(generation, theirs)
    }
}

impl Rulebook for () {}

/// One end of a pair: a rank, and what it says.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The slot of the rank.
    pub slot: u32,
    /// What the rank has last written of itself.
    pub row: &'a Row,
}
