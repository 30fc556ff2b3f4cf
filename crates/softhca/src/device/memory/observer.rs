//! A function that is told every access of the devices to registered memory. A checker of memory order sees only what software does. By
//! this function it learns what the devices do.

// UNSAFETY: a function pointer kept in an atomic.
#![expect(unsafe_code, reason = "a function pointer kept in an atomic")]

use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that gets the address of an access, its number of bytes, and whether it writes them.
pub type MemoryObserver = extern "C" fn(addr: u64, bytes: u64, writes: bool);

static OBSERVER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sets the function that is told every access of all HCAs of this process to registered memory: of a read after it, of a write before it.
/// The engine and commands call the function with locks held: it must not wait for either.
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
