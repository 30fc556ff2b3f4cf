//! The run queues of workers: items that others have for a worker, and tallies of what the worker has done. A queue takes its memory once.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::engine::ids::TransferId;
use crate::engine::ledger::tally::{SliceCounts, Tally};
use crate::engine::limits::count;
use crate::engine::route::link::Link;
use crate::provider::{ProviderError, Wake};

/// A transfer of which slices may be left, in the form that workers keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Task {
    pub(in crate::engine) id: TransferId,
    pub(in crate::engine) deadline: Option<Instant>,
}

/// An item of work for a worker.
#[derive(Debug)]
pub(in crate::engine) enum Item {
    /// Pull slices of this transfer.
    Transfer {
        task: Task,
        link: Arc<Link>,
        /// True if the worker has not had the transfer before.
        is_new: bool,
    },
    /// Begin the grace of this transfer, which was closed.
    Closed(TransferId),
    /// Conclude this transfer, which its canceller has settled.
    Settle(TransferId),
    /// Look at links and lanes: some of them have changed.
    Look,
    /// Panic.
    #[cfg(test)]
    Panic,
}

/// The run queues of all workers, by worker.
#[derive(Debug)]
pub(in crate::engine) struct Queues(Box<[Arc<RunQueue>]>);

/// The items that wait for one worker, and the tallies of what it has done.
#[derive(Debug)]
pub(in crate::engine) struct RunQueue {
    items: Mutex<VecDeque<Item>>,
    has_items: AtomicBool,
    wake: Wake,
    /// The tally of the worker's work by its NIC.
    nic: Tally,
    /// The tally of the worker's work by copies within the machine.
    copies: Tally,
}

impl Queues {
    /// Returns queues for so many workers. Each takes `items` items without another allocation.
    pub(super) fn new(workers: u32, items: usize) -> Result<Self, ProviderError> {
        let queue = |_| RunQueue::new(items).map(Arc::new);
        Ok(Self((0..workers).map(queue).collect::<Result<_, _>>()?))
    }

    /// Returns the queue of a worker.
    pub(in crate::engine) fn of(&self, worker: u32) -> &Arc<RunQueue> {
        &self.0[worker as usize]
    }

    /// Gives a transfer to these workers. Some may have it already.
    pub(in crate::engine) fn give(&self, task: Task, link: &Arc<Link>, workers: &[u32]) {
        self.push(task, link, workers, false);
    }

    /// Gives a transfer to these workers. None of them has it.
    pub(super) fn give_new(&self, task: Task, link: &Arc<Link>, workers: &[u32]) {
        self.push(task, link, workers, true);
    }

    fn push(&self, task: Task, link: &Arc<Link>, workers: &[u32], is_new: bool) {
        for worker in workers {
            self.of(*worker).push(Item::Transfer {
                task,
                link: Arc::clone(link),
                is_new,
            });
        }
    }

    /// Lets all workers look at their links.
    pub(in crate::engine) fn look(&self) {
        for queue in &self.0 {
            queue.push(Item::Look);
        }
    }

    /// Returns what these workers have done with slices by their NICs.
    pub(in crate::engine) fn by_nic(&self, workers: Range<u32>) -> SliceCounts {
        let mut all = SliceCounts::default();
        for worker in workers {
            all.add(&self.of(worker).nic.look());
        }
        all
    }

    /// Returns what all workers have done with slices, by NICs and by copies.
    pub(super) fn slices(&self) -> SliceCounts {
        let mut all = self.by_nic(0..count(self.0.len()));
        for queue in &self.0 {
            all.add(&queue.copies.look());
        }
        all
    }
}

impl RunQueue {
    fn new(items: usize) -> Result<Self, ProviderError> {
        Ok(Self {
            items: Mutex::new(VecDeque::with_capacity(items)),
            has_items: AtomicBool::new(false),
            wake: Wake::new()?,
            nic: Tally::default(),
            copies: Tally::default(),
        })
    }

    /// Adds an item and wakes the worker.
    pub(in crate::engine) fn push(&self, item: Item) {
        self.items().push_back(item);
        self.has_items.store(true, Ordering::SeqCst);
        self.wake.wake();
    }

    /// Returns what wakes the worker.
    pub(in crate::engine) fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Returns the tally of what the worker has done by copies, or by its NIC.
    pub(in crate::engine) fn tally(&self, by_copies: bool) -> &Tally {
        if by_copies { &self.copies } else { &self.nic }
    }

    pub(in crate::engine) fn has_items(&self) -> bool {
        self.has_items.load(Ordering::SeqCst)
    }

    /// Moves the items to the end of `into`. If `into` is empty, this exchanges the two lists and takes no memory.
    pub(in crate::engine) fn take(&self, into: &mut VecDeque<Item>) {
        let mut items = self.items();
        self.has_items.store(false, Ordering::SeqCst);
        if into.is_empty() {
            std::mem::swap(&mut *items, into);
        } else {
            into.append(&mut items);
        }
    }

    fn items(&self) -> MutexGuard<'_, VecDeque<Item>> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
