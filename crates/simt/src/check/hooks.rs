//! How accesses come in: from compiled kernels (runtime/order.c), from the scheduler, from devices.

// UNSAFETY: exports C symbols; atexit.
#![expect(
    unsafe_code,
    reason = "no_mangle exports for instrumented kernels; atexit"
)]

use std::ffi::c_void;
use std::io::Write as _;
use std::sync::Once;

use super::agent::{Place, Scope};
use super::lock::Locked;
use super::omit::Omission;
use super::report::{self, Finding};
use super::state::State;
use crate::config::Dim3;
use crate::error::ThreadId;
use crate::thread::{Thread, current};

static STATE: Locked<State> = Locked::new();

/// Exit status of a process whose findings no caller took: libtsan's.
const EXIT_STATUS: i32 = 66;

/// Flags of a plain access, as in runtime/order.c.
const WRITE: u32 = 1;
const NON_COHERENT: u32 = 2;
/// Flags of an atomic.
const LOAD: u32 = 1;
const STORE: u32 = 2;
/// Flags of a fence.
const ACQUIRE: u32 = 1;
const RELEASE: u32 = 2;

/// Memory orders as the compiler passes them.
const ORDER_CONSUME: i32 = 1;
const ORDER_RELEASE: i32 = 3;
const ORDER_ACQ_REL: i32 = 4;

