//! The contents of a look: what a rank knows of itself, what ranks tell each other, and what a look shows.

use std::collections::BTreeMap;

use crate::clocks::{Clock, Span};
use crate::record::{Promise, Record};
use crate::slots::Slots;

/// The calls that a rank's device may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No call.
    Closed,
    /// The calls up to this one.
    UpTo(u32),
    /// All calls.
    Open,
}

/// The wish of a rank to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// The rank stays.
    No,
    /// The rank wants to leave, and has not said so in this view.
    Wants,
    /// The rank has said that it leaves: its limit is its last call.
    Said,
}

/// What a rank knows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own<S> {
    /// The slot of this rank in the team.
    pub slot: u32,
    /// The generation of the rank that this process is, from 1 on.
    pub generation: u32,
    /// Epoch of the newest view that its device has; 0 before the first.
    pub applied: u32,
    /// Calls that the device of this rank may start.
    pub limit: Limit,
    /// The promise for the view after `applied`, and the newest proposal for which it was given.
    pub promised: Option<(u64, Promise)>,
    /// Ranks to which this rank's QPs are in Err for the change under way.
    pub fenced: Slots,
    /// Ranks to which a QP is in Err.
    pub broken: Slots,
    /// Ranks to which the QPs were made anew: newcomers, and ranks from which this one is parted.
    pub connected: Slots,
    /// Ranks to which the QPs were made anew and carry nothing: newcomers, and members that a newcomer has found.
    pub unproven: Slots,
    /// The clock of each rank that is not heard.
    pub unheard: BTreeMap<u32, Clock<S>>,
    /// The clock of each rank without contact.
    pub apart: BTreeMap<u32, Clock<S>>,
    /// The number of the proposal for which the clock runs, and how long it has been unanswered.
    pub unanswered: (u64, S),
    /// True if this rank has proposed itself alone in this view (P3).
    pub solo: bool,
    /// This rank's wish to leave.
    pub leaving: Leaving,
}

/// What a rank tells the others. It is one key, which the rank writes when the row changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Ranks of which this rank has heard nothing for U.
    pub unheard: Slots,
    /// Members to which a QP is in Err although no view parts the pair.
    pub broken: Slots,
    /// Members without contact for the stall bound.
    pub overdue: Slots,
    /// Members of which a word has arrived since the last look, and to which no QP is broken.
    pub meets: Slots,
    /// Ranks to which the QPs were made anew, and have carried a write each way.
    pub connected: Slots,
    /// Ranks to which the QPs were made anew, and have carried no write for twice as long as an HCA tries.
    pub unproven: Slots,
    /// Members whose process this rank has seen to end, if it is the rank that reports ends for its machine.
    pub ended: Slots,
    /// True if the view parts this rank from members, and it has calls to make from before that view. Until it has made them it connects
    /// with none of these members.
    pub behind: bool,
}

impl Row {
    /// Returns whether the row says something against others that may part or expel them.
    pub fn accuses(&self) -> bool {
        let against = [&self.unheard, &self.broken, &self.overdue, &self.ended];
        !against.into_iter().all(Slots::is_empty)
    }
}

/// A rank that asks to be taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// True if this generation holds its lease.
    pub holds: bool,
    /// The row that this generation has written.
    pub row: Row,
}

/// What a look shows. Sets of slots are of the generations that the record names.
#[derive(Clone, Debug, Default)]
pub struct Look<S> {
    /// Time since the end of the look before.
    pub passed: S,
    /// Time of the slowest store call since then. A call that failed counts as longer than any bound.
    pub call: S,
    /// Slots that hold a lease. This rank has just renewed its own.
    pub holders: Slots,
    /// Slots whose `takings` have grown since the last look, or that have written a proposal or promise since then.
    pub wrote: Slots,
    /// Slots from which a word has arrived since the last look, or to which a QP has completed something since then.
    pub heard: Slots,
    /// Slots from or to which this happened within the stall bound: calls that wait for a third rank send nothing for a while.
    pub contact: Slots,
    /// True if this rank makes calls. If it makes none, the words that arrive from others show that they live, and not that they exchange
    /// anything with this rank.
    pub calls: bool,
    /// Slots for which calls wait, and from which nothing has come since the last look.
    pub silent: Slots,
    /// Slots whose process on this machine was seen to end: of members, and of newcomers of the open proposal.
    pub ended: Slots,
    /// Ranks on the machine of this one, this one included. All of them see the same processes end.
    pub beside: Slots,
    /// Rows of members that hold a lease. The row of this rank is put in from the result of
    /// [`Rules::observe`](crate::evidence::Rules::observe).
    pub rows: BTreeMap<u32, Row>,
    /// The ranks that ask, by slot and generation.
    pub asks: BTreeMap<(u32, u32), Ask>,
    /// Promises for the open proposal.
    pub promises: BTreeMap<u32, Promise>,
    /// The last calls of members that have said goodbye in this view.
    pub goodbyes: BTreeMap<u32, u32>,
    /// True if the device has a place for the view of the record. It has one when no call needs the oldest view that it holds.
    pub has_place: bool,
    /// True if this rank has calls to make from before the view of the record.
    pub behind: bool,
    /// True if this rank and all living members have made every call before the view of the record.
    pub through: bool,
    /// The last call that the device has started.
    pub started: u32,
    /// True if a rank is connected with a later generation of this newcomer's slot.
    pub overtaken: bool,
}

impl<S: Span> Own<S> {
    /// Returns the state of a rank that asks to be taken in.
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

    /// Returns whether this rank is a member of the view of `record`.
    pub fn is_member(&self, record: &Record) -> bool {
        record.is_member(self.slot, self.generation)
    }

    /// Returns whether the device of this rank has the view of `record`.
    pub fn is_current(&self, record: &Record) -> bool {
        self.applied == record.epoch
    }

    /// Returns whether this rank has promised the open proposal of `record`.
    pub fn has_promised(&self, record: &Record) -> bool {
        self.promised.is_some_and(|(of, _)| of == record.number)
    }

    /// Returns whether the open proposal of `record` names this rank.
    pub fn is_proposed(&self, record: &Record) -> bool {
        let Some(open) = &record.open else {
            return false;
        };
        let comes = open.takes.get(self.slot) == Some(self.generation);
        comes || self.is_member(record) && open.keep.contains(self.slot)
    }

    /// P4: returns what this rank promises, once its calls are closed. It promises one last call in a view, and later proposals get the
    /// same.
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
