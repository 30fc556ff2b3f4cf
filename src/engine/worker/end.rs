//! The end of a worker: its engine ends, or it has panicked.

use std::collections::VecDeque;

use super::held::Held;
use super::inbox::Inbox;
use super::links::Links;
use crate::engine::ledger::account::Close;
use crate::engine::transfers::Transfers;
use crate::engine::transfers::queue::Item;
use crate::error::ThreadPanicked;
use crate::provider::{Provider, ProviderError};

/// What a worker has that takes no more turns.
pub(super) struct Ending<'a, P: Provider> {
    transfers: &'a Transfers,
    inbox: &'a Inbox<P>,
    links: &'a mut Links<P::Lane>,
    /// Items that the worker has taken out of its queue and not handled.
    items: &'a mut VecDeque<Item>,
}

impl<'a, P: Provider> Ending<'a, P> {
    pub(super) fn new(
        transfers: &'a Transfers,
        inbox: &'a Inbox<P>,
        links: &'a mut Links<P::Lane>,
        items: &'a mut VecDeque<Item>,
    ) -> Self {
        Self {
            transfers,
            inbox,
            links,
            items,
        }
    }

    /// Fails all transfers that are left when the engine ends, so that no thread waits for them.
    pub(super) fn give_up(self) {
        self.inbox.queue().tally(false).set_stalled(false);
        for work in self.links.all() {
            work.link.break_off();
        }
        self.links.drop_lanes(self.transfers);
        let links = self.links.take_all();
        let lanes = links.into_iter().flat_map(|work| work.lanes);
        lanes.for_each(Held::leave);
    }

    /// Ends the connections of a worker that has panicked. Until the engine ends, it gives its items back to the others. The control thread
    /// of each connection finishes the slices that this worker held, once the QPs are reset.
    pub(super) fn after_panic(mut self, panic: &ThreadPanicked) {
        self.inbox.queue().tally(false).set_stalled(false);
        for work in self.links.take_all() {
            work.link.lose_worker(panic);
            work.lanes.into_iter().for_each(Held::leave);
        }
        for link in self.transfers.links_of(self.inbox.number()) {
            if let Some(fence) = link.lose_worker(panic) {
                self.transfers.write_off(&link, panic, fence);
            }
        }
        // The other workers drop their lanes of these links.
        self.transfers.queues().look();
        while !self.inbox.stops() {
            self.give_back(panic);
            if let Err(error) = self.sleep() {
                tracing::error!("a worker that has panicked cannot sleep: {error}");
            }
        }
    }

    /// Sleeps until the queue has items.
    fn sleep(&self) -> Result<(), ProviderError> {
        let wake = self.inbox.queue().wake();
        self.inbox.sleep_if_empty(|| wake.sleep(None, None))
    }

    /// Refuses all lanes and transfers that others have given to the worker.
    fn give_back(&mut self, panic: &ThreadPanicked) {
        self.inbox.queue().take(self.items);
        for held in self.inbox.take_lanes() {
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
