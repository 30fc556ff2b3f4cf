//! Sets of signals, and the end of this process by a signal.

// UNSAFETY: signal masks, and a signal to this process.
#![expect(unsafe_code, reason = "signals through libc")]

use std::mem::MaybeUninit;

use libc::{c_int, sigset_t};

/// Ends this process by `signal`, as a child or another program would end by it.
pub(crate) fn end_likewise(signal: c_int) -> ! {
    // SAFETY: calls without preconditions on values that live here. Only the child may dump core, and has.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set_of([signal]), std::ptr::null_mut());
        libc::raise(signal);
    }
    // This is reached if the signal's default does not end a process.
    std::process::exit(128 + signal)
}

/// Returns the set of these signals.
pub(crate) fn set_of(signals: impl IntoIterator<Item = c_int>) -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that the others change.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}
