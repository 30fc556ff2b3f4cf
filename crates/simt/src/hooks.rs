//! The functions that compiled kernels call; declared in `include/simt/runtime.h`.
//!
//! Outside a launch (if host C++ calls this code), schedule points do nothing and meetings panic.

// UNSAFETY: exports C symbols and dereferences what kernels pass.
#![expect(
    unsafe_code,
    reason = "no_mangle exports; a register address and a C string come from the kernel"
)]

#[cfg(feature = "tsan")]
mod order;

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, Ordering::Release};

use crate::error::LaunchError;
use crate::idle;
use crate::seats::seat::{SeatedThread, current};
use crate::warp::op::Op;

#[unsafe(no_mangle)]
extern "C-unwind" fn simt_yield_slow() {
    if let Some(me) = current() {
        me.warp().yield_now(me);
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn simt_progress() {
    if let Some(me) = current() {
        me.warp().turns().progress();
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn simt_poll() {
    if let Some(me) = current() {
        me.warp().poll(me);
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn simt_count_fence() {
    if let Some(me) = current() {
        me.warp().turns().count_fence();
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn simt_count_loads(loads: u32) {
    if let Some(me) = current() {
        me.warp().turns().count_loads(loads);
    }
}

/// Notes that the calling lane comes to the front of a divergent part of the code: `simt_diverge` of runtime/current.c.
#[unsafe(no_mangle)]
extern "C-unwind" fn simt_diverge_at(site: usize) {
    if let Some(me) = current() {
        me.warp().diverge(me, site);
    }
}

/// Notes that the calling lane comes to the end of the part that it entered last.
#[unsafe(no_mangle)]
extern "C-unwind" fn simt_reconverge() {
    if let Some(me) = current() {
        me.warp().reconverge(me);
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn simt_now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the local `now`; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // Never negative, and below 2^63 ns for 292 years of uptime.
    now.tv_sec
        .cast_unsigned()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec.cast_unsigned())
}

/// # Safety
/// `register` must be a mapped, 8-byte aligned device register (or memory that stands for one).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn simt_mmio_store64(register: *mut u64, value: u64) {
    if let Some(me) = current() {
        let addr = register.expose_provenance() as u64;
        if !me.warp().turns().has_register(addr) {
            let thread = me.id();
            me.warp()
                .fail(me, move || LaunchError::Register { thread, addr });
        }
    }
    #[cfg(feature = "tsan")]
    if let Some(slot) = current().and_then(SeatedThread::slot) {
        crate::check::doorbell(slot);
    }
    // SAFETY: mapped and aligned by this function's contract. An atomic, since a software device reads it meanwhile; Release
    // pairs with that read, so that the device sees all writes before the doorbell.
    unsafe { AtomicU64::from_ptr(register) }.store(value, Release);
    simt_progress();
    idle::kick();
}

#[unsafe(no_mangle)]
extern "C-unwind" fn simt_lane_id() -> u32 {
    inside("simt_lane_id").lane()
}

/// # Safety
/// `message` must be a C string.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn simt_fail(message: *const c_char) -> ! {
    // SAFETY: a C string by this function's contract.
    let message = unsafe { CStr::from_ptr(message) }
        .to_string_lossy()
        .into_owned();
    let Some(me) = current() else {
        outside(&message)
    };
    let thread = me.id();
    me.warp()
        .fail(me, move || LaunchError::Panic { thread, message })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn simt_grid_sync() {
    let me = inside("simt_grid_sync");
    me.warp().grid_sync(me);
}

#[unsafe(no_mangle)]
extern "C-unwind" fn simt_warp_op(mask: u32, op: u32, value: u64, source: u32) -> u64 {
    let me = inside("a warp operation");
    me.warp().meet(me, Op(op), mask, value, source)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn simt_block_op(op: u32, value: u32) -> u32 {
    let me = inside("a barrier of the block");
    me.warp().seat().meet(me, Op(op), value)
}

#[inline]
fn inside<'a>(what: &str) -> &'a SeatedThread {
    match current() {
        Some(thread) => thread,
        None => outside(what),
    }
}

#[cold]
#[expect(
    clippy::panic,
    reason = "a call outside a launch is a defect of the calling C++ code, which has no error to return"
)]
fn outside(what: &str) -> ! {
    panic!("called outside a launch: {what}")
}
