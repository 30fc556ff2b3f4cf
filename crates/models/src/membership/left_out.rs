//! The rules that a model may leave out, by name, and what a rank does if some of them are left out.

use std::collections::BTreeMap;

use membership_rules::clocks::{Clock, LOOKS, Span};
use membership_rules::look::{Look, Own, Row};
use membership_rules::newcomers::OfSlot;
use membership_rules::record::{Promise, Proposal, Record, later};
use membership_rules::rulebook::{End, Rulebook};
use membership_rules::slots::Slots;

/// A rule that can be left out. The last seven are kept by code that looks, renews leases and writes. The world of the model follows those
/// or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A time in which this rank itself stood still is a gap.
    OwnGap,
    /// A store call that was slow or failed is a gap.
    StoreGap,
    /// The clock of a rank starts at the first look that misses the rank, and needs four looks.
    FirstLook,
    /// Clocks: a rank that is missed is unheard only when its clock says so.
    Unheard,
    /// Evidence: any sign of life withdraws what a clock says.
    Withdrawn,
    /// L3: a lease that was taken again is a sign of life.
    Takings,
    /// Clocks: words that arrive are signs of life.
    Veto,
    /// Evidence: a rank is gone only if all ranks that look say so.
    Seconded,
    /// Evidence: a later generation that asks proves nothing.
    LaterIsNothing,
    /// The clock of a proposal starts anew after a gap.
    AnswerGap,
    /// Clocks: a rank that meets no other accuses none.
    Lonely,
    /// Clocks of contact stand still while no word of any member arrives: earlier words are old.
    Fresh,
    /// P7: a pair connects after the calls before the view that parted it. So a rank that has those calls to make is not accused
    /// and accuses none.
    BehindSaysNothing,
    /// Evidence: the group expels a rank that the larger side does not reach.
    Choice,
    /// Evidence: two ranks have an edge if both say that they meet. Silence makes no edge.
    BothMeet,
    /// Evidence: a side has two ranks or more.
    TwoStay,
    /// P2: an open proposal only loses ranks.
    OnlyLoses,
    /// P3: a rank proposes itself alone once per view.
    SoloOnce,
    /// P4: newcomers promise first.
    NewcomersFirst,
    /// P4: a promise does not wait for QPs.
    PromiseAtOnce,
    /// P4: a rank fences before it promises.
    Fence,
    /// P5: all ranks of a proposal have promised.
    AllPromise,
    /// P5: the first call lies after all promises.
    FirstBehind,
    /// P5: the first call lies after the last calls of leavers too.
    LeaversCount,
    /// P10: a leaver ends when all ranks have made its last call.
    LeaversWait,
    /// P6: each generation counts by itself.
    EachGeneration,
    /// P6: a pair of a newcomer counts as connected when a write each way was answered on each QP.
    Proven,
    /// P6: a newcomer comes in if it reaches more than half of the others.
    LargerPart,
    /// P6: a rank keeps to one of the generations that ask for a slot.
    OneSuccessor,
    /// P6: while a proposal takes in a generation, a rank gives the QPs of this generation to no other.
    ProposedKeeps,
    /// P6: a newcomer ends when a rank is connected with a later generation of its slot.
    Overtaken,
    /// P6, kept by the team: a later generation that was never connected does not end an earlier one.
    GoesBack,
    /// P8, kept by code that writes the record: pairs that are fenced are parted.
    PartsStand,
    /// L1, kept by code that renews leases: no lease outlives the thread that follows the rules.
    RenewedByRules,
    /// L2, kept by code that renews leases: a stale lease is not revoked.
    NotRevoked,
    /// Keys, kept by code that reads keys: a key that cannot be read counts as missing.
    KeysOneByOne,
    /// Evidence, kept by code that watches ports: a port that is down proves nothing.
    PortsSayNothing,
    /// Leases, kept by code that reads them: the look of a rank that was stopped is not believed.
    ClockFirst,
}

