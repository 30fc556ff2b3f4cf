//! What the workers of a launch share: the kernel, the barrier of the grid, the failure, and hints that a poll may succeed.

pub(crate) mod grid;

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Shape;
use crate::error::LaunchError;
use crate::idle;
use crate::kernel::Call;
use grid::GridBarrier;

/// A counter on a cache line of its own.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Progress(AtomicU64);

/// The state that the workers of a launch share.
pub(crate) struct Launch {
    call: Call,
    shape: Shape,
    grid: GridBarrier,
    /// The number of the launch for the checker.
    #[cfg(feature = "tsan")]
    number: u64,
    started: Instant,
    deadline: Duration,
    failed: AtomicBool,
    failure: Mutex<Option<LaunchError>>,
    /// What each worker's threads have done so far, published once per turn. It is a hint: when it changes, a poll may succeed.
    progress: Box<[Progress]>,
    /// True if a worker sleeps. It is a hint too: a wake that is missed costs the sleeper at most 200 µs.
    sleeper: AtomicBool,
}

impl Launch {
    /// Begins a launch, which is to end within `deadline` from now.
    pub(crate) fn begin(call: Call, shape: Shape, deadline: Duration) -> Self {
        Self {
            call,
            shape,
            grid: GridBarrier::new(u64::from(shape.blocks) * u64::from(shape.threads)),
            #[cfg(feature = "tsan")]
            number: crate::check::begin_launch(),
            started: Instant::now(),
            deadline,
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            progress: (0..shape.workers).map(|_| Progress::default()).collect(),
            sleeper: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn call(&self) -> Call {
        self.call
    }

    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    #[inline]
    pub(crate) fn grid(&self) -> &GridBarrier {
        &self.grid
    }

    /// Returns the number of the launch for the checker.
    #[cfg(feature = "tsan")]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Ends the launch with an error. The first error stays.
    pub(crate) fn fail(&self, error: LaunchError) {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.failed.store(true, Release);
        self.grid.wake();
        idle::wake_all(idle::wake_word());
    }

    /// Replaces the error by an error that explains it better.
    pub(crate) fn explain(&self, damage: LaunchError) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(damage);
    }

    /// Takes the error with which the launch has failed.
    pub(crate) fn take_failure(&self) -> Option<LaunchError> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }

    /// Returns whether a worker has failed. Pairs with the store in `fail`.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Acquire)
    }

    /// Returns the time since the launch has begun.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the configured time, once it has passed.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        (self.started.elapsed() >= self.deadline).then_some(self.deadline)
    }

    pub(crate) fn publish_progress(&self, worker: u32, progress: u64) {
        self.progress[worker as usize].0.store(progress, Relaxed);
    }

    /// Returns the sum of what the other workers have published.
    pub(crate) fn others_progress(&self, worker: u32) -> u64 {
        let others = self
            .progress
            .iter()
            .enumerate()
            .filter(|&(i, _)| i != worker as usize);
        others.fold(0u64, |sum, (_, progress)| {
            sum.wrapping_add(progress.0.load(Relaxed))
        })
    }

    /// Sleeps on the wake word while it is `seen`, at most for `timeout`.
    pub(crate) fn sleep(&self, word: &AtomicU32, seen: u32, timeout: Duration) {
        self.sleeper.store(true, Relaxed);
        idle::sleep(word, seen, timeout);
    }

    /// Wakes sleeping workers of this launch, since a thread of another worker did something.
    #[inline]
    pub(crate) fn wake_sleepers(&self) {
        if self.sleeper.load(Relaxed) && self.sleeper.swap(false, Relaxed) {
            idle::wake_all(idle::wake_word());
        }
    }
}
