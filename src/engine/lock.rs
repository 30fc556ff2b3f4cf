//! Locks mutexes whose holders may panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even after a thread has panicked while it held the lock.
pub(in crate::engine) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change under the lock is complete, so a poisoned lock does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
