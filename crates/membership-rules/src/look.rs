//! The contents of a look: what a rank knows of itself, what it tells the others, and what it has before it.

use std::collections::BTreeMap;

use crate::clocks::{Clock, Span};
use crate::record::{Promise, Record};
use crate::slots::Slots;

/// Calls that a rank's device may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// None.
    Closed,
    /// Those up to this one.
    UpTo(u32),
    /// All.
    Open,
}

/// Whether a rank wants to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It stays.
    No,
    /// It wants to, and has not said so in this view.
    Wants,
    /// It has said so: its limit is its last call.
    Said,
}

/// What a rank knows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own<S> {
    /// The slot of this rank in the team.
    pub slot: u32,
    /// The generation of the rank that this process is, from 1 on.
    pub generation: u32,
    /// Epoch of the newest view that its device has; 0: none yet.
    pub applied: u32,
    /// Calls that its device may start.
    pub limit: Limit,
    /// The promise for the view after `applied`, and the newest proposal for which it was given.
    pub promised: Option<(u64, Promise)>,
    /// Ranks to which its QPs are in Err for the change under way.
    pub fenced: Slots,
    /// Ranks to which a QP is in Err.
    pub broken: Slots,
    /// Ranks to which its QPs were made anew: newcomers, and those that it is parted from.
    pub connected: Slots,
    /// Ranks to which it has made QPs anew that carry nothing: of newcomers and of members that a newcomer has found.
    pub unproven: Slots,
    /// Clocks of ranks unheard.
    pub unheard: BTreeMap<u32, Clock<S>>,
    /// Clocks of ranks without contact.
    pub apart: BTreeMap<u32, Clock<S>>,
    /// The proposal that its clock runs for, and for how long it is unanswered.
    pub unanswered: (u64, S),
    /// Whether it has proposed itself alone in this view (P3).
    pub solo: bool,
    /// Whether it wants to go.
    pub leaving: Leaving,
}

/// What a rank tells the others: one key that it writes when it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Ranks of which it has heard nothing for U.
    pub unheard: Slots,
    /// Members to which a QP is in Err, though nothing parts them.
    pub broken: Slots,
    /// Members without contact for the stall bound.
    pub overdue: Slots,
    /// Members of which a word has arrived since the last look, nothing being broken.
    pub meets: Slots,
    /// Ranks to which its QPs were made anew, and have carried a write each way.
    pub connected: Slots,
    /// Ranks to which they were made anew, and have carried none for twice as long as an HCA tries.
    pub unproven: Slots,
    /// Members whose process it has seen to end, if it is the rank that reports ends for its machine.
    pub ended: Slots,
    /// Whether the view parts it from members, and it has calls to make before that view: till then it connects with none of them.
    pub behind: bool,
}

impl Row {
    /// Returns whether it says something against others, by which they part or go.
    pub fn accuses(&self) -> bool {
        let against = [&self.unheard, &self.broken, &self.overdue, &self.ended];
        !against.into_iter().all(Slots::is_empty)
    }
}

/// A rank that asks to be taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Whether this generation holds its lease.
    pub holds: bool,
    /// The row that this generation has written.
    pub row: Row,
}

/// What a rank has before it when it looks. All but the times is by slot of the generation that the record names.
#[derive(Clone, Debug, Default)]
pub struct Look<S> {
    /// Since the end of the look before.
    pub passed: S,
    /// The slowest store call since then; one that failed counts as longer than any bound.
    pub call: S,
    /// Slots that hold a lease; this rank has just renewed its own.
    pub holders: Slots,
    /// Slots whose `takings` have grown since the last look, or that have written a proposal or promise since then.
    pub wrote: Slots,
    /// Slots from which a word has arrived since the last look, or to which a QP has completed something since then.
    pub heard: Slots,
    /// Slots with which this happened within the stall bound: calls that wait for a third rank send nothing for a while.
    pub contact: Slots,
    /// Whether this rank makes calls. The words of others that arrive at one that makes none show that they live, and not that
    /// they exchange anything with it.
    pub calls: bool,
    /// Slots for which calls wait, and from which nothing has come since the last look.
    pub silent: Slots,
    /// Processes of this machine seen to end, of members and of those that the open proposal takes in.
    pub ended: Slots,
    /// Ranks on the machine of this one, itself among them: all of them see the same processes end.
    pub beside: Slots,
    /// Rows of members that hold a lease. The own one is put in its place by [`Rules::observe`](crate::evidence::Rules::observe)'s result.
    pub rows: BTreeMap<u32, Row>,
    /// The ranks that ask, by slot and generation.
    pub asks: BTreeMap<(u32, u32), Ask>,
    /// Promises for the open proposal.
    pub promises: BTreeMap<u32, Promise>,
    /// The last calls of members that have said goodbye in this view.
    pub goodbyes: BTreeMap<u32, u32>,
    /// Whether the device has a place for the view of the record: no call needs the oldest of those that it holds.
    pub has_place: bool,
    /// Whether this rank has calls to make before the view of the record.
    pub behind: bool,
    /// Whether this rank and all living members are through with every call before the view of the record.
    pub through: bool,
    /// The last call that the device has started.
    pub started: u32,
    /// A rank is connected with a later generation of this newcomer's slot.
    pub overtaken: bool,
}

impl<S: Span> Own<S> {
    /// A rank that asks to be taken in.
    pub fn newcomer(slot: u32, generation: u32) -> Self {
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

    /// Returns whether it is a member of the view of `record`.
    pub fn is_member(&self, record: &Record) -> bool {
        record.is_member(self.slot, self.generation)
    }

    /// Returns whether the newest view is in force here.
    pub fn is_current(&self, record: &Record) -> bool {
        self.applied == record.epoch
    }

    /// Returns whether the view to be has this very rank, and it has promised the open proposal.
    pub fn has_promised(&self, record: &Record) -> bool {
        self.promised.is_some_and(|(of, _)| of == record.number)
    }

    /// Returns whether the proposal that is open names it.
    pub fn is_proposed(&self, record: &Record) -> bool {
        let Some(open) = &record.open else {
            return false;
        };
        let comes = open.takes.get(self.slot) == Some(self.generation);
        comes || self.is_member(record) && open.keep.contains(self.slot)
    }

    /// P4: what it promises, once it is closed: once per view, later proposals have the same number.
    pub fn promise(&self, record: &Record, started: u32) -> Promise {
        let last = match (self.promised, self.limit) {
            _ if !self.is_member(record) => None,
            (Some((_, promise)), _) => promise.last,
            (None, Limit::UpTo(last)) => Some(last),
            (None, Limit::Closed | Limit::Open) => Some(started),
        };
        Promise { last }
    }
}
