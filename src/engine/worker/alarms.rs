//! The alarms of a worker: deadlines of transfers, and the grace after them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::time::{Duration, Instant};

use crate::engine::ids::TransferId;
use crate::engine::transfers::Transfers;

/// The shortest time between two looks of a worker that waits for a fence.
const LEAST_GRACE: Duration = Duration::from_millis(1);

/// What a worker does with a transfer at the time of the alarm, unless the transfer is concluded by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// The deadline closes the transfer.
    Deadline,
    /// QPs that still hold slices of the transfer go to the error state.
    Grace,
}

/// An alarm whose time has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) what: Alarm,
    pub(super) id: TransferId,
}

/// The alarms of one worker.
#[derive(Debug)]
pub(super) struct Alarms {
    /// The alarms, the next first. Some are for transfers that are concluded.
    heap: BinaryHeap<Reverse<Entry>>,
}

/// An alarm. The order of entries is that of their times.
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

    /// Sets an alarm. If there are many alarms, those of concluded transfers are removed first.
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

    /// Takes an alarm whose time has come.
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
