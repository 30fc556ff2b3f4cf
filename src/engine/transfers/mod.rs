//! The transfers of an engine, as submitters, workers and waiters share them. This part names no provider.
//!
//! A transfer has a slot. The submitter writes its body before workers learn of the transfer, and workers only read the body. The account
//! is the one word that changes while the transfer runs. The next transfer in the slot uses its memory again. So a transfer allocates no
//! memory once its slot has had a similar one.

mod begin;
mod conclude;
pub(in crate::engine) mod concluded;
mod copiers;
mod failures;
mod place;
mod prepared;
mod pull;
pub(in crate::engine) mod queue;
#[cfg(test)]
mod tests;
pub(in crate::engine) mod waiting;

use std::sync::Arc;
use std::time::Duration;

use self::conclude::{Again, Cancelled, Conclusions};
use self::place::Place;
use crate::engine::error::{EngineError, TransfersError};
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::{Close, Outcome};
use crate::engine::ledger::cut::Cut;
use crate::engine::ledger::report::Report;
use crate::engine::ledger::slots::{Slots, Status};
use crate::engine::ledger::tally::Statistics;
use crate::engine::memory::flush::Flushes;
use crate::engine::route::crossing::Crossing;
use crate::engine::route::fences::Fence;
use crate::engine::route::flow::{Stalled, WaitsFor};
use crate::engine::route::link::Link;
use crate::engine::transfers::queue::{Item, Queues};
use crate::engine::transfers::waiting::Waiting;
use crate::error::ThreadPanicked;
use crate::provider::{Cause, Chain, Tag};

pub(super) use failures::Lost;
pub(super) use place::By;
pub(super) use prepared::{How, Moves};
pub use prepared::{Options, Prepared};
pub(super) use pull::{Pulled, Room};

/// All transfers of one engine.
#[derive(Debug)]
pub(super) struct Transfers {
    places: Box<[Place]>,
    queues: Queues,
    ends: Conclusions,
    cut: Cut,
    gather: u32,
}

/// The number of transfers of an engine, and how they are cut and shared out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) slots: u32,
    pub(super) workers: u32,
    /// The most times that a slice is posted again.
    pub(super) retry: u32,
    pub(super) cut: Cut,
    /// The most local ranges of a slice.
    pub(super) gather: u32,
}

impl Transfers {
    /// Returns the transfers of the engine with this number.
    pub(super) fn new(engine: u32, sizes: &Sizes) -> Result<Self, TransfersError> {
        let Sizes { cut, gather, .. } = *sizes;
        let slots = Slots::new(engine, sizes.slots)?;
        let places = (0..sizes.slots).map(|_| Place::new(cut, gather));
        let items = 2 * sizes.slots as usize + 16;
        Ok(Self {
            places: places.collect::<Result<_, _>>()?,
            queues: Queues::new(sizes.workers, items)?,
            ends: Conclusions::new(slots, sizes.retry),
            cut,
            gather,
        })
    }

    /// Returns the number of the engine.
    pub(super) fn engine(&self) -> u32 {
        self.ends.slots().engine()
    }

    /// Returns the GPUs that are flushed before this side reports bytes.
    pub(super) fn flushes(&self) -> &Arc<Flushes> {
        self.ends.flushes()
    }

    /// Returns the run queues of all workers.
    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Returns the threads and futures that wait for conclusions and slots.
    pub(super) fn waiting(&self) -> &Waiting {
        self.ends.waiting()
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.places.len()
    }

    /// Returns how many slots have a transfer.
    pub(super) fn in_use(&self) -> usize {
        self.ends.slots().in_use()
    }

    /// Returns how many transfers were concluded with this outcome.
    pub(super) fn count(&self, outcome: Outcome) -> u64 {
        self.ends.totals().count(outcome)
    }

    /// Returns what the engine has done since it was made.
    pub(super) fn statistics(&self) -> Statistics {
        self.ends.totals().look(|| self.queues.slices())
    }

    /// Returns the link of a transfer that is not concluded.
    pub(super) fn link_of(&self, id: TransferId) -> Option<Arc<Link>> {
        self.place(id).link_of(id)
    }

    /// Returns the links of transfers that are not concluded, as far as `worker` has a lane of them.
    pub(super) fn links_of(&self, worker: u32) -> Vec<Arc<Link>> {
        let bodies = self.places.iter().map(Place::read);
        let links = bodies.filter_map(|body| Some(Arc::clone(&body.way.as_ref()?.link)));
        let is_shared = |link: &Arc<Link>| link.load().workers().contains(&worker);
        links.filter(is_shared).collect()
    }

    /// Returns the rails by which slices of the transfer's connection are in flight, if the transfer is not concluded.
    pub(super) fn stalled(&self, id: TransferId) -> Vec<Stalled> {
        self.place(id).stalled(id)
    }

    /// Returns what a transfer waits for. None: it is concluded.
    pub(super) fn waits_for(&self, id: TransferId) -> Option<WaitsFor> {
        self.place(id).waits_for(id)
    }

