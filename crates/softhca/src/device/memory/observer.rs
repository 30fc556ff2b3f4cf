//! A function that gets every access of the devices to registered memory. By it a checker of memory order, which sees software
//! alone, learns what the devices do.

// UNSAFETY: a function pointer kept in an atomic.
#![expect(unsafe_code, reason = "a function pointer kept in an atomic")]

use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Address, number of bytes, and whether they are written.
pub type MemoryObserver = extern "C" fn(addr: u64, bytes: u64, writes: bool);

static OBSERVER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Names the function that gets every access of all HCAs of this process to registered memory: a read after it, a write before
/// it. Called by the engine and by commands, with locks held: it must not wait for either.
pub fn observe_memory(observer: MemoryObserver) {
    OBSERVER.store(observer as *mut (), Ordering::Release);
}

/// Calls the observer, if one is set.
#[inline]
pub(super) fn note(addr: usize, bytes: usize, writes: bool) {
    let observer = OBSERVER.load(Ordering::Relaxed);
    if !observer.is_null() {
        // SAFETY: only `observe_memory` stores here, a function of exactly this type; code needs no ordering.
        let observer = unsafe { transmute::<*mut (), MemoryObserver>(observer) };
        observer(addr as u64, bytes as u64, writes);
    }
}
