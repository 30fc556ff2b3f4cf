//! Makes the devices of a preloaded library, at the first call that looks for devices.
//!
//! Such a call looks at `/dev/infiniband`, `/sys/class/infiniband*`, the netlink family of RDMA, or the tree itself. If this library is
//! linked into a program, `Hca::new()` makes the devices instead.

// UNSAFETY: dladdr and getauxval.
#![expect(unsafe_code, reason = "asks the loader where this code lies")]

use super::{environment, raw};
use crate::shim::tree::{READY, STATE, UNTOUCHED, at_load};
use libc::{c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Makes the devices of a preloaded library if no call has made them yet. After the first time this costs one load.
///
/// A failure is printed on stderr, and the process then sees no device.
pub(super) fn wake() {
    let state = STATE.load(Ordering::Acquire);
    if state == READY || is_linked_in() {
        return;
    }
    let me = raw::thread_id();
    if state == me {
        return; // this very call chain is writing the tree
    }
    // Acquire/Release: a thread that sees READY sees the devices.
    match STATE.compare_exchange(UNTOUCHED, me, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            let _ = catch_unwind(environment::make_devices);
            STATE.store(READY, Ordering::Release);
        }
        Err(_) => wait_until_ready(),
    }
}

/// Waits while another thread makes the devices. That takes milliseconds; this function waits at most 10 seconds.
fn wait_until_ready() {
    let deadline = Instant::now() + Duration::from_secs(10);
    while STATE.load(Ordering::Acquire) != READY && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Returns whether this code is part of the main program, which then makes devices by `Hca::new`, and not of a preloaded library.
fn is_linked_in() -> bool {
    static LINKED_IN: AtomicI32 = AtomicI32::new(-1);
    let known = LINKED_IN.load(Ordering::Relaxed);
    if known >= 0 {
        return known == 1;
    }
    let mut here = MaybeUninit::<libc::Dl_info>::zeroed();
    let address: *const c_void = (at_load as extern "C" fn() as *const ()).cast();
    // SAFETY: `here` is writable for one `Dl_info`, which is plain pointers, valid as zeros.
    let here = unsafe {
        libc::dladdr(address, here.as_mut_ptr());
        here.assume_init()
    };
    // SAFETY: getauxval has no preconditions.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
    // The main program's headers lie in its first page, right after the address where it was loaded.
    let base = here.dli_fbase.addr() as u64;
    let linked_in = headers.wrapping_sub(base) < 4096;
    LINKED_IN.store(c_int::from(linked_in), Ordering::Relaxed);
    linked_in
}
