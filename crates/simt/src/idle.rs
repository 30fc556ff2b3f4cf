//! Sleeps on words, and the two words by which a software device in this process takes part.
//!
//! The device increments the wake word after each completion and each incoming write, and wakes the futex. A worker that found nothing
//! sleeps on that word, for a bounded time. Most of what it waits for comes from devices of other processes, or from memory whose changes
//! no device announces.
//!
//! rustix would make the system calls here safe. But build scripts depend on this crate too, so rustix would be compiled a second time, for
//! 4 s of one core before the first kernel, to save four blocks. Mappings of stacks stay calls of libc, which AddressSanitizer sees.

// UNSAFETY: the futex system call, and a kick hook that is a C function.
#![expect(
    unsafe_code,
    reason = "system calls, and a function pointer kept in an atomic"
)]

use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

/// The wake word of a process without a device: workers of a launch still wake each other on it.
static NO_DEVICE: AtomicU32 = AtomicU32::new(0);
static WAKE_WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
static KICK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sets the futex word that a software device of this process increments (and wakes) when it has written something. It holds for launches
/// that start later.
pub fn set_wake_word(word: &'static AtomicU32) {
    WAKE_WORD.store(ptr::from_ref(word).cast_mut(), Release);
}

/// Sets the function that announces the store of a doorbell to a software device of this process. The function must not unwind.
pub fn set_kick_hook(kick: extern "C" fn()) {
    KICK.store(kick as *mut (), Release);
}

/// Calls the kick hook, if one is set.
pub(crate) fn kick() {
    let kick = KICK.load(Acquire);
    if !kick.is_null() {
        // SAFETY: only `set_kick_hook` stores here, a function of exactly this type.
        unsafe { transmute::<*mut (), extern "C" fn()>(kick)() };
    }
}

/// Returns the word on which workers sleep.
pub(crate) fn wake_word() -> &'static AtomicU32 {
    // SAFETY: null or a `&'static AtomicU32` that `set_wake_word` was given.
    unsafe { WAKE_WORD.load(Acquire).as_ref() }.unwrap_or(&NO_DEVICE)
}

/// Sleeps while `word` is `seen`, at most for `timeout`. It returns early when a thread wakes the futex.
pub(crate) fn sleep(word: &AtomicU32, seen: u32, timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: the word is alive and aligned, the timeout is a local; the call only reads them. All its outcomes (woken, value
    // differs, time out, interrupted) mean the same to the caller: look again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            seen,
            &raw const timeout,
        )
    };
}

/// Wakes all threads that sleep on `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    // SAFETY: the word is alive and aligned; the call does not write.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        )
    };
}
