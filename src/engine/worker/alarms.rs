//! What a worker does at a moment: deadlines, and the grace after them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::time::{Duration, Instant};

use crate::engine::ids::TransferId;
use crate::engine::transfers::Transfers;

/// Least time between two looks of a worker that waits for a fence.
const LEAST_GRACE: Duration = Duration::from_millis(1);

/// What a worker does with a transfer at a moment, unless it is concluded by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// Its deadline closes it.
    Deadline,
    /// QPs that still hold slices of it go to the error state.
    Grace,
}

/// An alarm whose moment has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) what: Alarm,
    pub(super) id: TransferId,
}

/// The alarms of one worker.
#[derive(Debug)]
pub(super) struct Alarms {
    /// The next comes first. Some are of transfers that are concluded.
    heap: BinaryHeap<Reverse<Entry>>,
}

/// Entries are in the order of their moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    when: Instant,
    what: Alarm,
    id: TransferId,
}

impl Alarms {
    pub(super) fn new() -> Self {
        Self {
            heap: BinaryHeap::with_capacity(64),
        }
    }

    /// Sets an alarm. Alarms of concluded transfers go first when there are many.
    pub(super) fn set(&mut self, when: Instant, what: Alarm, id: TransferId, of: &Transfers) {
        if self.heap.len() > 4 * of.slots() {
            self.heap
                .retain(|Reverse(entry)| of.link_of(entry.id).is_some());
        }
        self.heap.push(Reverse(Entry { when, what, id }));
    }

    /// Sets the alarm for the end of the grace of a transfer that was closed.
    pub(super) fn begin_grace(&mut self, grace: Duration, id: TransferId, of: &Transfers) {
        if let Some(end) = Instant::now().checked_add(grace.max(LEAST_GRACE)) {
            self.set(end, Alarm::Grace, id, of);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Takes an alarm whose moment has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Due> {
        let next = self.heap.peek_mut()?;
        let Reverse(Entry { when, what, id }) = *next;
        (when <= now).then(|| {
            PeekMut::pop(next);
            Due { what, id }
        })
    }

    /// Returns how long it is until the next alarm.
    pub(super) fn next_in(&self) -> Option<Duration> {
        let Reverse(next) = self.heap.peek()?;
        Some(next.when.saturating_duration_since(Instant::now()))
    }
}
