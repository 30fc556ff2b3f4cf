//! The transfers of an engine, as submitters, workers and waiters share them. No provider is named here.
//!
//! A transfer has a slot. The submitter writes its body before workers learn of it, and the workers read it. The account is the
//! one word that changes while it runs. The next transfer in a slot uses its memory again. So a transfer allocates none once its
//! slot has had a similar one.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use super::account::{AtomicAccount, Change, Close, Outcome};
use super::cut::Cut;
use super::error::{EngineError, Side};
use super::flow::{Stalled, WaitsFor};
use super::flush::Flushes;
use super::grant::Rights;
use super::link::{Fence, Link, Lives};
use super::plan::{Operation, Plan};
use super::queue::{Item, RunQueue};
use super::rails::{Crossing, NO_RAIL, number_of};
use super::regions::Users;
use super::report::{FirstCause, OperationStatus, Remote, Report};
use super::send::Attached;
use super::slots::{Slots, Status, TransferId};
use super::table::{Mapped, Table};
use super::tally::{SliceCounts, Statistics, Totals};
use super::waiting::Waiting;
use crate::error::ThreadPanicked;
use crate::provider::{Cause, Chain, LocalRange, ProviderError, Tag, Verb};

pub(super) type LocalTable = Table<Arc<Users>>;
pub(super) type RemoteTable = Table<Rights>;

/// A transfer that was planned once, to be posted many times.
#[derive(Debug)]
pub struct Prepared {
    plan: Plan,
    operations: u32,
    overlaps: bool,
    reaches_gpu: bool,
    local: Arc<LocalTable>,
    remote: Arc<RemoteTable>,
    /// The life of the peer that it is for.
    incarnation: u64,
}

/// How a transfer is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Nothing more is handed out when this time is over, as if it were cancelled. Default none: that of the engine's configuration.
    pub deadline: Option<Duration>,
    /// Each operation counts once at this [counter](super::Counter) of the peer, behind its last byte; all are WRITEs. It is one
    /// WRITE of the HCA, by one QP, and is never posted again. If it fails the transfer fails, although the peer may have counted
    /// it. Default none.
    pub counter: Option<u32>,
}

impl Options {
    /// The same with this [`deadline`](Options::deadline).
    #[must_use]
    pub const fn with_deadline(self, deadline: Option<Duration>) -> Self {
        Self { deadline, ..self }
    }

    /// The same with this [`counter`](Options::counter).
    #[must_use]
    pub const fn with_counter(self, counter: Option<u32>) -> Self {
        Self { counter, ..self }
    }

    /// The same with this deadline, where it has none.
    pub(super) fn or(self, deadline: Option<Duration>) -> Self {
        Self {
            deadline: self.deadline.or(deadline),
            ..self
        }
    }
}

/// All transfers of one engine.
#[derive(Debug)]
pub(super) struct Transfers {
    slots: Slots,
    places: Box<[Place]>,
    queues: Box<[Arc<RunQueue>]>,
    waiting: Waiting,
    /// How often a slice is posted again.
    retry: u32,
    totals: Totals,
    flushes: Arc<Flushes>,
}

/// One slot.
#[derive(Debug)]
struct Place {
    account: AtomicAccount,
    total: AtomicU32,
    body: RwLock<Body>,
    failures: Mutex<Failures>,
    /// How many slices wait in `failures` to be posted again.
    to_retry: AtomicU32,
}

/// What a transfer is. Written while no worker knows it.
#[derive(Debug)]
struct Body {
    id: Option<TransferId>,
    own: Plan,
    operations: u32,
    /// Some WRITE goes where one comes from.
    overlaps: bool,
    prepared: Option<Arc<Prepared>>,
    /// Some memory of the peer is a GPU's.
    reaches_gpu: bool,
    /// Some memory of this side is a GPU's.
    has_gpu: bool,
    deadline: Option<Instant>,
    /// At which each operation counts.
    counter: Option<u32>,
    /// Rails of the peer that are near all of its memory; 0: any will do.
    near: u8,
    /// Sent when it is concluded.
    notice: Option<Attached>,
    /// None of a transfer that is concluded.
    way: Option<Way>,
}

