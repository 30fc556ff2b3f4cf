//! Each rule that a model may leave out, as one method. `()` follows all of them, as a group does. A model has its own type, which
//! overrides some methods and shows which property then fails.

use std::collections::BTreeMap;

use crate::clocks::{Clock, Span};
use crate::look::{Look, Own, Row};
use crate::newcomers::{self, OfSlot};
use crate::record::{Promise, Proposal, Record, later};
use crate::slots::Slots;

/// The rules that can be left out. The default of each method is the rule.
pub trait Rulebook {
    /// Returns whether this rank stood still for so long that it is a gap: longer than `between`.
    fn is_own_gap<S: Span>(&self, passed: S, between: S) -> bool {
        passed > between
    }

    /// Returns whether a store call was so slow that it is a gap. A call that failed is one.
    fn is_store_gap<S: Span>(&self, call: S, bound: S) -> bool {
        call > bound
    }

    /// Returns the clock of a rank after another look that finds nothing new of that rank. The clock starts at the first look that misses
    /// the rank, and needs four looks. The rank is unheard only when its clock says so.
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

    /// L3: returns whether the rank in `slot` has written. A lease that was taken again is a sign of life.
    fn has_written<S>(&self, look: &Look<S>, slot: u32) -> bool {
        look.wrote.contains(slot)
    }

    /// Clocks: returns whether a word of `slot` has arrived. Such words are signs of life.
    fn is_heard<S>(&self, look: &Look<S>, slot: u32) -> bool {
        look.heard.contains(slot)
    }

    /// Evidence: a rank is gone only if all ranks that look say so. Leaves in `unheard` the ranks that one more row names.
    fn second(&self, unheard: &mut Slots, theirs: &Slots) {
        unheard.retain(theirs);
    }

    /// Evidence: a later generation that asks proves nothing. Returns the slots that count as ended because others ask for them: none.
    fn ended_by_asks<S>(&self, _record: &Record, _look: &Look<S>) -> Slots {
        Slots::default()
    }

    /// Clocks: returns how long a proposal is unanswered. `time`: how long it was before this look. `passed`: the time since then; None
    /// after a gap, where the clock starts anew. `raw`: that time with gaps counted.
    fn unanswered<S: Span>(&self, time: S, passed: Option<S>, _raw: S, bound: S) -> S {
        passed.map_or(S::default(), |passed| time.plus(passed).min(bound))
    }

    /// Clocks: returns whether a rank may accuse others. A rank that meets no other accuses none.
    fn may_accuse(&self, meets: &Slots) -> bool {
        !meets.is_empty()
    }

    /// Clocks of contact stand still while no word of any member arrives, because earlier words are old. Returns whether they run. `heard`:
    /// the members with unbroken QPs of which a word has arrived.
    fn is_fresh(&self, heard: &Slots) -> bool {
        !heard.is_empty()
    }

    /// P7: a pair connects only after the calls before the view that parted it. So a rank that still has to make those calls, which is
    /// `behind`, is not accused and accuses none. Returns whether the pair waits for that.
    fn waits_for_calls(&self, behind: bool) -> bool {
        behind
    }

    /// Evidence: the group expels the ranks that the larger side does not reach. Returns the ranks of `unreached` that it expels.
    fn expels(&self, unreached: Slots) -> Slots {
        unreached
    }

    /// Evidence: returns the ranks of `left` that may have an edge with the rank of `row`. Silence makes no edge.
    fn near(&self, left: &Slots, row: &Row) -> Slots {
        left.and(&row.meets)
    }

    /// Evidence: returns whether two ranks have an edge. They have one if both say that they meet.
    fn is_edge(&self, end: End<'_>, other: End<'_>) -> bool {
        end.row.meets.contains(other.slot) && other.row.meets.contains(end.slot)
    }

    /// Evidence: returns how many ranks make a side at least.
    fn smallest_side(&self) -> u32 {
        2
    }

    /// P2: an open proposal only loses ranks. Returns a proposal with more ranks that takes its place: none.
    fn grown<S: Span>(
        &self,
        _own: &Own<S>,
        _record: &Record,
        _open: &Proposal,
        _gone: &Slots,
    ) -> Option<Proposal> {
        None
    }

    /// P3: returns whether a rank may propose itself alone, which it may once per view. `solo`: it has done so in this view.
    fn may_go_alone(&self, solo: bool) -> bool {
        !solo
    }

    /// P4: newcomers promise first. Returns whether members still wait for a promise of a newcomer.
    fn waits_for_newcomers(&self, open: &Proposal, promises: &BTreeMap<u32, Promise>) -> bool {
        open.takes.keys().any(|slot| !promises.contains_key(&slot))
    }

    /// P4: a promise does not wait for QPs. Returns whether it does.
    fn waits_for_qps<S>(&self, _own: &Own<S>, _record: &Record, _open: &Proposal) -> bool {
        false
    }

    /// P4: returns the ranks that a rank fences before it promises: ranks that go, except leavers, and ranks from which the view parts it.
    fn fence(&self, slot: u32, record: &Record, open: &Proposal) -> Slots {
        let leavers = open.leaves.keys().copied().collect();
        let mut fence = record.slots().without(&open.keep).without(&leavers);
        let parted = open.parts.of(slot).and(&open.all());
        fence.add(&parted.without(&record.parted.of(slot)));
        fence
    }

    /// P5: returns whether all ranks of the proposal have promised.
    fn have_promised(&self, needed: &Slots, promised: &Slots) -> bool {
        needed.is_subset(promised)
    }

    /// P5: returns the last calls of leavers. The view begins after these calls too.
    fn last_of_leavers(&self, open: &Proposal) -> Vec<u32> {
        open.leaves.values().copied().collect()
    }

    /// P5: returns the first call of the new view, which lies after all promised calls. `before` is the first call of the view that ends.
    fn first_call(&self, before: u32, lasts: impl Iterator<Item = u32>) -> u32 {
        lasts.map(|last| last.wrapping_add(1)).fold(before, later)
    }

    /// P10: returns whether a leaver ends. It does when all ranks are `through` with its last call.
    fn leaver_ends(&self, through: bool) -> bool {
        through
    }

    /// P6: returns the ranks that ask, hold their leases and may come in: by slot, with generation and row. Each generation counts by
    /// itself. Of several generations of a slot, the latest that holds its lease counts.
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

    /// P6: returns whether a pair of a newcomer counts as connected. Each end says whether a write each way was answered on each QP, and
    /// both must say so.
    fn is_proven(&self, one_says: bool, other_says: bool) -> bool {
        one_says && other_says
    }

    /// P6: returns whether a newcomer that comes parted from `apart` reaches more than half of `all`.
    fn is_larger_part(&self, all: &Slots, apart: &Slots) -> bool {
        apart.is_empty() || 2 * all.without(apart).len() > all.len()
    }

    /// P6: returns the generation to which a rank keeps, of those that ask for a slot.
    fn successor(&self, asks: &[u32], of: OfSlot) -> Option<u32> {
        newcomers::successor(asks, of)
    }

    /// P6: returns whether a newcomer ends, because a rank is connected with a later generation of its slot.
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
