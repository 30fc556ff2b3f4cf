//! The transfers of an engine, as submitters, workers and waiters share them. No provider is named here.
//!
//! A transfer has a slot. The submitter writes its body before workers learn of it, and the workers read it. The account is the
//! one word that changes while it runs. The next transfer in a slot uses its memory again. So a transfer allocates none once its
//! slot has had a similar one.

mod begin;
mod conclude;
pub(in crate::engine) mod concluded;
mod copiers;
mod place;
mod prepared;
mod pull;
pub(in crate::engine) mod queue;
#[cfg(test)]
mod tests;
pub(in crate::engine) mod waiting;
mod work;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use self::place::{Body, Place};
use crate::engine::error::{EngineError, TransfersError};
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::{AtomicAccount, Outcome};
use crate::engine::ledger::cut::Cut;
use crate::engine::ledger::plan::Plan;
use crate::engine::ledger::slots::{Slots, Status};
use crate::engine::ledger::tally::{SliceCounts, Statistics, Totals};
use crate::engine::memory::flush::Flushes;
use crate::engine::route::flow::{Stalled, WaitsFor};
use crate::engine::route::link::Link;
use crate::engine::transfers::queue::{Item, RunQueue};
use crate::engine::transfers::waiting::Waiting;

pub use prepared::{Options, Prepared};
pub(super) use work::{Lost, Pulled, Room};

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
                    copier: 0,
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

    /// The number of its engine.
    pub(super) const fn engine(&self) -> u32 {
        self.slots.engine()
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

    /// How many transfers there may be.
    pub(super) fn slots(&self) -> usize {
        self.places.len()
    }

    /// The link of a transfer that is not concluded.
    pub(super) fn link_of(&self, id: TransferId) -> Option<u64> {
        let body = self.places[id.slot() as usize].read();
        let way = body.way.as_ref().filter(|_| body.id == Some(id))?;
        Some(way.link.number)
    }

    /// The links of transfers that are not concluded, where `worker` has a lane.
    pub(super) fn links_of(&self, worker: u32) -> Vec<Arc<Link>> {
        let bodies = self.places.iter().map(Place::read);
        let links = bodies.filter_map(|body| Some(Arc::clone(&body.way.as_ref()?.link)));
        links.filter(|link| link.has_lanes_of(worker)).collect()
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
            true if body.is_for_nic() && way.link.lanes().open_qps() == 0 => WaitsFor::Qp,
            true if way.link.open_workers().is_empty() => WaitsFor::Qp,
            true => WaitsFor::Room,
        })
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
}

/// At most as many as a transfer may have.
fn count(operations: usize) -> u32 {
    u32::try_from(operations).unwrap_or(u32::MAX)
}