#[derive(Clone, Debug)]
struct Way {
    link: Arc<Link>,
    local: Arc<LocalTable>,
    remote: Arc<RemoteTable>,
}

/// What has gone wrong with one transfer.
#[derive(Debug, Default)]
struct Failures {
    /// Slices that have failed for good.
    slices: Vec<u32>,
    /// Slices that some worker is to post again. None once the account is closed.
    to_retry: Vec<Retry>,
    /// How often each slice was given back for that, and by which lanes: a bit for each.
    retries: HashMap<u32, (u32, u32)>,
    first: Option<FirstCause>,
    /// Lives of lanes on which a slice was posted and failed, so that its packets may still be under way.
    lost: Lives,
    is_remote_unknown: bool,
    /// What was read is not known to have come to the GPU.
    is_unflushed: bool,
    /// The worker that held some of it and has panicked.
    panicked: Option<ThreadPanicked>,
}

impl Failures {
    /// As of a new transfer. The memory stays.
    fn clear(&mut self) {
        self.slices.clear();
        self.to_retry.clear();
        self.retries.clear();
        *self = Self {
            slices: std::mem::take(&mut self.slices),
            to_retry: std::mem::take(&mut self.to_retry),
            retries: std::mem::take(&mut self.retries),
            ..Self::default()
        };
    }
}

impl Body {
    fn plan(&self) -> &Plan {
        self.prepared.as_ref().map_or(&self.own, |it| &it.plan)
    }

    /// Whether no thread of this process can copy it.
    fn is_for_nic(&self) -> bool {
        self.has_gpu || self.reaches_gpu
    }

    /// Whether it reads into memory of a GPU.
    fn fills_gpu(&self) -> bool {
        let is_read = |(_, kind, _)| kind == super::Kind::Read;
        self.has_gpu && self.plan().remotes().any(is_read)
    }
}

/// A slice that is to be posted again.
#[derive(Clone, Copy, Debug)]
struct Retry {
    slice: u32,
    /// A bit for each lane on which it has failed. It goes to one that these failures do not concern, as far as such a lane works.
    tried: u32,
}

/// Where a WQE has failed: a life of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    /// Which lane of its link, where packets may be under way; none of a copy.
    pub(super) lane: Option<usize>,
    pub(super) life: u32,
    /// Number of the QP.
    pub(super) qp: Option<u32>,
    /// The QP has failed by a WQE that was wrong itself: one that was only flushed behind it has not been tried.
    pub(super) is_refused: bool,
}

/// What a worker has taken of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pulled {
    /// So many slices, and more may be left.
    Some,
    /// No slice is left for any worker.
    Nothing,
    /// What is left is for lanes that enter nearer to its memory, or by other rails than those on which it has failed: a bit for
    /// each lane that takes some of it. Without one it is asked for again.
    Elsewhere(u32),
}

impl Transfers {
    pub(super) fn new(
        engine: u32,
        slots: u32,
        (cut, gather): (Cut, u32),
        workers: u32,
        retry: u32,
    ) -> Result<Self, TransfersError> {
        let place = || {
            Ok(Place {
                account: AtomicAccount::default(),
                total: AtomicU32::new(0),
                body: RwLock::new(Body {
                    id: None,
                    own: Plan::new(cut, gather)?,
                    operations: 0,
                    overlaps: false,
                    prepared: None,
                    reaches_gpu: false,
                    has_gpu: false,
                    deadline: None,
                    counter: None,
                    near: 0,
                    notice: None,
                    way: None,
                }),
                failures: Mutex::default(),
                to_retry: AtomicU32::new(0),
            })
        };
        let all = Slots::new(engine, slots)?;
        let items = 2 * slots as usize + 16;
        let queue = |_| RunQueue::new(items).map(Arc::new);
        Ok(Self {
            slots: all,
            places: (0..slots)
                .map(|_| place())
                .collect::<Result<_, EngineError>>()?,
            queues: (0..workers).map(queue).collect::<Result<_, _>>()?,
            waiting: Waiting::default(),
            retry,
            totals: Totals::default(),
            flushes: Arc::default(),
        })
    }

