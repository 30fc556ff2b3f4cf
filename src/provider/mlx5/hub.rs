//! The CQs that all workers of a NIC share. A worker that reaps takes all completions, and gives each to the worker of its lane.
//!
//! A worker takes completions out of the CQs under a lock, and puts them into the boxes of their workers under that lock. So the
//! completions of a lane are in its worker's box in their order. A worker that does not get the lock at once only takes from its own box.
//! All workers are alike: if a worker is busy or has panicked, the others go on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::consumers::Consumers;
use super::stock::Stock;
use crate::provider::{Completion, HostMemory, ProviderError, Wake, Watched};

/// The first number that no QP has.
const MOST_QPN: u64 = 1 << 24;

/// What all workers of a NIC share.
#[derive(Debug)]
pub(super) struct Hub {
    stock: Arc<Stock>,
    common: Mutex<Common>,
    /// The boxes of the workers, by number of the worker.
    boxes: Box<[Mailbox]>,
    /// The worker of each QP, in a byte for each QP number. The system gives pages when they are first touched.
    owners: HostMemory,
}

/// The part that one worker uses at a time.
#[derive(Debug)]
struct Common {
    consumers: Consumers,
    /// A list that is kept for its memory.
    found: Vec<Completion>,
}

/// The completions for one worker.
#[derive(Debug)]
struct Mailbox {
    items: Mutex<VecDeque<Completion>>,
    has_items: AtomicBool,
    /// What wakes the worker when another one fills its box. The worker sleeps on it besides its own `Wake`.
    wake: Wake,
}

impl Mailbox {
    fn new() -> Result<Self, ProviderError> {
        Ok(Self {
            items: Mutex::default(),
            has_items: AtomicBool::new(false),
            wake: Wake::new()?,
        })
    }

    fn put(&self, completion: Completion) {
        lock(&self.items).push_back(completion);
        self.has_items.store(true, Ordering::SeqCst);
    }

    fn take(&self, found: &mut Vec<Completion>, most: usize) {
        if !self.has_items.load(Ordering::SeqCst) {
            return;
        }
        let mut items = lock(&self.items);
        let count = items.len().min(most.saturating_sub(found.len()));
        found.extend(items.drain(..count));
        self.has_items.store(!items.is_empty(), Ordering::SeqCst);
    }
}

impl Hub {
    /// Makes a hub for so many workers, at most 256.
    pub(super) fn new(stock: &Arc<Stock>, workers: u32) -> Result<Self, ProviderError> {
        let boxes = (0..workers).map(|_| Mailbox::new());
        Ok(Self {
            stock: Arc::clone(stock),
            common: Mutex::new(Common {
                consumers: Consumers::new(stock),
                found: Vec::new(),
            }),
            boxes: boxes.collect::<Result<_, _>>()?,
            owners: HostMemory::new(MOST_QPN)?,
        })
    }

    /// Assigns the completions of this QP to `worker`.
    pub(super) fn give(&self, qpn: u32, worker: usize) -> Result<(), ProviderError> {
        let worker = u8::try_from(worker).unwrap_or(u8::MAX);
        self.owners.write(qpn.into(), &[worker])
    }

    fn box_of(&self, qpn: u32) -> Option<&Mailbox> {
        let mut worker = [0];
        self.owners.read(qpn.into(), &mut worker).ok()?;
        self.boxes.get(usize::from(worker[0]))
    }

    /// Takes completions for all workers, and adds those for `worker` to `found`.
    pub(super) fn reap(&self, worker: usize, found: &mut Vec<Completion>, most: usize) {
        let common = match self.common.try_lock() {
            Ok(common) => Some(common),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut common) = common {
            self.hand_out(worker, &mut common, most);
        }
        self.boxes[worker].take(found, most);
    }

    fn hand_out(&self, own: usize, common: &mut Common, most: usize) {
        let Common { consumers, found } = common;
        consumers.reap(found, most);
        for completion in found.drain(..) {
            if let Some(to) = self.box_of(completion.lane) {
                to.put(completion);
            }
        }
        for (nth, other) in self.boxes.iter().enumerate() {
            if nth != own && other.has_items.load(Ordering::SeqCst) {
                other.wake.wake();
            }
        }
    }

    /// Sleeps until a WQE of any worker has completed, `wake` is woken, or the time is over.
    pub(super) fn sleep(
        &self,
        worker: usize,
        wake: &Wake,
        most: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let own = &self.boxes[worker];
        own.wake.begin();
        let mut slept = Ok(());
        if !own.has_items.load(Ordering::SeqCst) && self.common().consumers.arm() {
            let events = Watched::read(self.stock.events());
            slept = wake.sleep_beside([events, own.wake.watched()], most);
        }
        own.wake.end();
        slept?;
        // A worker that takes the events looks at the CQs before it sleeps again, so no event is lost.
        self.stock.take_events()
    }

    fn common(&self) -> MutexGuard<'_, Common> {
        lock(&self.common)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change under the lock is complete, so a poisoned lock does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
