//! A fabric and its lock. The process has a world, and each simulation has one.
//!
//! The engine thread holds the lock while it works, for a bounded time per turn, and gives way to any thread that waits for the lock. With
//! a plain mutex the engine could take it again and again.

use crate::clock::Clock;
use crate::device::state::Fabric;
use crate::engine::ForCommands;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// HCAs that can reach each other, behind a lock.
#[derive(Debug)]
pub(crate) struct World {
    fabric: Mutex<Fabric>,
    /// Number of threads other than the engine that wait for the lock.
    waiting: AtomicUsize,
}

impl World {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            fabric: Mutex::new(Fabric::new(clock, &ForCommands)),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Returns the world whose devices libibverbs sees. The engine thread serves it.
    pub(crate) fn of_process() -> &'static Arc<Self> {
        static WORLD: OnceLock<Arc<World>> = OnceLock::new();
        WORLD.get_or_init(|| Self::new(Clock::Real))
    }

    /// Takes the lock for a thread other than the engine. All pending writes are placed then.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Fabric> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut guard = self.fabric.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard.settle();
        guard
    }

    /// Takes the lock for the engine.
    pub(crate) fn lock_for_engine(&self) -> MutexGuard<'_, Fabric> {
        self.fabric.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether another thread waits for the lock.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }
}