    /// The GPUs that are flushed before this side tells of bytes.
    pub(super) fn flushes(&self) -> &Arc<Flushes> {
        &self.flushes
    }

    pub(super) fn queue(&self, worker: u32) -> &Arc<RunQueue> {
        &self.queues[worker as usize]
    }

    /// Lets all workers look at their links.
    pub(super) fn look(&self) {
        for queue in &self.queues {
            queue.push(Item::Look);
        }
    }

    /// Plans `operations` for many posts.
    pub(super) fn prepare(
        link: &Link,
        (local, remote): (Arc<LocalTable>, Arc<RemoteTable>),
        (cut, gather): (Cut, u32),
        (operations, overlaps, counts): (&[Operation], bool, bool),
    ) -> Result<Arc<Prepared>, EngineError> {
        let mut plan = Plan::new(cut, gather)?;
        match counts {
            true => plan.set_counting(operations, &*local, &*remote),
            false => plan.set(operations, &*local, &*remote),
        }?;
        let reaches_gpu = check_remote(&plan, link, &remote)?;
        Ok(Arc::new(Prepared {
            plan,
            operations: count(operations.len()),
            overlaps,
            reaches_gpu,
            local,
            remote,
            incarnation: link.incarnation,
        }))
    }

    /// Takes a vector of operations, all or nothing.
    pub(super) fn submit(
        &self,
        link: &Arc<Link>,
        (local, remote): (Arc<LocalTable>, Arc<RemoteTable>),
        (operations, overlaps): (&[Operation], bool),
        how: (&Options, Option<Attached>),
    ) -> Result<TransferId, EngineError> {
        let way = Way {
            link: Arc::clone(link),
            local,
            remote,
        };
        let counts = how.0.counter.is_some();
        self.begin(way, how, |body, way| {
            body.prepared = None;
            body.operations = count(operations.len());
            body.overlaps = overlaps;
            match counts {
                true => body.own.set_counting(operations, &*way.local, &*way.remote),
                false => body.own.set(operations, &*way.local, &*way.remote),
            }?;
            body.reaches_gpu = check_remote(&body.own, &way.link, &way.remote)?;
            Ok(())
        })
    }

    /// Posts what was prepared once more.
    pub(super) fn post(
        &self,
        link: &Arc<Link>,
        prepared: &Arc<Prepared>,
        how: (&Options, Option<Attached>),
    ) -> Result<TransferId, EngineError> {
        if prepared.incarnation != link.incarnation {
            let (found, peer) = (prepared.incarnation, link.incarnation);
            return Err(EngineError::ForeignPrepared { found, peer });
        }
        if how.0.counter.is_some() && !prepared.plan.counts() {
            return Err(EngineError::PreparedUncounted);
        }
        let way = Way {
            link: Arc::clone(link),
            local: Arc::clone(&prepared.local),
            remote: Arc::clone(&prepared.remote),
        };
        self.begin(way, how, |body, _| {
            body.operations = prepared.operations;
            body.overlaps = prepared.overlaps;
            body.reaches_gpu = prepared.reaches_gpu;
            body.prepared = Some(Arc::clone(prepared));
            Ok(())
        })
    }

