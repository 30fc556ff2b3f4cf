//! A fabric behind its lock: that of the process, or that of a simulation.
//!
//! The engine thread holds the lock while it works, a bounded time per turn, and gives way to any thread that waits for it. A
//! plain mutex would let it take the lock again and again.

use crate::clock::Clock;
use crate::device::state::Fabric;
use crate::engine::ForCommands;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// HCAs that know each other.
#[derive(Debug)]
pub(crate) struct World {
    fabric: Mutex<Fabric>,
    /// How many threads other than the engine want the lock.
    waiting: AtomicUsize,
}

impl World {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            fabric: Mutex::new(Fabric::new(clock, &ForCommands)),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Returns the one whose devices libibverbs sees, served by the engine thread.
    pub(crate) fn of_process() -> &'static Arc<Self> {
        static WORLD: OnceLock<Arc<World>> = OnceLock::new();
        WORLD.get_or_init(|| Self::new(Clock::Real))
    }

    /// Takes the lock, for all threads but the engine.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Fabric> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut guard = self.fabric.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard.settle();
        guard
    }

    /// Takes the lock, for the engine.
    pub(crate) fn lock_for_engine(&self) -> MutexGuard<'_, Fabric> {
        self.fabric.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a thread waits for the engine to let go.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }
}