    pub(super) fn poll(&self, id: TransferId) -> Result<Status, EngineError> {
        self.ends.slots().poll(id)
    }

    /// Waits until one of `ids` is concluded or unknown, and returns its place in the list. None: the time is over.
    pub(super) fn wait_any(
        &self,
        ids: &[TransferId],
        most: Duration,
    ) -> Result<Option<usize>, EngineError> {
        self.waiting().until(most, || {
            for (nth, id) in ids.iter().enumerate() {
                if self.poll(*id)? != Status::Pending {
                    return Ok(Some(nth));
                }
            }
            Ok(None)
        })
    }

    pub(super) fn release(&self, id: TransferId) -> Result<(), EngineError> {
        self.ends.release(id)
    }

    /// Returns what became of a transfer that is concluded and not released.
    pub(super) fn report(&self, id: TransferId) -> Result<Report, EngineError> {
        self.ends.report(self.place_in(id)?, id)
    }

    /// Adds slices of the transfer to `chain`, for a lane with this crossing and so much room.
    pub(super) fn pull(
        &self,
        id: TransferId,
        room: Room,
        crossing: Crossing,
        chain: &mut Chain,
    ) -> Pulled {
        self.place(id).pull(id, room, crossing, chain)
    }

    /// Returns whether copies cannot move the transfer.
    pub(super) fn is_for_nic(&self, id: TransferId) -> bool {
        self.place(id).is_for_nic(id)
    }

    /// Finishes slices of the transfer in this slot, which are done.
    pub(super) fn done(&self, slot: u32, slices: u32) {
        self.ends.done(&self.places[slot as usize], slices);
    }

    /// Finishes a slice that no QP has taken.
    pub(super) fn refused(&self, tag: Tag, by: By) {
        self.ends
            .refused(&self.places[tag.slot as usize], tag.slice, by);
    }

    /// Handles a slice that was posted and has failed by this cause. Workers hear of it if it is to be posted again.
    pub(super) fn flushed(&self, tag: Tag, lost: Lost, cause: Cause) {
        let place = &self.places[tag.slot as usize];
        if let Some(Again { task, link }) = self.ends.flushed(place, tag, lost, cause) {
            let open = link.open_workers();
            let workers = if open.is_empty() {
                link.load().workers()
            } else {
                &open
            };
            self.queues.give(task, &link, workers);
        }
    }

    /// Closes a transfer for this reason: workers take no more slices of it. A worker calls this.
    pub(super) fn close(&self, id: TransferId, why: Close) {
        self.ends.close(self.place(id), id, why);
    }

    /// Cancels a transfer: workers take no more slices of it. The HCA finishes the slices that it has, and a worker concludes the
    /// transfer.
    pub(super) fn cancel(&self, id: TransferId) -> Result<(), EngineError> {
        let Some(Cancelled { link, is_settled }) = self.ends.cancel(self.place_in(id)?, id)? else {
            return Ok(());
        };
        let workers = link.load().workers();
        if is_settled && let Some(worker) = workers.first() {
            self.queues.of(*worker).push(Item::Settle(id));
        } else {
            for worker in workers {
                self.queues.of(*worker).push(Item::Closed(id));
            }
        }
        Ok(())
    }

    /// Takes the first step of a cancel, and not the next.
    #[cfg(test)]
    pub(super) fn begin_cancel(&self, id: TransferId) {
        self.place(id).account.close(Close::Cancelled);
    }

    /// Concludes a settled transfer, or lets it wait for the fence of its link.
    pub(super) fn settle(&self, id: TransferId) {
        self.ends.settle(self.place(id), id);
    }

    /// Notes that both ends have reset the pair of a lane. Concludes the transfers that have waited for that, unless they wait for another
    /// lane.
    pub(super) fn fence_lane(&self, link: &Link, lane: usize) {
        for id in link.fences().fence_lane(lane) {
            self.settle(id);
        }
    }

    /// Notes that the link has ended and its fence stands. Concludes the transfers that have waited for the fence, and the slices that a
    /// panicked worker held.
    pub(super) fn end(&self, link: &Link, fence: Fence) {
        let left = link.fences().fence_all(fence);
        for id in left.waiting {
            self.ends.conclude_settled(self.place(id), id, fence);
        }
        if let Some(panicked) = left.panicked {
            self.write_off(link, &panicked, fence);
        }
    }

    /// Concludes all transfers of a link that has ended. No worker has a lane of the link, so none finishes a slice of them.
    pub(super) fn write_off(&self, link: &Link, panicked: &ThreadPanicked, fence: Fence) {
        for place in &self.places {
            self.ends.write_off(place, link, panicked, fence);
        }
    }

    /// Returns the slot of a transfer of this engine.
    fn place(&self, id: TransferId) -> &Place {
        &self.places[id.slot() as usize]
    }

    /// Returns the slot of a transfer that a program has named. The error says that it is of another engine.
    fn place_in(&self, id: TransferId) -> Result<&Place, EngineError> {
        self.poll(id).map(|_| self.place(id))
    }
}