    fn begin(
        &self,
        way: Way,
        (options, notice): (&Options, Option<Attached>),
        fill: impl FnOnce(&mut Body, &Way) -> Result<(), EngineError>,
    ) -> Result<TransferId, EngineError> {
        let slots = self.places.len();
        let Some(id) = self.slots.take() else {
            self.totals.refuse();
            return Err(EngineError::WouldBlock { slots });
        };
        let place = &self.places[id.slot() as usize];
        let mut body = place.write();
        let filled = fill(&mut body, &way)
            .and_then(|()| check_local(body.plan(), &way))
            .and_then(|has_gpu| enter_all(body.plan(), &way.local).map(|()| has_gpu));
        match filled {
            Ok(has_gpu) => body.has_gpu = has_gpu,
            Err(error) => {
                body.id = None;
                drop(body);
                self.slots.conclude(id, Outcome::Failed)?;
                self.release(id)?;
                return Err(error);
            }
        }
        let (total, is_small) = (body.plan().slices(), body.plan().is_small());
        let near = near_of(body.plan(), &way);
        let is_for_nic = body.is_for_nic();
        let link = Arc::clone(&way.link);
        let deadline = options
            .deadline
            .and_then(|it| Instant::now().checked_add(it));
        body.id = Some(id);
        body.deadline = deadline;
        body.counter = options.counter;
        body.near = near;
        body.notice = notice;
        body.way = Some(way);
        place.failures().clear();
        place.to_retry.store(0, Ordering::Relaxed);
        place.total.store(total, Ordering::Relaxed);
        place.account.reset();
        drop(body);
        self.totals.submit(total);
        link.begin_transfer(is_for_nic);
        if total == 0 {
            self.conclude(id, Outcome::Done, Fence::Whole);
            return Ok(id);
        }
        let near_workers = match near {
            0 => Vec::new(),
            near => link.workers_of(link.near_lanes(near)),
        };
        let workers = match near_workers.is_empty() {
            true => link.workers(is_small),
            false => &near_workers,
        };
        self.push(id, (&link, deadline), (workers, true));
        Ok(id)
    }

    /// Adds up to `most` slices of the transfer to `chain`, for a lane with this crossing: first those that are to be posted again.
    pub(super) fn pull(
        &self,
        id: TransferId,
        (most, crossing): (u32, Crossing),
        chain: &mut Chain,
    ) -> Pulled {
        let place = &self.places[id.slot() as usize];
        let body = place.read();
        let (true, Some(way)) = (body.id == Some(id), &body.way) else {
            return Pulled::Nothing;
        };
        let plan = body.plan();
        if crossing.own == NO_RAIL && body.is_for_nic() {
            return place.left_to_qps(plan, &way.link);
        }
        let again = place.take_retries((most, body.is_for_nic()), crossing, &way.link);
        let left = most - count(again.len());
        let is_again = !again.is_empty();
        for number in again {
            add(chain, (&body, way), crossing, id.slot(), number..number + 1);
        }
        let account = place.account.load();
        let is_left = !account.is_closed() && account.handed() < plan.slices();
        let is_far = is_left && way.link.is_far(crossing, body.near);
        if !is_far && let Some(handed) = place.account.hand_out(left, plan.slices()) {
            add(chain, (&body, way), crossing, id.slot(), handed);
            return Pulled::Some;
        }
        match is_again {
            true => Pulled::Some,
            false => {
                place.left_elsewhere(is_far.then_some(body.near), (&way.link, body.is_for_nic()))
            }
        }
    }

    /// Whether copies have no part in the transfer.
    pub(super) fn is_for_nic(&self, id: TransferId) -> bool {
        let body = self.places[id.slot() as usize].read();
        body.id == Some(id) && body.is_for_nic()
    }

    /// Gives the transfer to these workers, also to some that have it.
    pub(super) fn give(
        &self,
        id: TransferId,
        link: (&Arc<Link>, Option<Instant>),
        workers: &[u32],
    ) {
        self.push(id, link, (workers, false));
    }

    fn push(
        &self,
        id: TransferId,
        (link, deadline): (&Arc<Link>, Option<Instant>),
        (workers, is_new): (&[u32], bool),
    ) {
        for worker in workers {
            self.queues[*worker as usize].push(Item::Transfer {
                id,
                link: Arc::clone(link),
                deadline,
                is_new,
            });
        }
    }

    /// Finishes `slices` of the transfer in this slot, which are done.
    pub(super) fn done(&self, slot: u32, slices: u32) {
        let change = self.places[slot as usize].account.finish(slices, false);
        self.settle_if(slot, change);
    }

    /// Finishes a slice that no QP has taken.
    pub(super) fn refused(&self, tag: Tag, (qp, rail): (u32, usize)) {
        let place = &self.places[tag.slot as usize];
        place.note(&place.read(), tag, (Some(qp), number_of(rail)), None);
        place.failures().slices.push(tag.slice);
        self.fail(tag.slot);
    }

