//! The functions that compiled kernels call at each access of memory, in builds with the checker; declared in `runtime/order.c`.

// UNSAFETY: exports C symbols; checks an atomic under the lock of the checker.
#![expect(
    unsafe_code,
    reason = "no_mangle exports for instrumented kernels; the lock is held by compiled code"
)]

use std::ffi::c_void;

use crate::check::{self, Access, Fence, Scope};
use crate::seats::seat::{SeatedThread, current};

/// The flags of a plain access, as in runtime/order.c.
const WRITE: u32 = 1;
const NON_COHERENT: u32 = 2;
/// The flags of an atomic.
const LOAD: u32 = 1;
const STORE: u32 = 2;
/// The flags of a fence.
const ACQUIRE: u32 = 1;
const RELEASE: u32 = 2;

/// The memory orders as the compiler passes them.
const ORDER_CONSUME: i32 = 1;
const ORDER_RELEASE: i32 = 3;
const ORDER_ACQ_REL: i32 = 4;

#[unsafe(no_mangle)]
extern "C" fn simt_check_access(addr: *const c_void, bytes: u64, flags: u32, pc: u64, frame: u64) {
    let Some(me) = current() else { return };
    let Some(slot) = me.slot() else { return };
    let addr = addr.expose_provenance() as u64;
    // Accesses to the thread's own stack, and to what the scheduler keeps of the thread, are not checked.
    let own = std::ptr::from_ref::<SeatedThread>(me).addr() as u64;
    let on_stack = (frame..me.stack_root()).contains(&addr);
    if on_stack || (own..own + size_of::<SeatedThread>() as u64).contains(&addr) || bytes == 0 {
        return;
    }
    let (writes, constant) = (flags & WRITE != 0, flags & NON_COHERENT != 0);
    let access = Access {
        slot,
        addr,
        bytes,
        reads: !writes,
        writes,
        strong: None,
        constant,
        pc,
    };
    let in_l1 = !constant && !me.warp().seat().shared_range().contains(&addr);
    check::plain(&access, in_l1);
}

#[unsafe(no_mangle)]
extern "C" fn simt_check_lock() {
    check::lock();
}

#[unsafe(no_mangle)]
extern "C" fn simt_check_unlock() {
    check::unlock();
}

/// Checks an atomic. runtime/order.c calls it between `simt_check_lock` and `simt_check_unlock`.
#[unsafe(no_mangle)]
extern "C" fn simt_check_atomic(
    addr: *const c_void,
    bytes: u32,
    what: u32,
    order: i32,
    scope: u32,
    pc: u64,
) {
    let Some(slot) = current().and_then(SeatedThread::slot) else {
        return;
    };
    let (loads, stores) = (what & LOAD != 0, what & STORE != 0);
    let scope = Scope::from_number(scope);
    let access = Access {
        slot,
        addr: addr.expose_provenance() as u64,
        bytes: bytes.into(),
        reads: loads,
        writes: stores,
        strong: Some(scope),
        constant: false,
        pc,
    };
    let order = Fence {
        acquire: loads && order >= ORDER_CONSUME && order != ORDER_RELEASE,
        release: stores && (order == ORDER_RELEASE || order >= ORDER_ACQ_REL),
        scope,
    };
    // SAFETY: runtime/order.c holds the lock around this call, and makes one at a time.
    unsafe { check::atomic(&access, order) };
}

#[unsafe(no_mangle)]
extern "C" fn simt_check_fence(what: u32, scope: u32) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    if let Some(slot) = current().and_then(SeatedThread::slot) {
        let fence = Fence {
            acquire: what & ACQUIRE != 0,
            release: what & RELEASE != 0,
            scope: Scope::from_number(scope),
        };
        check::fence(slot, fence);
    }
}