#[unsafe(no_mangle)]
extern "C" fn simt_check_access(addr: *const c_void, bytes: u64, flags: u32, pc: u64, frame: u64) {
    let Some(me) = current() else { return };
    let Some(slot) = me.slot() else { return };
    let addr = addr.expose_provenance() as u64;
    // Its own stack, and what the scheduler keeps of it.
    let own = std::ptr::from_ref::<Thread>(me).addr() as u64;
    let on_stack = (frame..me.stack_root()).contains(&addr);
    if on_stack || (own..own + size_of::<Thread>() as u64).contains(&addr) || bytes == 0 {
        return;
    }
    let (writes, constant) = (flags & WRITE != 0, flags & NON_COHERENT != 0);
    STATE.with(|state| {
        state.plain(slot, addr, bytes, writes, constant, pc);
        if !constant && !me.in_shared(addr) {
            state.through_l1(slot, addr, bytes, writes, pc);
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn simt_check_lock() {
    STATE.take();
}

#[unsafe(no_mangle)]
extern "C" fn simt_check_unlock() {
    STATE.give_back();
}

/// Between `simt_check_lock` and `simt_check_unlock`.
#[unsafe(no_mangle)]
extern "C" fn simt_check_atomic(
    addr: *const c_void,
    bytes: u32,
    what: u32,
    order: i32,
    scope: u32,
    pc: u64,
) {
    let Some(slot) = current().and_then(Thread::slot) else {
        return;
    };
    let (loads, stores) = (what & LOAD != 0, what & STORE != 0);
    let acquire = loads && order >= ORDER_CONSUME && order != ORDER_RELEASE;
    let release = stores && (order == ORDER_RELEASE || order >= ORDER_ACQ_REL);
    let scope = Scope::from_number(scope);
    // SAFETY: runtime/order.c holds the lock around this call, and makes one at a time.
    unsafe {
        STATE.held(|state| {
            if release {
                state.fence(slot, false, true, scope);
            }
            let addr = addr.expose_provenance() as u64;
            state.atomic(slot, addr, bytes.into(), loads, stores, scope, pc);
            if acquire {
                state.fence(slot, true, false, scope);
            }
        });
    }
}

#[unsafe(no_mangle)]
extern "C" fn simt_check_fence(what: u32, scope: u32) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    if let Some(slot) = current().and_then(Thread::slot) {
        let (acquire, release) = (what & ACQUIRE != 0, what & RELEASE != 0);
        STATE.with(|state| state.fence(slot, acquire, release, Scope::from_number(scope)));
    }
}

/// A device of this process accesses `bytes` bytes at `addr` next. For [its hook](crate#schedules).
pub extern "C" fn device_access(addr: u64, bytes: u64, writes: bool) {
    STATE.with(|state| state.device(addr, bytes, writes));
}

/// Memory of the host at `host` that kernels reach at `addr`. Only fences of scope sys order what a device does in it, and a kernel
/// that uses the host's address is a finding.
pub fn map_host_memory(addr: u64, host: u64, bytes: u64) {
    STATE.with(|state| state.map_host(addr, host, bytes));
}

/// Memory that is given back: new memory at these addresses begins anew.
pub fn unmap_memory(addr: u64, bytes: u64) {
    STATE.with(|state| state.unmap(addr, bytes));
}

/// Takes the findings that were not reported yet.
#[must_use]
pub fn take_findings() -> Vec<Finding> {
    taken(None)
}

/// Calls `f` with the checker.
pub(super) fn with_state<R>(f: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(f)
}

fn taken(launch: Option<u64>) -> Vec<Finding> {
    let mut findings = STATE.with(|state| state.findings.take(launch));
    report::look_up(&mut findings);
    findings
}

/// Prints the findings that no caller took, when the process ends.
pub(super) fn report_at_exit() {
    extern "C" fn print() {
        let findings = taken(None);
        if findings.is_empty() {
            return;
        }
        let mut out = std::io::stderr().lock();
        for finding in &findings {
            // A closed stderr leaves the status.
            let _ = writeln!(out, "simt: {}", finding.text);
        }
        // SAFETY: ends the process at once; the other handlers of atexit do not run.
        unsafe { libc::_exit(EXIT_STATUS) };
    }
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: a function that may run at any time. If atexit has no room for it, `take_findings` still returns the findings.
        let _ = unsafe { libc::atexit(print) };
    });
}

pub(crate) fn begin_launch() -> u64 {
    STATE.with(State::begin_launch)
}

/// The findings of a launch that is over.
pub(crate) fn end_launch(launch: u64) -> Vec<Finding> {
    STATE.with(|state| state.end_launch(launch));
    taken(Some(launch))
}

/// Returns the slot of a thread that begins.
pub(crate) fn begin_thread(
    kernel: &'static str,
    thread: ThreadId,
    launch: u64,
    device: u32,
    block: Dim3,
) -> u32 {
    let place = Place {
        launch,
        device,
        block,
    };
    STATE.with(|state| state.begin_thread(kernel, thread, place))
}

pub(crate) fn end_thread(slot: u32) {
    STATE.with(|state| state.end_thread(slot));
}

/// Memory that begins a new life.
pub(crate) fn forget(addr: u64, bytes: u64) {
    STATE.with(|state| state.forget(addr, bytes));
}

/// Lanes have met.
pub(crate) fn meet_warp<'a>(threads: impl Iterator<Item = &'a Thread>, orders: bool) {
    let slots: Vec<u32> = threads.filter_map(Thread::slot).collect();
    STATE.with(|state| state.meet(&slots, orders));
}

/// The threads of a block have met.
pub(crate) fn meet_block(threads: &[Thread]) {
    let slots: Vec<u32> = threads.iter().filter_map(Thread::slot).collect();
    STATE.with(|state| {
        let missing = slots
            .first()
            .is_some_and(|slot| state.lacks(*slot, Omission::BlockBarriers));
        if !missing {
            state.meet(&slots, true);
        }
    });
}

pub(crate) fn arrive_at_grid(me: &Thread, generation: u32) {
    if let Some(slot) = me.slot() {
        STATE.with(|state| state.arrive_at_grid(slot, generation));
    }
}

pub(crate) fn leave_grid(me: &Thread, generation: u32) {
    if let Some(slot) = me.slot() {
        STATE.with(|state| state.leave_grid(slot, generation));
    }
}

/// A register of a device is stored to next.
pub(crate) fn on_doorbell() {
    if let Some(slot) = current().and_then(Thread::slot) {
        STATE.with(|state| state.doorbell(slot));
    }
}
