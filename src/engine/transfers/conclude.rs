//! The end of a transfer: its slices finish, it is closed, and it is concluded once the HCA has nothing more of it. Its report is here too.

use std::sync::Arc;

use super::failures::{Failures, Fate, Lost, LostSlice};
use super::place::{Body, By, Place};
use super::queue::Task;
use super::waiting::Waiting;
use crate::engine::error::EngineError;
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::{Change, Close, Outcome};
use crate::engine::ledger::plan::Plan;
use crate::engine::ledger::report::{OperationStatus, Remote, Report};
use crate::engine::ledger::slots::{Slots, Status};
use crate::engine::ledger::tally::Totals;
use crate::engine::memory::flush::Flushes;
use crate::engine::memory::table::LocalTable;
use crate::engine::route::crossing::number_of;
use crate::engine::route::fences::Fence;
use crate::engine::route::link::Link;
use crate::error::ThreadPanicked;
use crate::provider::{Cause, Tag};

/// The slots of an engine, and what the end of a transfer changes: waiters, totals, and GPUs that are flushed.
#[derive(Debug)]
pub(super) struct Conclusions {
    slots: Slots,
    waiting: Waiting,
    totals: Totals,
    flushes: Arc<Flushes>,
    /// The most times that a slice is posted again.
    retry: u32,
}

/// A transfer with slices that are to be posted again, which workers have not heard of.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) task: Task,
    pub(super) link: Arc<Link>,
}

/// A transfer that was cancelled.
#[derive(Debug)]
pub(super) struct Cancelled {
    pub(super) link: Arc<Link>,
    /// True if no worker holds slices of it. Then the thread that cancels lets it be concluded.
    pub(super) is_settled: bool,
}