/// All rules without some that are left out. Each method does the wrong thing if its rule is left out, and otherwise what `()` does.
#[derive(Clone, Copy, Debug)]
pub struct LeftOut(pub &'static [Rule]);

impl LeftOut {
    /// Returns whether `rule` is followed.
    #[must_use]
    pub fn follows(self, rule: Rule) -> bool {
        !self.0.contains(&rule)
    }
}

impl Rulebook for LeftOut {
    fn is_own_gap<S: Span>(&self, passed: S, between: S) -> bool {
        self.follows(Rule::OwnGap) && ().is_own_gap(passed, between)
    }

    fn is_store_gap<S: Span>(&self, call: S, bound: S) -> bool {
        self.follows(Rule::StoreGap) && ().is_store_gap(call, bound)
    }

    fn missed<S: Span>(&self, before: Option<Clock<S>>, passed: S, bound: S) -> Clock<S> {
        let looks = LOOKS;
        if !self.follows(Rule::Unheard) {
            return Clock { time: bound, looks };
        }
        if before.is_none() && !self.follows(Rule::FirstLook) {
            let time = passed.min(bound);
            return Clock { time, looks };
        }
        ().missed(before, passed, bound)
    }

    fn may_be_withdrawn(&self, counts: bool) -> bool {
        self.follows(Rule::Withdrawn) || !counts
    }

    fn has_written<S>(&self, look: &Look<S>, slot: u32) -> bool {
        self.follows(Rule::Takings) && ().has_written(look, slot)
    }

    fn is_heard<S>(&self, look: &Look<S>, slot: u32) -> bool {
        self.follows(Rule::Veto) && ().is_heard(look, slot)
    }

    fn second(&self, unheard: &mut Slots, theirs: &Slots) {
        if self.follows(Rule::Seconded) {
            ().second(unheard, theirs);
        }
    }

    fn ended_by_asks<S>(&self, record: &Record, look: &Look<S>) -> Slots {
        if self.follows(Rule::LaterIsNothing) {
            return ().ended_by_asks(record, look);
        }
        let later = |(slot, generation): &&(u32, u32)| {
            let member = record.members.get(*slot);
            member.is_some_and(|member| member < *generation)
        };
        look.asks.keys().filter(later).map(|it| it.0).collect()
    }

    fn unanswered<S: Span>(&self, time: S, passed: Option<S>, raw: S, bound: S) -> S {
        if self.follows(Rule::AnswerGap) {
            ().unanswered(time, passed, raw, bound)
        } else {
            time.plus(raw).min(bound)
        }
    }

    fn may_accuse(&self, meets: &Slots) -> bool {
        !self.follows(Rule::Lonely) || ().may_accuse(meets)
    }

    fn is_fresh(&self, heard: &Slots) -> bool {
        !self.follows(Rule::Fresh) || ().is_fresh(heard)
    }

    fn waits_for_calls(&self, behind: bool) -> bool {
        self.follows(Rule::BehindSaysNothing) && ().waits_for_calls(behind)
    }

    fn expels(&self, unreached: Slots) -> Slots {
        if self.follows(Rule::Choice) {
            ().expels(unreached)
        } else {
            Slots::default()
        }
    }

    fn near(&self, left: &Slots, row: &Row) -> Slots {
        if self.follows(Rule::BothMeet) {
            ().near(left, row)
        } else {
            left.clone()
        }
    }

    fn is_edge(&self, end: End<'_>, other: End<'_>) -> bool {
        let silence = !self.follows(Rule::BothMeet) && !is_overdue(end, other);
        silence || ().is_edge(end, other)
    }

    fn smallest_side(&self) -> u32 {
        if self.follows(Rule::TwoStay) {
            ().smallest_side()
        } else {
            1
        }
    }

    fn grown<S: Span>(
        &self,
        own: &Own<S>,
        record: &Record,
        open: &Proposal,
        gone: &Slots,
    ) -> Option<Proposal> {
        let may = own.has_promised(record) && open.takes.is_empty();
        if self.follows(Rule::OnlyLoses) || !may {
            return ().grown(own, record, open, gone);
        }
        let living = record.slots().without(gone);
        (!living.is_subset(&open.keep)).then(|| Proposal {
            by: own.slot,
            keep: open.keep.with(&living),
            ..open.clone()
        })
    }

    fn may_go_alone(&self, solo: bool) -> bool {
        !self.follows(Rule::SoloOnce) || ().may_go_alone(solo)
    }

    fn waits_for_newcomers(&self, open: &Proposal, promises: &BTreeMap<u32, Promise>) -> bool {
        self.follows(Rule::NewcomersFirst) && ().waits_for_newcomers(open, promises)
    }

    fn waits_for_qps<S>(&self, own: &Own<S>, record: &Record, open: &Proposal) -> bool {
        if self.follows(Rule::PromiseAtOnce) {
            return ().waits_for_qps(own, record, open);
        }
        let united = record.parted.of(own.slot).without(&open.parts.of(own.slot));
        let comes = united.and(&open.keep).with(&open.comes());
        !comes.is_subset(&own.connected)
    }

    fn fence(&self, slot: u32, record: &Record, open: &Proposal) -> Slots {
        if self.follows(Rule::Fence) {
            ().fence(slot, record, open)
        } else {
            Slots::default()
        }
    }

    fn have_promised(&self, needed: &Slots, promised: &Slots) -> bool {
        let majority = 2 * needed.and(promised).len() > needed.len();
        !self.follows(Rule::AllPromise) && majority || ().have_promised(needed, promised)
    }

    fn last_of_leavers(&self, open: &Proposal) -> Vec<u32> {
        if self.follows(Rule::LeaversCount) {
            ().last_of_leavers(open)
        } else {
            Vec::new()
        }
    }

    fn first_call(&self, before: u32, lasts: impl Iterator<Item = u32>) -> u32 {
        let first = ().first_call(before, lasts);
        if self.follows(Rule::FirstBehind) {
            first
        } else {
            later(before, first.wrapping_sub(1))
        }
    }

    fn leaver_ends(&self, through: bool) -> bool {
        !self.follows(Rule::LeaversWait) || ().leaver_ends(through)
    }

    fn newcomers<'a, S>(
        &self,
        look: &'a Look<S>,
        record: &Record,
    ) -> BTreeMap<u32, (u32, &'a Row)> {
        let mut all = ().newcomers(look, record);
        if !self.follows(Rule::EachGeneration) {
            // The newest generation that asks counts, and it has no lease.
            let is_newest = |slot: u32, generation: u32| {
                let mut later = look.asks.range((slot, generation)..=(slot, u32::MAX));
                later.nth(1).is_none()
            };
            all.retain(|slot, (generation, _)| is_newest(*slot, *generation));
        }
        all
    }

    fn is_proven(&self, one_says: bool, other_says: bool) -> bool {
        !self.follows(Rule::Proven) || ().is_proven(one_says, other_says)
    }

    fn is_larger_part(&self, all: &Slots, apart: &Slots) -> bool {
        !self.follows(Rule::LargerPart) || ().is_larger_part(all, apart)
    }

    fn successor(&self, asks: &[u32], mut of: OfSlot) -> Option<u32> {
        if !self.follows(Rule::OneSuccessor) {
            return asks.last().copied();
        }
        if !self.follows(Rule::ProposedKeeps) {
            of.proposed = None;
        }
        ().successor(asks, of)
    }

    fn is_overtaken(&self, generation: u32, theirs: Option<u32>) -> bool {
        self.follows(Rule::Overtaken) && ().is_overtaken(generation, theirs)
    }
}

/// Returns whether one end calls the pair overdue, and neither end says that they meet.
fn is_overdue(a: End<'_>, b: End<'_>) -> bool {
    let says = |of: fn(&Row) -> &Slots| of(a.row).contains(b.slot) || of(b.row).contains(a.slot);
    says(|row| &row.overdue) && !says(|row| &row.meets)
}
