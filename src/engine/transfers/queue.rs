//! The run queue of a worker: what others have for it, and the tallies of what it has done. Its memory is taken once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::engine::ids::TransferId;
use crate::engine::ledger::tally::Tally;
use crate::engine::route::link::Link;
use crate::provider::{ProviderError, Wake};

/// What a worker is to do.
#[derive(Debug)]
pub(in crate::engine) enum Item {
    /// Pull slices of this transfer.
    Transfer {
        id: TransferId,
        link: Arc<Link>,
        deadline: Option<Instant>,
        /// The worker has not had it before.
        is_new: bool,
    },
    /// This transfer was closed: its grace begins.
    Closed(TransferId),
    /// Conclude what its canceller has settled.
    Settle(TransferId),
    /// Look at links and lanes: something of them has changed.
    Look,
    /// Panic.
    #[cfg(test)]
    Panic,
}

/// The items that wait for one worker, and the tallies of what it has done.
#[derive(Debug)]
pub(in crate::engine) struct RunQueue {
    items: Mutex<VecDeque<Item>>,
    has_items: AtomicBool,
    pub(in crate::engine) wake: Wake,
    /// What the worker has done by its NIC.
    pub(in crate::engine) nic: Tally,
    /// The same by copies within the machine.
    pub(in crate::engine) copies: Tally,
}

impl RunQueue {
    /// With room for `items` items without another allocation.
    pub(in crate::engine) fn new(items: usize) -> Result<Self, ProviderError> {
        Ok(Self {
            items: Mutex::new(VecDeque::with_capacity(items)),
            has_items: AtomicBool::new(false),
            wake: Wake::new()?,
            nic: Tally::default(),
            copies: Tally::default(),
        })
    }

    pub(in crate::engine) fn push(&self, item: Item) {
        self.items().push_back(item);
        self.has_items.store(true, Ordering::SeqCst);
        self.wake.wake();
    }

    /// What the worker has done by copies, or by its NIC.
    pub(in crate::engine) fn tally(&self, by_copies: bool) -> &Tally {
        match by_copies {
            true => &self.copies,
            false => &self.nic,
        }
    }

    pub(in crate::engine) fn has_items(&self) -> bool {
        self.has_items.load(Ordering::SeqCst)
    }

    /// Adds the items to `into`. Where that is empty it exchanges them, and no memory is taken.
    pub(in crate::engine) fn take(&self, into: &mut VecDeque<Item>) {
        let mut items = self.items();
        self.has_items.store(false, Ordering::SeqCst);
        match into.is_empty() {
            true => std::mem::swap(&mut *items, into),
            false => into.append(&mut items),
        }
    }

    fn items(&self) -> MutexGuard<'_, VecDeque<Item>> {
        // Each change is whole.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
