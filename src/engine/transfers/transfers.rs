//! All transfers of one engine: their slots, the run queues of the workers, and what ends them.

use std::sync::Arc;
use std::time::Duration;

use super::conclude::{Again, Cancelled, Conclusions};
use super::failures::Lost;
use super::place::{By, Place};
use super::pull::{Pulled, Room};
use super::queue::{Item, Queues};
use super::waiting::Waiting;
use crate::engine::error::{EngineError, TransfersError};
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::{Close, Outcome};
use crate::engine::ledger::cut::Cut;
use crate::engine::ledger::plan::Plan;
use crate::engine::ledger::report::Report;
use crate::engine::ledger::slots::{Slots, Status};
use crate::engine::ledger::tally::Statistics;
use crate::engine::memory::flush::Flushes;
use crate::engine::route::crossing::Crossing;
use crate::engine::route::fences::Fence;
use crate::engine::route::flow::{Stalled, WaitsFor};
use crate::engine::route::link::Link;
use crate::error::ThreadPanicked;
use crate::provider::{Cause, Chain, Tag};

/// All transfers of one engine.
#[derive(Debug)]
pub(in crate::engine) struct Transfers {
    places: Box<[Place]>,
    queues: Queues,
    ends: Conclusions,
    cut: Cut,
    gather: u32,
}

/// The number of transfers of an engine, and how they are cut and shared out.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Sizes {
    pub(in crate::engine) slots: u32,
    pub(in crate::engine) workers: u32,
    /// The most times that a slice is posted again.
    pub(in crate::engine) retry: u32,
    pub(in crate::engine) cut: Cut,
    /// The most local ranges of a slice.
    pub(in crate::engine) gather: u32,
}

