//! The inbox of a worker, and how a worker posts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::held::Held;
use crate::engine::lock::lock;
use crate::engine::transfers::queue::{Item, RunQueue};
use crate::provider::{Provider, ProviderError};

/// The inbox of a worker: what others give it.
pub(super) struct Inbox<P: Provider> {
    /// The number of the worker.
    number: u32,
    queue: Arc<RunQueue>,
    lanes: Mutex<Vec<Held<P::Lane>>>,
    stops: AtomicBool,
}

impl<P: Provider> Inbox<P> {
    pub(super) fn new(number: u32, queue: &Arc<RunQueue>) -> Self {
        Self {
            number,
            queue: Arc::clone(queue),
            lanes: Mutex::default(),
            stops: AtomicBool::new(false),
        }
    }

    /// Returns the number of the worker.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn queue(&self) -> &Arc<RunQueue> {
        &self.queue
    }

    /// Gives a lane to the worker.
    pub(super) fn give(&self, lane: Held<P::Lane>) {
        lock(&self.lanes).push(lane);
        self.queue.push(Item::Look);
    }

    /// Takes the lanes that others have given to the worker.
    pub(super) fn take_lanes(&self) -> Vec<Held<P::Lane>> {
        std::mem::take(&mut *lock(&self.lanes))
    }

    /// Tells the worker that the engine ends.
    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::SeqCst);
        self.queue.push(Item::Look);
    }

    /// Returns whether the engine ends.
    pub(super) fn stops(&self) -> bool {
        self.stops.load(Ordering::SeqCst)
    }

    /// Calls `sleep` if the queue is empty. `sleep` returns when the wake of the queue is woken, which an item that comes meanwhile does.
    pub(super) fn sleep_if_empty(
        &self,
        sleep: impl FnOnce() -> Result<(), ProviderError>,
    ) -> Result<(), ProviderError> {
        let wake = self.queue.wake();
        wake.begin();
        let slept = if self.queue.has_items() {
            Ok(())
        } else {
            sleep()
        };
        wake.end();
        slept
    }
}

/// How a worker posts.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Pace {
    /// The most WQEs for one doorbell.
    pub(in crate::engine) chain: u32,
    /// The most completions of one turn.
    pub(in crate::engine) reap: usize,
    /// The most local ranges of a WQE.
    pub(in crate::engine) gather: u32,
    /// The time in which slices of a closed transfer may end by themselves.
    pub(in crate::engine) grace: Duration,
}