    /// A slice was posted and has failed by this cause. Another QP of the link tries it again at once, if it may: only the conclusion
    /// waits for the fence.
    pub(super) fn flushed(&self, tag: Tag, lost: Lost, cause: Cause) {
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
    pub(super) fn close(&self, id: TransferId, why: Close) {
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
    pub(super) fn cancel(&self, id: TransferId) -> Result<(), EngineError> {
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

    fn settle_if(&self, slot: u32, change: Change) {
        let place = &self.places[slot as usize];
        if change.settles(place.total.load(Ordering::Relaxed)) {
            let id = place.read().id;
            if let Some(id) = id {
                self.settle(id);
            }
        }
    }

    /// Concludes a settled transfer, or lets it wait for the fence of its link. One that is concluded already stays as it is.
    pub(super) fn settle(&self, id: TransferId) {
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
    pub(super) fn fence_lane(&self, link: &Link, lane: usize) {
        for id in link.fence_lane(lane) {
            self.settle(id);
        }
    }

    /// The link has ended, and its fence stands: what has waited for it is concluded, and what a worker held that has panicked.
    pub(super) fn end(&self, link: &Link, fence: Fence) {
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
    pub(super) fn write_off(&self, link: &Link, panicked: &ThreadPanicked, fence: Fence) {
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

    /// The link of a transfer that is not concluded.
    pub(super) fn link_of(&self, id: TransferId) -> Option<u64> {
        let body = self.places[id.slot() as usize].read();
        let way = body.way.as_ref().filter(|_| body.id == Some(id))?;
        Some(way.link.number)
    }

    /// The rails by which slices of its connection are in flight, of a transfer that is not concluded.
    pub(super) fn stalled(&self, id: TransferId) -> Vec<Stalled> {
        let body = self.places[id.slot() as usize].read();
        let way = body.way.as_ref().filter(|_| body.id == Some(id));
        way.map(|way| way.link.stalled()).unwrap_or_default()
    }

    /// What a transfer waits for that is not concluded.
    pub(super) fn waits_for(&self, id: TransferId) -> Option<WaitsFor> {
        let place = &self.places[id.slot() as usize];
        let body = place.read();
        let way = body.way.as_ref().filter(|_| body.id == Some(id))?;
        let (account, total) = (place.account.load(), place.total.load(Ordering::Relaxed));
        let posted = account.handed().saturating_sub(account.finished());
        let posted = posted.saturating_sub(place.to_retry.load(Ordering::Acquire));
        Some(match way.link.is_open() {
            _ if posted > 0 => WaitsFor::Completion,
            false => WaitsFor::End,
            true if account.is_settled(total) => WaitsFor::Reset,
            true if body.is_for_nic() && way.link.open_qps() == 0 => WaitsFor::Qp,
            true if way.link.open_workers().is_empty() => WaitsFor::Qp,
            true => WaitsFor::Room,
        })
    }

    /// The first step of a cancel, before the next.
    #[cfg(test)]
    pub(super) fn begin_cancel(&self, id: TransferId) {
        let place = &self.places[id.slot() as usize];
        place.account.close(Close::Cancelled);
    }

    /// How many transfers there may be.
    pub(super) fn slots(&self) -> usize {
        self.places.len()
    }

    /// The links of transfers that are not concluded, where `worker` has a lane.
    pub(super) fn links_of(&self, worker: u32) -> Vec<Arc<Link>> {
        let bodies = self.places.iter().map(Place::read);
        let links = bodies.filter_map(|body| Some(Arc::clone(&body.way.as_ref()?.link)));
        links.filter(|link| link.has_lanes_of(worker)).collect()
    }

    fn conclude(&self, id: TransferId, outcome: Outcome, fence: Fence) {
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

    pub(super) fn poll(&self, id: TransferId) -> Result<Status, EngineError> {
        self.slots.poll(id)
    }

    /// Waits until one of `ids` is concluded or unknown, or the time is over: which, by its place.
    pub(super) fn wait_any(
        &self,
        ids: &[TransferId],
        most: Duration,
    ) -> Result<Option<usize>, EngineError> {
        self.waiting.until(most, || {
            for (nth, id) in ids.iter().enumerate() {
                if self.slots.poll(*id)? != Status::Pending {
                    return Ok(Some(nth));
                }
            }
            Ok(None)
        })
    }

    /// The threads and futures that wait for conclusions and slots.
    pub(super) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    pub(super) fn release(&self, id: TransferId) -> Result<(), EngineError> {
        self.slots.release(id)?;
        self.waiting.change();
        Ok(())
    }

    pub(super) fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// How many were concluded with this outcome.
    pub(super) fn count(&self, outcome: Outcome) -> u64 {
        self.totals.count(outcome)
    }

    /// What was done with slices by so many workers from this one on, by the NIC alone or by copies too.
    pub(super) fn slices(&self, workers: Range<u32>, with_copies: bool) -> SliceCounts {
        let mut all = SliceCounts::default();
        for worker in workers {
            let queue = self.queue(worker);
            all.add(&queue.nic.look());
            if with_copies {
                all.add(&queue.copies.look());
            }
        }
        all
    }

    /// What was done since the engine was made.
    pub(super) fn statistics(&self) -> Statistics {
        let workers = count(self.queues.len());
        self.totals.look(|| self.slices(0..workers, true))
    }

    /// What became of a transfer that is concluded and not released.
    pub(super) fn report(&self, id: TransferId) -> Result<Report, EngineError> {
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

/// Why the transfers could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransfersError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

impl Place {
    fn read(&self) -> RwLockReadGuard<'_, Body> {
        self.body.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Body> {
        self.body.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to `most` slices that are to be posted again, and may be on a lane with this crossing.
    fn take_retries(
        &self,
        (most, is_for_nic): (u32, bool),
        crossing: Crossing,
        link: &Link,
    ) -> Vec<u32> {
        if self.to_retry.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut failures = self.failures();
        if self.account.load().is_closed() {
            return Vec::new();
        }
        let most = most as usize;
        let mut taken = Vec::new();
        // Most have failed on the same lanes.
        let takes = |tried| link.takes(crossing, (tried, is_for_nic));
        let mut known = (0, takes(0));
        failures.to_retry.retain(|retry| {
            if known.0 != retry.tried {
                known = (retry.tried, takes(retry.tried));
            }
            let is_taken = taken.len() < most && known.1;
            if is_taken {
                taken.push(retry.slice);
            }
            !is_taken
        });
        self.to_retry
            .store(count(failures.to_retry.len()), Ordering::Release);
        taken
    }

    /// The answer to a lane that may take nothing of what is left: slices to retry, and those that are to enter by these rails.
    fn left_elsewhere(&self, near: Option<u8>, (link, is_for_nic): (&Link, bool)) -> Pulled {
        if near.is_none() && self.to_retry.load(Ordering::Acquire) == 0 {
            return Pulled::Nothing;
        }
        let near = near.map_or(0, |near| link.near_lanes(near));
        let failures = self.failures();
        let retries = failures.to_retry.iter();
        let other = |tried| link.other_lanes((tried, is_for_nic));
        Pulled::Elsewhere(retries.fold(near, |all, it| all | other(it.tried)))
    }

    /// The answer to a lane that copies, where QPs move all of the transfer.
    fn left_to_qps(&self, plan: &Plan, link: &Link) -> Pulled {
        let account = self.account.load();
        let is_left = !account.is_closed() && account.handed() < plan.slices();
        match is_left || self.to_retry.load(Ordering::Acquire) > 0 {
            true => Pulled::Elsewhere(link.open_qps()),
            false => Pulled::Nothing,
        }
    }

    /// Keeps the first failure; one that only follows from another gives way.
    fn note(&self, body: &Body, tag: Tag, by: By, cause: Option<Cause>) {
        let first = first_cause(body, tag.slice, by, cause);
        let is_better = |known: FirstCause| {
            known.cause.is_some_and(Cause::is_flush) && cause.is_some_and(|it| !it.is_flush())
        };
        let mut failures = self.failures();
        if failures.first.is_none_or(is_better) {
            failures.first = Some(first);
        }
    }
}

/// By which QP and rail a slice was posted, where that is known.
type By = (Option<u32>, Option<u32>);

/// The failure of a slice, or of what was never posted from this one on.
fn first_cause(body: &Body, slice: u32, (qp, rail): By, cause: Option<Cause>) -> FirstCause {
    let found = body.plan().range(slice..slice.saturating_add(1)).next();
    let (operation, remote) = found.map_or((0, 0), |it| (it.operations.start, it.remote));
    FirstCause {
        qp,
        rail,
        cause,
        operation,
        remote,
    }
}

/// Adds slices of a transfer to a chain.
fn add(
    chain: &mut Chain,
    (body, way): (&Body, &Way),
    crossing: Crossing,
    slot: u32,
    numbers: Range<u32>,
) {
    for (slice, number) in body.plan().range(numbers.clone()).zip(numbers) {
        let verb = match slice.kind {
            super::Kind::Write => body.counter.map_or(Verb::Write, Verb::WriteImmediate),
            super::Kind::Read => Verb::Read,
        };
        let tag = Tag {
            slot,
            slice: number,
        };
        let remote = way.remote.get(slice.remote_region);
        let rkey = remote.map_or(0, |it| it.keys.of(crossing.theirs));
        let ranges = slice.locals().map(|local| LocalRange {
            address: local.address,
            key: way
                .local
                .get(local.region)
                .map_or(0, |it| it.keys.of(crossing.own)),
            bytes: local.bytes,
        });
        chain.push((verb, tag), (slice.remote, rkey), ranges);
        if body.has_gpu {
            chain.keep_in_place();
        }
    }
}

/// The rails of the peer that are near all of the memory that a transfer reaches at the peer. 0: none is known, or none is wanted.
fn near_of(plan: &Plan, way: &Way) -> u8 {
    if !way.link.is_near() {
        return 0;
    }
    let regions = plan.remotes();
    let near = regions.map(|(.., region)| way.remote.get(region).map_or(0, |it| it.keys.near()));
    near.filter(|near| *near != 0)
        .reduce(|all, near| all & near)
        .unwrap_or(0)
}

/// Refuses what the peer has not allowed, as far as it has said. Whether some of the peer's memory is a GPU's.
fn check_remote(plan: &Plan, link: &Link, remote: &RemoteTable) -> Result<bool, EngineError> {
    let mut is_of_gpu = false;
    for (operation, kind, region) in plan.remotes() {
        let Some(region) = remote.get(region) else {
            continue;
        };
        let rights = region.owner;
        if !rights.allow(kind) {
            return Err(EngineError::Right {
                operation,
                kind,
                rights,
            });
        }
        is_of_gpu |= region.keys.is_of_gpu();
    }
    check_gpu(is_of_gpu, link, Side::Remote)
}

/// Whether some of this side's memory is a GPU's.
fn check_local(plan: &Plan, way: &Way) -> Result<bool, EngineError> {
    let mut regions = plan.local_regions();
    let is_of_gpu = |region: &Mapped<_>| region.keys.is_of_gpu();
    let has_gpu = regions.any(|number| way.local.get(number).is_some_and(is_of_gpu));
    check_gpu(has_gpu, &way.link, Side::Local)
}

/// Refuses memory of a GPU where copies alone are allowed.
fn check_gpu(is_of_gpu: bool, link: &Link, side: Side) -> Result<bool, EngineError> {
    match is_of_gpu && link.only_copies() {
        true => Err(EngineError::LocalGpu { side }),
        false => Ok(is_of_gpu),
    }
}

/// Counts the transfer at all its local regions, or at none.
fn enter_all(plan: &Plan, local: &LocalTable) -> Result<(), EngineError> {
    for (nth, number) in plan.local_regions().enumerate() {
        let Some(region) = local.get(number).filter(|region| region.owner.enter()) else {
            for number in plan.local_regions().take(nth) {
                local.get(number).inspect(|region| region.owner.leave());
            }
            return Err(EngineError::UnknownRegion {
                number: number.into(),
            });
        };
        let _ = region;
    }
    Ok(())
}

fn leave_all(plan: &Plan, local: &LocalTable) {
    for number in plan.local_regions() {
        if let Some(region) = local.get(number) {
            region.owner.leave();
        }
    }
}

/// At most as many as a transfer may have.
fn count(operations: usize) -> u32 {
    u32::try_from(operations).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