impl Transfers {
    /// Returns the transfers of the engine with this number.
    pub(in crate::engine) fn new(engine: u32, sizes: &Sizes) -> Result<Self, TransfersError> {
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

    /// Returns an empty plan of the kind that the slots have.
    pub(super) fn new_plan(&self) -> Result<Plan, EngineError> {
        Plan::new(self.cut, self.gather)
    }

    /// Returns the number of the engine.
    pub(in crate::engine) fn engine(&self) -> u32 {
        self.ends.slots().engine()
    }

    /// Returns the slots, with what the end of a transfer changes.
    pub(super) fn ends(&self) -> &Conclusions {
        &self.ends
    }

    /// Returns the GPUs that are flushed before this side reports bytes.
    pub(in crate::engine) fn flushes(&self) -> &Arc<Flushes> {
        self.ends.flushes()
    }

    /// Returns the run queues of all workers.
    pub(in crate::engine) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Returns the threads and futures that wait for conclusions and slots.
    pub(in crate::engine) fn waiting(&self) -> &Waiting {
        self.ends.waiting()
    }

    /// Returns the number of slots.
    pub(in crate::engine) fn slots(&self) -> usize {
        self.places.len()
    }

    /// Returns how many slots have a transfer.
    pub(in crate::engine) fn in_use(&self) -> usize {
        self.ends.slots().in_use()
    }

    /// Returns how many transfers were concluded with this outcome.
    pub(in crate::engine) fn count(&self, outcome: Outcome) -> u64 {
        self.ends.totals().count(outcome)
    }

    /// Returns what the engine has done since it was made.
    pub(in crate::engine) fn statistics(&self) -> Statistics {
        self.ends.totals().look(|| self.queues.slices())
    }

    /// Returns the link of a transfer that is not concluded.
    pub(in crate::engine) fn link_of(&self, id: TransferId) -> Option<Arc<Link>> {
        self.place(id).link_of(id)
    }

    /// Returns the links of transfers that are not concluded, as far as `worker` has a lane of them.
    pub(in crate::engine) fn links_of(&self, worker: u32) -> Vec<Arc<Link>> {
        let bodies = self.places.iter().map(Place::read);
        let links = bodies.filter_map(|body| Some(Arc::clone(&body.way.as_ref()?.link)));
        let is_shared = |link: &Arc<Link>| link.load().workers().contains(&worker);
        links.filter(is_shared).collect()
    }

    /// Returns the rails by which slices of the transfer's connection are in flight, if the transfer is not concluded.
    pub(in crate::engine) fn stalled(&self, id: TransferId) -> Vec<Stalled> {
        self.place(id).stalled(id)
    }

    /// Returns what a transfer waits for. None: it is concluded.
    pub(in crate::engine) fn waits_for(&self, id: TransferId) -> Option<WaitsFor> {
        self.place(id).waits_for(id)
    }

    pub(in crate::engine) fn poll(&self, id: TransferId) -> Result<Status, EngineError> {
        self.ends.slots().poll(id)
    }

    /// Waits until one of `ids` is concluded or unknown, and returns its place in the list. None: the time is over.
    pub(in crate::engine) fn wait_any(
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

    pub(in crate::engine) fn release(&self, id: TransferId) -> Result<(), EngineError> {
        self.ends.release(id)
    }

    /// Returns what became of a transfer that is concluded and not released.
    pub(in crate::engine) fn report(&self, id: TransferId) -> Result<Report, EngineError> {
        self.ends.report(self.place_in(id)?, id)
    }

    /// Adds slices of the transfer to `chain`, for a lane with this crossing and so much room.
    pub(in crate::engine) fn pull(
        &self,
        id: TransferId,
        room: Room,
        crossing: Crossing,
        chain: &mut Chain,
    ) -> Pulled {
        self.place(id).pull(id, room, crossing, chain)
    }

    /// Returns whether copies cannot move the transfer.
    pub(in crate::engine) fn is_for_nic(&self, id: TransferId) -> bool {
        self.place(id).is_for_nic(id)
    }

    /// Finishes slices of the transfer in this slot, which are done.
    pub(in crate::engine) fn done(&self, slot: u32, slices: u32) {
        self.ends.done(&self.places[slot as usize], slices);
    }

    /// Finishes a slice that no QP has taken.
    pub(in crate::engine) fn refused(&self, tag: Tag, by: By) {
        self.ends
            .refused(&self.places[tag.slot as usize], tag.slice, by);
    }

    /// Handles a slice that was posted and has failed by this cause. Workers hear of it if it is to be posted again.
    pub(in crate::engine) fn flushed(&self, tag: Tag, lost: Lost, cause: Cause) {
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
    pub(in crate::engine) fn close(&self, id: TransferId, why: Close) {
        self.ends.close(self.place(id), id, why);
    }

    /// Cancels a transfer: workers take no more slices of it. The HCA finishes the slices that it has, and a worker concludes the
    /// transfer.
    pub(in crate::engine) fn cancel(&self, id: TransferId) -> Result<(), EngineError> {
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
    pub(in crate::engine) fn begin_cancel(&self, id: TransferId) {
        self.place(id).account.close(Close::Cancelled);
    }

    /// Concludes a settled transfer, or lets it wait for the fence of its link.
    pub(in crate::engine) fn settle(&self, id: TransferId) {
        self.ends.settle(self.place(id), id);
    }

    /// Notes that both ends have reset the pair of a lane. Concludes the transfers that have waited for that, unless they wait for another
    /// lane.
    pub(in crate::engine) fn fence_lane(&self, link: &Link, lane: usize) {
        for id in link.fences().fence_lane(lane) {
            self.settle(id);
        }
    }

    /// Notes that the link has ended and its fence stands. Concludes the transfers that have waited for the fence, and the slices that a
    /// panicked worker held.
    pub(in crate::engine) fn end(&self, link: &Link, fence: Fence) {
        let left = link.fences().fence_all(fence);
        for id in left.waiting {
            self.ends.conclude_settled(self.place(id), id, fence);
        }
        if let Some(panicked) = left.panicked {
            self.write_off(link, &panicked, fence);
        }
    }

    /// Concludes all transfers of a link that has ended. No worker has a lane of the link, so none finishes a slice of them.
    pub(in crate::engine) fn write_off(
        &self,
        link: &Link,
        panicked: &ThreadPanicked,
        fence: Fence,
    ) {
        for place in &self.places {
            self.ends.write_off(place, link, panicked, fence);
        }
    }

    /// Returns the slot of a transfer of this engine.
    pub(super) fn place(&self, id: TransferId) -> &Place {
        &self.places[id.slot() as usize]
    }

    /// Returns the slot of a transfer that a program has named. The error says that it is of another engine.
    fn place_in(&self, id: TransferId) -> Result<&Place, EngineError> {
        self.poll(id).map(|_| self.place(id))
    }
}
