//! The end of a worker: its engine ends, or it has panicked.

use std::sync::atomic::Ordering;

use super::{Held, Worker};
use crate::engine::ledger::account::Close;
use crate::engine::lock::lock;
use crate::engine::transfers::queue::Item;
use crate::error::ThreadPanicked;
use crate::provider::Provider;

impl<P: Provider> Worker<P> {
    /// Fails all transfers that are left when the engine ends, so that no thread waits for them.
    pub(super) fn give_up(&mut self) {
        self.inbox.queue.tally(false).set_stalled(false);
        for work in self.links.all() {
            work.link.break_off();
        }
        self.drop_lanes();
        let links = self.links.take_all();
        let lanes = links.into_iter().flat_map(|work| work.lanes);
        lanes.for_each(Held::leave);
    }

    /// Ends the connections of a worker that has panicked. Until the engine ends, it gives its items back to the others. The control thread
    /// of each connection finishes the slices that this worker held, once the QPs are reset.
    pub(super) fn end_of_panic(&mut self, own: u32, panic: &ThreadPanicked) {
        self.inbox.queue.tally(false).set_stalled(false);
        for work in self.links.take_all() {
            work.link.lose_worker(panic);
            work.lanes.into_iter().for_each(Held::leave);
        }
        for link in self.transfers.links_of(own) {
            if let Some(fence) = link.lose_worker(panic) {
                self.transfers.write_off(&link, panic, fence);
            }
        }
        // The other workers drop their lanes of these links.
        self.transfers.queues().look();
        while !self.inbox.stops.load(Ordering::SeqCst) {
            self.give_back(panic);
            let wake = self.inbox.queue.wake();
            wake.begin();
            if !self.inbox.queue.has_items()
                && let Err(error) = wake.sleep(None, None)
            {
                tracing::error!("a worker that has panicked cannot sleep: {error}");
            }
            wake.end();
        }
    }

    /// Refuses all lanes and transfers that others have given to the worker.
    fn give_back(&mut self, panic: &ThreadPanicked) {
        self.inbox.queue.take(&mut self.items);
        for held in std::mem::take(&mut *lock(&self.inbox.lanes)) {
            held.link().lose_worker(panic);
            held.leave();
        }
        while let Some(item) = self.items.pop_front() {
            match item {
                Item::Transfer { task, .. } => self.transfers.close(task.id, Close::Failed),
                Item::Settle(id) => self.transfers.settle(id),
                Item::Closed(_) | Item::Look => {}
                #[cfg(test)]
                Item::Panic => {}
            }
        }
    }
}