impl Conclusions {
    pub(super) fn new(slots: Slots, retry: u32) -> Self {
        Self {
            slots,
            waiting: Waiting::default(),
            totals: Totals::default(),
            flushes: Arc::default(),
            retry,
        }
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(super) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    pub(super) fn totals(&self) -> &Totals {
        &self.totals
    }

    pub(super) fn flushes(&self) -> &Arc<Flushes> {
        &self.flushes
    }

    /// Takes a slot for a transfer.
    pub(super) fn take_slot(&self) -> Result<TransferId, EngineError> {
        let slots = self.slots.count();
        self.slots.take().ok_or_else(|| {
            self.totals.refuse();
            EngineError::WouldBlock { slots }
        })
    }

    /// Gives back the slot of a transfer that has not begun.
    pub(super) fn give_slot_back(&self, id: TransferId) -> Result<(), EngineError> {
        self.slots.conclude(id, Outcome::Failed)?;
        self.release(id)
    }

    /// Gives back the slot of a concluded transfer.
    pub(super) fn release(&self, id: TransferId) -> Result<(), EngineError> {
        self.slots.release(id)?;
        self.waiting.change();
        Ok(())
    }

    /// Counts a transfer of `slices` slices that begins.
    pub(super) fn begin(&self, slices: u32) {
        self.totals.submit(slices);
    }

    /// Finishes slices that are done.
    pub(super) fn done(&self, place: &Place, slices: u32) {
        let change = place.account.finish(slices, false);
        self.settle_by(place, change);
    }

    /// Finishes a slice that no QP has taken.
    pub(super) fn refused(&self, place: &Place, slice: u32, by: By) {
        let first = place.read().first_cause(slice, by, None);
        place.failures.note(first);
        place.failures.add(slice);
        self.fail(place);
    }

    /// Handles a slice that was posted and has failed by this cause. If it may be retried, another QP of the link posts it again at once:
    /// only the conclusion waits for the fence. Returns the transfer if workers must hear of the retry.
    pub(super) fn flushed(
        &self,
        place: &Place,
        tag: Tag,
        lost: Lost,
        cause: Cause,
    ) -> Option<Again> {
        let body = place.read();
        let (Some(id), Some(way)) = (body.id, &body.way) else {
            return None;
        };
        // All lanes that copy have the same crossing, so the first stands for all.
        let lane = lost.lane.unwrap_or(way.link.lanes().qps());
        let by = By {
            qp: lost.qp,
            rail: number_of(way.link.lanes().crossing(lane).own),
        };
        place
            .failures
            .note(body.first_cause(tag.slice, by, Some(cause)));
        // A WRITE of a QP that has failed may have counted at the peer. A copy that has failed has not.
        let may_count = body.counter.is_some() && lost.lane.is_some();
        let slice = LostSlice {
            slice: tag.slice,
            lane,
            lost,
            cause,
            may_retry: !may_count && !cause.is_of_the_request() && way.link.is_open(),
            tries: self.retry,
        };
        match place.failures.lose(&slice, &place.account, &self.totals) {
            Fate::Final => {
                drop(body);
                self.fail(place);
                None
            }
            // Each worker has the transfer until no slice is left that it may take. So workers hear only of the first slice of each kind.
            Fate::Again { is_news } => is_news.then(|| Again {
                task: Task {
                    id,
                    deadline: body.deadline,
                },
                link: Arc::clone(&way.link),
            }),
        }
    }

    /// Finishes one slice as failed for good, and the slices that were to be posted again.
    fn fail(&self, place: &Place) {
        let change = place.account.finish(1, true);
        let given_up = place.failures.give_up(&place.account, &self.totals);
        self.settle_by_both(place, change, given_up);
    }

    /// Closes a transfer for this reason: workers take no more slices of it. A worker calls this.
    pub(super) fn close(&self, place: &Place, id: TransferId, why: Close) {
        // The lock makes sure that no other transfer begins in the slot.
        let body = place.read();
        let Some(way) = body.way_of(id) else {
            return;
        };
        if why == Close::Failed {
            let next = place.account.load().handed();
            let cause = way.link.local().and_then(|way| way.reach.cause_of_end());
            let first = cause.map(|cause| body.first_cause(next, By::default(), Some(cause)));
            place.failures.end(way.link.fences().panicked(), first);
        }
        let change = place.account.close(why);
        let given_up = place.failures.give_up(&place.account, &self.totals);
        drop(body);
        self.settle_by_both(place, change, given_up);
    }

    /// Cancels a transfer: workers take no more slices of it. The HCA finishes the slices that it has, and a worker concludes the
    /// transfer. Returns none if the transfer is concluded already.
    pub(super) fn cancel(
        &self,
        place: &Place,
        id: TransferId,
    ) -> Result<Option<Cancelled>, EngineError> {
        match self.slots.poll(id)? {
            Status::Pending => {}
            Status::Concluded(_) => return Ok(None),
            Status::Unknown => return Err(EngineError::Released { id }),
        }
        let body = place.read();
        let Some(way) = body.way_of(id) else {
            return Ok(None);
        };
        let change = place.account.close(Close::Cancelled);
        let given_up = place.failures.give_up(&place.account, &self.totals);
        let is_settled = place.is_settled_by(change)
            || given_up.is_some_and(|change| place.is_settled_by(change));
        Ok(Some(Cancelled {
            link: Arc::clone(&way.link),
            is_settled,
        }))
    }

    /// Settles by the change that has closed the account, then by the change that gave up slices to be posted again.
    fn settle_by_both(&self, place: &Place, closed: Change, given_up: Option<Change>) {
        self.settle_by(place, closed);
        if let Some(change) = given_up {
            self.settle_by(place, change);
        }
    }

    fn settle_by(&self, place: &Place, change: Change) {
        if place.is_settled_by(change) {
            let id = place.read().id;
            if let Some(id) = id {
                self.settle(place, id);
            }
        }
    }

    /// Concludes a settled transfer, or lets it wait for the fence of its link. A transfer that is concluded already stays as it is.
    pub(super) fn settle(&self, place: &Place, id: TransferId) {
        let body = place.read();
        let Some(way) = body.way_of(id) else {
            return;
        };
        let (account, total) = (place.account.load(), place.total());
        if !account.is_settled(total) {
            return;
        }
        let fence = way.link.fences().after(&place.failures.lost(), id);
        drop(body);
        if let Some(fence) = fence {
            self.conclude(place, id, account.outcome(total), fence);
        }
    }

    /// Concludes a transfer that has waited for the fence of its link.
    pub(super) fn conclude_settled(&self, place: &Place, id: TransferId, fence: Fence) {
        let outcome = place.account.load().outcome(place.total());
        self.conclude(place, id, outcome, fence);
    }

    /// Concludes the transfer of the slot if it is a transfer of this link, which has ended. No worker has a lane of the link, so none
    /// finishes a slice of the transfer.
    pub(super) fn write_off(
        &self,
        place: &Place,
        link: &Link,
        panicked: &ThreadPanicked,
        fence: Fence,
    ) {
        let body = place.read();
        let way = body.way.as_ref();
        let is_of_link = way.is_some_and(|it| it.link.number() == link.number());
        let Some(id) = body.id.filter(|_| is_of_link) else {
            return;
        };
        let (account, total) = (&place.account, place.total());
        let change = (place.failures).write_off(panicked, account, total, &self.totals);
        drop(body);
        self.conclude(place, id, change.after.outcome(total), fence);
    }

    pub(super) fn conclude(&self, place: &Place, id: TransferId, outcome: Outcome, fence: Fence) {
        let is_flushed = self.flush_reads(place, id);
        let outcome = if is_flushed && fence == Fence::Whole {
            outcome
        } else {
            Outcome::Failed
        };
        let mut body = place.write();
        if body.id != Some(id) {
            return;
        }
        let Some(way) = body.way.take() else {
            return;
        };
        let unflushed = || body.first_cause(0, By::default(), Some(Cause::of_system(libc::EIO)));
        let unflushed = (!is_flushed).then(unflushed);
        let is_remote_unknown = fence == Fence::RemoteUnknown;
        let first = place.failures.conclude(is_remote_unknown, unflushed);
        leave_all(body.plan(), &way.tables.local);
        let (total, bytes) = (body.plan().slices(), body.plan().bytes());
        let handed = place.account.load().handed();
        let (notice, is_for_nic) = (body.notice.take(), body.is_for_nic());
        drop(body);
        // A thread that sees the conclusion may end the connection, so the notice is sent before it.
        if let Some(notice) = notice {
            notice.conclude(outcome, first);
        }
        self.totals.give_up(total.saturating_sub(handed));
        self.totals.conclude(outcome, bytes);
        let concluded = self.slots.conclude(id, outcome);
        debug_assert_eq!(concluded, Ok(true), "{id:?} is concluded once");
        way.link.load().end(is_for_nic);
        self.waiting.conclude(id);
    }

    /// Flushes the GPUs if the transfer has read into memory of a GPU and a flush is needed. Returns false if the flush fails.
    fn flush_reads(&self, place: &Place, id: TransferId) -> bool {
        if !self.flushes.is_needed() {
            return true;
        }
        let body = place.read();
        let is_wanted = body.way_of(id).is_some() && body.fills_gpu();
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

    /// Returns what became of a transfer that is concluded and not released.
    pub(super) fn report(&self, place: &Place, id: TransferId) -> Result<Report, EngineError> {
        let outcome = match self.slots.poll(id)? {
            Status::Concluded(outcome) => outcome,
            Status::Pending => return Err(EngineError::Pending { id }),
            Status::Unknown => return Err(EngineError::Released { id }),
        };
        let body = place.read();
        if body.id != Some(id) {
            return Err(EngineError::Released { id });
        }
        Ok(report(
            &body,
            outcome,
            &place.failures,
            place.account.load().handed(),
        ))
    }
}

/// Returns the report of a concluded transfer, of which `handed` slices were handed out.
fn report(body: &Body, outcome: Outcome, failures: &Failures, handed: u32) -> Report {
    let known = failures.told();
    let mut operations = vec![OperationStatus::Done; body.operations as usize];
    let plan = body.plan();
    let was_written_off = known.panicked.is_some() || known.is_unflushed;
    let mut missing = 0;
    let is_whole = outcome == Outcome::Done && known.slices.is_empty();
    let numbers = 0..if is_whole { 0 } else { plan.slices() };
    for (slice, number) in plan.range(numbers.clone()).zip(numbers) {
        let has_failed = known.slices.binary_search(&number).is_ok();
        let status = if has_failed || was_written_off && number < handed {
            OperationStatus::Failed
        } else if number >= handed {
            OperationStatus::NotPosted
        } else {
            continue;
        };
        missing += u64::from(slice.bytes);
        let range = slice.operations.start as usize..slice.operations.end as usize;
        for operation in operations.get_mut(range).unwrap_or_default() {
            if *operation != OperationStatus::Failed {
                *operation = status;
            }
        }
    }
    Report {
        outcome,
        operations,
        bytes_landed: plan.bytes() - missing,
        first: known.first,
        device: None,
        panicked: known.panicked,
        overlaps: body.overlaps,
        remote: if known.is_remote_unknown {
            Remote::Unknown
        } else {
            Remote::Quiet
        },
    }
}

fn leave_all(plan: &Plan, local: &LocalTable) {
    for number in plan.local_regions() {
        if let Some(region) = local.get(number) {
            region.owner.leave();
        }
    }
}
