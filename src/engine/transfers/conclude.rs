//! The end of a transfer: its slices finish, it is closed, and it is concluded once the HCA has nothing more of it. The report.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::place::{Place, Retry, first_cause};
use super::work::Lost;
use super::{Transfers, count};
use crate::engine::error::EngineError;
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::{Change, Close, Outcome};
use crate::engine::ledger::plan::Plan;
use crate::engine::ledger::report::{FirstCause, OperationStatus, Remote, Report};
use crate::engine::ledger::slots::Status;
use crate::engine::memory::table::LocalTable;
use crate::engine::route::link::{Fence, Link};
use crate::engine::route::rails::number_of;
use crate::engine::transfers::queue::Item;
use crate::error::ThreadPanicked;
use crate::provider::{Cause, Tag};

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
        let lane = lost.lane.unwrap_or(way.link.lanes().qps());
        let rail = way.link.lanes().crossing(lane).own;
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

    pub(super) fn settle_if(&self, slot: u32, change: Change) {
        let place = &self.places[slot as usize];
        if change.settles(place.total.load(Ordering::Relaxed)) {
            let id = place.read().id;
            if let Some(id) = id {
                self.settle(id);
            }
        }
    }

    /// Concludes a settled transfer, or lets it wait for the fence of its link. One that is concluded already stays as it is.
    pub(in crate::engine) fn settle(&self, id: TransferId) {
        let place = &self.places[id.slot() as usize];
        let body = place.read();
        let Some(way) = body.way.as_ref().filter(|_| body.id == Some(id)) else {
            return;
        };
        let (account, total) = (place.account.load(), place.total.load(Ordering::Relaxed));
        if !account.is_settled(total) {
            return;
        }
        let lost = place.failures().lost;
        let fence = way.link.behind_fence(id, &lost);
        drop(body);
        if let Some(fence) = fence {
            self.conclude(id, account.outcome(total), fence);
        }
    }

    /// Both ends have reset the pair of a lane: what has waited for that is concluded, unless it waits for another.
    pub(in crate::engine) fn fence_lane(&self, link: &Link, lane: usize) {
        for id in link.fence_lane(lane) {
            self.settle(id);
        }
    }

    /// The link has ended, and its fence stands: what has waited for it is concluded, and what a worker held that has panicked.
    pub(in crate::engine) fn end(&self, link: &Link, fence: Fence) {
        let left = link.fence(fence);
        for id in left.waiting {
            let place = &self.places[id.slot() as usize];
            let total = place.total.load(Ordering::Relaxed);
            self.conclude(id, place.account.load().outcome(total), fence);
        }
        if let Some(panicked) = left.panicked {
            self.write_off(link, &panicked, fence);
        }
    }

    /// Concludes all transfers of a link that has ended. No worker has a lane of it, so none finishes a slice of them.
    pub(in crate::engine) fn write_off(
        &self,
        link: &Link,
        panicked: &ThreadPanicked,
        fence: Fence,
    ) {
        for place in &self.places {
            let body = place.read();
            let is_of_link = body
                .way
                .as_ref()
                .is_some_and(|it| it.link.number == link.number);
            let Some(id) = body.id.filter(|_| is_of_link) else {
                continue;
            };
            let total = place.total.load(Ordering::Relaxed);
            let mut failures = place.failures();
            if !place.account.load().is_settled(total) {
                failures.panicked = Some(panicked.clone());
            }
            self.totals.give_up(count(failures.to_retry.len()));
            failures.to_retry.clear();
            place.to_retry.store(0, Ordering::Release);
            let outcome = place.account.write_off(total).after.outcome(total);
            drop(failures);
            drop(body);
            self.conclude(id, outcome, fence);
        }
    }

    pub(super) fn conclude(&self, id: TransferId, outcome: Outcome, fence: Fence) {
        let outcome = match fence {
            Fence::Whole => outcome,
            Fence::RemoteUnknown => Outcome::Failed,
        };
        let place = &self.places[id.slot() as usize];
        let is_flushed = self.flush_reads(id);
        let outcome = if is_flushed { outcome } else { Outcome::Failed };
        let mut body = place.write();
        if body.id != Some(id) {
            return;
        }
        let Some(way) = body.way.take() else {
            return;
        };
        let first = {
            let mut failures = place.failures();
            failures.is_remote_unknown = fence == Fence::RemoteUnknown;
            failures.is_unflushed = !is_flushed;
            if !is_flushed {
                let cause = Cause::of_system(libc::EIO);
                let unflushed = first_cause(&body, 0, (None, None), Some(cause));
                failures.first.get_or_insert(unflushed);
            }
            failures.first
        };
        leave_all(body.plan(), &way.local);
        let (total, bytes) = (body.plan().slices(), body.plan().bytes());
        let handed = place.account.load().handed();
        let (notice, is_for_nic) = (body.notice.take(), body.is_for_nic());
        drop(body);
        // A thread that sees the conclusion may end the connection, so the notice goes first.
        if let Some(notice) = notice {
            notice.conclude(outcome, first);
        }
        self.totals.give_up(total.saturating_sub(handed));
        self.totals.conclude(outcome, bytes);
        let concluded = self.slots.conclude(id, outcome);
        debug_assert_eq!(concluded, Ok(true), "{id:?} is concluded once");
        way.link.end_transfer(is_for_nic);
        self.waiting.conclude(id);
    }

    /// What a transfer has read has come to the GPU for whose memory it was, if a GPU has to be asked for that. `false`: not.
    fn flush_reads(&self, id: TransferId) -> bool {
        if !self.flushes.is_needed() {
            return true;
        }
        let body = self.places[id.slot() as usize].read();
        let is_wanted = body.id == Some(id) && body.way.is_some() && body.fills_gpu();
        drop(body);
        let flushed = if is_wanted {
            self.flushes.flush()
        } else {
            Ok(())
        };
        flushed
            .inspect_err(|error| tracing::error!("transfer {id:?} has read into a GPU: {error}"))
            .is_ok()
    }

    /// What became of a transfer that is concluded and not released.
    pub(in crate::engine) fn report(&self, id: TransferId) -> Result<Report, EngineError> {
        let outcome = match self.slots.poll(id)? {
            Status::Concluded(outcome) => outcome,
            Status::Pending => return Err(EngineError::Pending { id }),
            Status::Unknown => return Err(EngineError::Released { id }),
        };
        let place = &self.places[id.slot() as usize];
        let body = place.read();
        if body.id != Some(id) {
            return Err(EngineError::Released { id });
        }
        let mut operations = vec![OperationStatus::Done; body.operations as usize];
        let mut failures = place.failures();
        failures.slices.sort_unstable();
        let (plan, handed) = (body.plan(), place.account.load().handed());
        let was_written_off = failures.panicked.is_some() || failures.is_unflushed;
        let mut missing = 0;
        let is_whole = outcome == Outcome::Done && failures.slices.is_empty();
        let numbers = 0..if is_whole { 0 } else { plan.slices() };
        for (slice, number) in plan.range(numbers.clone()).zip(numbers) {
            let has_failed = failures.slices.binary_search(&number).is_ok()
                || was_written_off && number < handed;
            let status = match has_failed {
                true => OperationStatus::Failed,
                false if number >= handed => OperationStatus::NotPosted,
                false => continue,
            };
            missing += u64::from(slice.bytes);
            let range = slice.operations.start as usize..slice.operations.end as usize;
            for operation in operations.get_mut(range).unwrap_or_default() {
                if *operation != OperationStatus::Failed {
                    *operation = status;
                }
            }
        }
        Ok(Report {
            outcome,
            operations,
            bytes_landed: plan.bytes() - missing,
            first: failures.first,
            device: None,
            panicked: failures.panicked.clone(),
            overlaps: body.overlaps,
            remote: match failures.is_remote_unknown {
                true => Remote::Unknown,
                false => Remote::Quiet,
            },
        })
    }
}

fn leave_all(plan: &Plan, local: &LocalTable) {
    for number in plan.local_regions() {
        if let Some(region) = local.get(number) {
            region.owner.leave();
        }
    }
}
