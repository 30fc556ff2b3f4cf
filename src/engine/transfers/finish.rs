//! Workers finish slices, and close a transfer of which nothing more is to be handed out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::place::{Place, Retry, first_cause};
use super::{Transfers, count};
use crate::engine::error::EngineError;
use crate::engine::ledger::account::{Change, Close};
use crate::engine::ledger::report::FirstCause;
use crate::engine::ledger::slots::{Status, TransferId};
use crate::engine::route::rails::number_of;
use crate::engine::transfers::queue::Item;
use crate::provider::{Cause, Tag};

/// Where a WQE has failed: a life of a lane.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Lost {
    /// Which lane of its link, where packets may be under way; none of a copy.
    pub(in crate::engine) lane: Option<usize>,
    pub(in crate::engine) life: u32,
    /// Number of the QP.
    pub(in crate::engine) qp: Option<u32>,
    /// The QP has failed by a WQE that was wrong itself: one that was only flushed behind it has not been tried.
    pub(in crate::engine) is_refused: bool,
}

impl Transfers {
    /// Finishes `slices` of the transfer in this slot, which are done.
    pub(in crate::engine) fn done(&self, slot: u32, slices: u32) {
        let change = self.places[slot as usize].account.finish(slices, false);
        self.settle_if(slot, change);
    }

    /// Finishes a slice that no QP has taken.
    pub(in crate::engine) fn refused(&self, tag: Tag, (qp, rail): (u32, usize)) {
        let place = &self.places[tag.slot as usize];
        place.note(&place.read(), tag, (Some(qp), number_of(rail)), None);
        place.failures().slices.push(tag.slice);
        self.fail(tag.slot);
    }

    /// A slice was posted and has failed by this cause. Another QP of the link tries it again at once, if it may: only the conclusion
    /// waits for the fence.
    pub(in crate::engine) fn flushed(&self, tag: Tag, lost: Lost, cause: Cause) {
        let place = &self.places[tag.slot as usize];
        let body = place.read();
        let (Some(id), Some(way)) = (body.id, &body.way) else {
            return;
        };
        // All copies cross alike: the first stands for them.
        let lane = lost.lane.unwrap_or(way.link.qps());
        let rail = way.link.crossing(lane).own;
        place.note(&body, tag, (lost.qp, number_of(rail)), Some(cause));
        let mut failures = place.failures();
        if let Some(life) = lost.lane.and_then(|lane| failures.lost.get_mut(lane)) {
            *life = lost.life.max(*life);
        }
        let (tries, tried) = failures.retries.entry(tag.slice).or_default();
        let is_try = !(lost.is_refused && cause.is_flush());
        let has_tries = *tries < self.retry || !is_try && self.retry > 0;
        // It may have counted; a copy that has failed has not.
        let may_count = body.counter.is_some() && lost.lane.is_some();
        let may_retry = has_tries && !may_count && !cause.is_of_the_request() && way.link.is_open();
        // A thread that closes the account gives up, after that, the slices that are to be posted again.
        if may_retry && !place.account.load().is_closed() {
            *tries += u32::from(is_try);
            *tried |= u32::from(is_try) << lane;
            let slice = tag.slice;
            let retry = Retry {
                slice,
                tried: *tried,
            };
            // With the first of its kind workers learn of it. Each has the transfer until nothing is left that it may take.
            let is_first = failures.to_retry.iter().all(|it| it.tried != retry.tried);
            self.totals.retry();
            failures.to_retry.push(retry);
            place
                .to_retry
                .store(count(failures.to_retry.len()), Ordering::Release);
            drop(failures);
            let (link, deadline) = (Arc::clone(&way.link), body.deadline);
            drop(body);
            if is_first {
                let open = link.open_workers();
                match open.is_empty() {
                    true => self.give(id, (&link, deadline), link.workers(false)),
                    false => self.give(id, (&link, deadline), &open),
                }
            }
            return;
        }
        failures.slices.push(tag.slice);
        drop(failures);
        drop(body);
        self.fail(tag.slot);
    }

    /// Finishes one slice as failed for good, and what was to be posted again.
    fn fail(&self, slot: u32) {
        let place = &self.places[slot as usize];
        let change = place.account.finish(1, true);
        let behind = self.give_up_retries(place);
        self.settle_if(slot, change);
        if let Some(behind) = behind {
            self.settle_if(slot, behind);
        }
    }

    /// Nothing more is handed out of the transfer, because of this. A worker calls it.
    pub(in crate::engine) fn close(&self, id: TransferId, why: Close) {
        let place = &self.places[id.slot() as usize];
        // No other transfer begins in the slot while the body is read.
        let body = place.read();
        let Some(way) = body.way.as_ref().filter(|_| body.id == Some(id)) else {
            return;
        };
        if why == Close::Failed {
            let mut failures = place.failures();
            failures.panicked = way.link.panicked();
            if let Some(cause) = way.link.cause_of_end() {
                let next = place.account.load().handed();
                let is_flush = |first: FirstCause| first.cause.is_some_and(Cause::is_flush);
                if failures.first.is_none_or(is_flush) {
                    failures.first = Some(first_cause(&body, next, (None, None), Some(cause)));
                }
            }
        }
        let change = place.account.close(why);
        let behind = self.give_up_retries(place);
        drop(body);
        self.settle_if(id.slot(), change);
        if let Some(behind) = behind {
            self.settle_if(id.slot(), behind);
        }
    }

    /// Nothing more is handed out. What was, the HCA finishes; a worker concludes.
    pub(in crate::engine) fn cancel(&self, id: TransferId) -> Result<(), EngineError> {
        let place = match self.slots.poll(id)? {
            Status::Pending => &self.places[id.slot() as usize],
            Status::Concluded(_) => return Ok(()),
            Status::Unknown => return Err(EngineError::Released { id }),
        };
        let body = place.read();
        let Some(way) = body.way.as_ref().filter(|_| body.id == Some(id)) else {
            return Ok(());
        };
        let link = Arc::clone(&way.link);
        let change = place.account.close(Close::Cancelled);
        let behind = self.give_up_retries(place);
        let total = place.total.load(Ordering::Relaxed);
        drop(body);
        let is_settled =
            change.settles(total) || behind.is_some_and(|change| change.settles(total));
        let workers = link.workers(false);
        if is_settled && let Some(worker) = workers.first() {
            self.queues[*worker as usize].push(Item::Settle(id));
        } else {
            for worker in workers {
                self.queues[*worker as usize].push(Item::Closed(id));
            }
        }
        Ok(())
    }

    /// The first step of a cancel, before the next.
    #[cfg(test)]
    pub(in crate::engine) fn begin_cancel(&self, id: TransferId) {
        let place = &self.places[id.slot() as usize];
        place.account.close(Close::Cancelled);
    }

    /// Finishes as failed what was to be posted again, of an account that is closed.
    ///
    /// It always looks under the lock: a worker may be about to give a slice back that has seen the account open.
    fn give_up_retries(&self, place: &Place) -> Option<Change> {
        let mut failures = place.failures();
        let left = std::mem::take(&mut failures.to_retry);
        place.to_retry.store(0, Ordering::Release);
        failures.slices.extend(left.iter().map(|it| it.slice));
        // Under the lock: none of them is finished by another too.
        self.totals.give_up(count(left.len()));
        (!left.is_empty()).then(|| place.account.finish(count(left.len()), true))
    }
}
