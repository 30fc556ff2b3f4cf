//! What a worker does at a moment: deadlines, and the grace after them.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::time::{Duration, Instant};

use super::Worker;
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::Close;
use crate::provider::{Lane, Provider};

/// A worker that waits for a fence does not look more often.
const LEAST_GRACE: Duration = Duration::from_millis(1);

/// What a worker does with a transfer at a moment, unless it is concluded by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// Its deadline closes it.
    Deadline,
    /// QPs that still hold slices of it go to the error state.
    Grace,
}

impl<P: Provider> Worker<P> {
    pub(super) fn set_alarm(&mut self, when: Instant, what: Alarm, id: TransferId) {
        if self.alarms.len() > 4 * self.transfers.slots() {
            let transfers = &self.transfers;
            self.alarms
                .retain(|Reverse((_, _, id))| transfers.link_of(*id).is_some());
        }
        self.alarms.push(Reverse((when, what, id)));
    }

    pub(super) fn begin_grace(&mut self, id: TransferId) {
        let grace = self.pace.grace.max(LEAST_GRACE);
        if let Some(end) = Instant::now().checked_add(grace) {
            self.set_alarm(end, Alarm::Grace, id);
        }
    }

    /// Sees to all transfers whose moment has come.
    pub(super) fn ring_alarms(&mut self) {
        if self.alarms.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((what, id)) = self.next_due(now) {
            match what {
                Alarm::Deadline => self.transfers.close(id, Close::TimedOut),
                Alarm::Grace => self.end_lanes_of(id),
            }
            // As long as a QP may hold slices of it: some may be posted that were handed out before.
            if self.transfers.link_of(id).is_some() {
                self.begin_grace(id);
            }
        }
    }

    fn next_due(&mut self, now: Instant) -> Option<(Alarm, TransferId)> {
        let next = self.alarms.peek_mut()?;
        let Reverse((when, what, id)) = *next;
        (when <= now).then(|| {
            PeekMut::pop(next);
            (what, id)
        })
    }

    /// QPs that hold slices of the transfer go to the error state, if it is not concluded.
    fn end_lanes_of(&mut self, id: TransferId) {
        let Some(link) = self.transfers.link_of(id) else {
            return;
        };
        for work in &mut self.links {
            if work.link.number != link {
                continue;
            }
            for held in &mut work.lanes {
                let slot = id.slot();
                if held.lane.holds(slot) && !held.lane.flush(Some(slot)) {
                    held.end();
                }
            }
        }
    }

    pub(super) fn next_alarm(&self) -> Option<Duration> {
        let Reverse((next, ..)) = self.alarms.peek()?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}
