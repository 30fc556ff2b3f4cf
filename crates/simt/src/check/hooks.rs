//! The entries for accesses of compiled kernels (runtime/order.c), of the scheduler, and of devices.

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
use crate::coordinates::{Dim3, ThreadId};
use crate::thread::{Thread, current};

static STATE: Locked<State> = Locked::new();

/// The exit status of a process whose findings no caller took. It is that of libtsan.
const EXIT_STATUS: i32 = 66;

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

/// Notes that a device of this process is about to access `bytes` bytes at `addr`. For [its hook](crate#schedules).
pub extern "C" fn device_access(addr: u64, bytes: u64, writes: bool) {
    STATE.with(|state| state.device(addr, bytes, writes));
}

/// Notes that kernels reach the host's memory at `host` by the address `addr`. Only fences of scope sys order what a device does in it, and
/// a kernel that uses the host's address is a finding.
pub fn map_host_memory(addr: u64, host: u64, bytes: u64) {
    STATE.with(|state| state.map_host(addr, host, bytes));
}

/// Notes that memory is given back: new memory at these addresses begins without earlier accesses.
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

/// Lets the process print, when it ends, the findings that no caller took.
pub(super) fn report_at_exit() {
    extern "C" fn print() {
        let findings = taken(None);
        if findings.is_empty() {
            return;
        }
        let mut out = std::io::stderr().lock();
        for finding in &findings {
            // A closed stderr changes nothing of the exit status.
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

/// Ends a launch. Returns its findings.
pub(crate) fn end_launch(launch: u64) -> Vec<Finding> {
    STATE.with(|state| state.end_launch(launch));
    taken(Some(launch))
}

/// Begins a thread. Returns its slot.
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

/// Forgets the accesses of memory that begins a new life.
pub(crate) fn forget(addr: u64, bytes: u64) {
    STATE.with(|state| state.forget(addr, bytes));
}

/// Notes that lanes have met. `orders`: the meeting orders memory.
pub(crate) fn meet_warp<'a>(threads: impl Iterator<Item = &'a Thread>, orders: bool) {
    let slots: Vec<u32> = threads.filter_map(Thread::slot).collect();
    STATE.with(|state| state.meet(&slots, orders));
}

/// Notes that the threads of a block have met.
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

/// Notes that a register of a device is about to be stored to.
pub(crate) fn on_doorbell() {
    if let Some(slot) = current().and_then(Thread::slot) {
        STATE.with(|state| state.doorbell(slot));
    }
}
