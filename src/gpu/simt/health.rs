//! The state that all streams of a device share: how launches end, and whether a failed launch has poisoned the device.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::gpu::GpuError;

/// The health of one device.
#[derive(Debug, Default)]
pub(super) struct Health {
    state: Mutex<Poison>,
}

#[derive(Debug, Default)]
struct Poison {
    /// Number of kernels that have failed so far.
    failures: u64,
    /// The name of the kernel that failed last.
    last: String,
    /// The failed kernel that no caller has seen yet.
    unseen: Option<Arc<Done>>,
}

impl Health {
    /// Admits work of `kernel`; returns how many kernels have failed so far.
    pub(super) fn admit(&self, kernel: &str) -> Result<u64, GpuError> {
        let poison = lock(&self.state);
        if poison.unseen.is_some() {
            return Err(poison.error(kernel));
        }
        Ok(poison.failures)
    }

    /// Refuses work that was admitted before a kernel failed.
    pub(super) fn check(&self, kernel: &str, failures: u64) -> Result<(), GpuError> {
        let poison = lock(&self.state);
        if poison.failures != failures {
            return Err(poison.error(kernel));
        }
        Ok(())
    }

    /// Poisons the device if `done` ends with a failure.
    pub(super) fn note(&self, done: &Arc<Done>, result: &Result<(), GpuError>) {
        if has_failed(result) {
            let mut poison = lock(&self.state);
            poison.failures += 1;
            poison.last.clone_from(&done.kernel);
            poison.unseen = Some(Arc::clone(done));
        }
    }

    /// Lifts the poison if a caller has now got the failure of `done` that no caller had seen.
    fn observe(&self, done: &Arc<Done>, result: &Result<(), GpuError>) {
        if !has_failed(result) {
            return;
        }
        let mut poison = lock(&self.state);
        let unseen = poison.unseen.as_ref();
        if unseen.is_some_and(|failed| Arc::ptr_eq(failed, done)) {
            poison.unseen = None;
        }
    }
}

impl Poison {
    fn error(&self, kernel: &str) -> GpuError {
        GpuError::Poisoned {
            kernel: kernel.to_owned(),
            failed: self.last.clone(),
        }
    }
}

/// Returns whether a launch ran and failed.
fn has_failed(result: &Result<(), GpuError>) -> bool {
    matches!(result, Err(GpuError::Kernel { .. } | GpuError::Panicked(_)))
}

/// How one launch ended.
#[derive(Debug)]
pub(super) struct Done {
    kernel: String,
    result: Mutex<Option<Result<(), GpuError>>>,
    changed: Condvar,
}

impl Done {
    pub(super) fn new(kernel: &str) -> Arc<Self> {
        Arc::new(Self {
            kernel: kernel.to_owned(),
            result: Mutex::new(None),
            changed: Condvar::new(),
        })
    }

    pub(super) fn kernel(&self) -> &str {
        &self.kernel
    }

    pub(super) fn is_set(&self) -> bool {
        lock(&self.result).is_some()
    }

    /// Sets the result, unless it is set already.
    pub(super) fn set(&self, result: Result<(), GpuError>) {
        lock(&self.result).get_or_insert(result);
        self.changed.notify_all();
    }

    /// Waits until the launch has ended. Every launch has a deadline.
    pub(super) fn block(&self) {
        let mut result = lock(&self.result);
        while result.is_none() {
            result = self
                .changed
                .wait(result)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the launch has ended, at most `timeout`. A failure that this returns does not poison the device any more.
    pub(super) fn wait(
        self: &Arc<Self>,
        timeout: Duration,
        health: &Health,
    ) -> Result<(), GpuError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut result = lock(&self.result);
        loop {
            if let Some(result) = result.as_ref() {
                health.observe(self, result);
                return result.clone();
            }
            // If the timeout is beyond the clock's range, the wait consists of slices of an hour.
            let left = deadline.map_or(Duration::from_secs(3600), |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Err(GpuError::Timeout {
                    kernel: self.kernel.clone(),
                    waited: timeout,
                });
            }
            let waited = self.changed.wait_timeout(result, left);
            result = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
