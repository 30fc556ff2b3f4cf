//! The lock of the checker. Compiled code takes it before an atomic operation and gives it back after it, so no guard can hold it.

// UNSAFETY: a lock whose two ends are in different functions.
#![expect(unsafe_code, reason = "interior mutability behind a lock by hand")]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

/// A value that a spin lock protects.
#[derive(Debug)]
pub(super) struct Locked<T> {
    taken: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: only the holder of the lock reaches the value.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T: Default> Locked<T> {
    pub(super) const fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(None),
        }
    }

    /// Waits for the lock. A holder never switches to another CUDA thread, and does nothing but its access and the note of it.
    pub(super) fn take(&self) {
        while self.taken.swap(true, Acquire) {
            std::thread::yield_now();
        }
    }

    pub(super) fn give_back(&self) {
        self.taken.store(false, Release);
    }

    /// Calls `f` with the value.
    ///
    /// # Safety
    /// The calling OS thread holds the lock, and not from within another call of this function.
    pub(super) unsafe fn held<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the only access while the lock is held, by this function's contract.
        f(unsafe { &mut *self.value.get() }.get_or_insert_default())
    }

    /// Takes the lock for the time of `f`.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.take();
        // SAFETY: the lock has just been taken; `f` is called once, and the checker's code does not call back.
        let result = unsafe { self.held(f) };
        self.give_back();
        result
    }
}
