//! What the scheduler, compiled code and devices tell the checker. Each call is one step of the state, under its lock.

// UNSAFETY: an atomic is checked under a lock that compiled code has taken; atexit.
#![expect(
    unsafe_code,
    reason = "the value of a lock that the caller holds; atexit"
)]

use std::io::Write as _;
use std::sync::Once;

use super::access::{Access, Fence};
use super::agent::Place;
use super::finding::Finding;
use super::lines;
use super::lock::Locked;
use super::omission::Omission;
use super::state::State;
use crate::coordinates::ThreadId;

/// True if this build has the checker.
pub const ENABLED: bool = true;

static STATE: Locked<State> = Locked::new();

/// The exit status of a process whose findings no caller took. It is that of libtsan.
const EXIT_STATUS: i32 = 66;

/// Checks a plain access. `in_l1`: the access goes through the L1 of the block.
pub(crate) fn plain(access: &Access, in_l1: bool) {
    with_state(|state| {
        state.plain(access);
        if in_l1 {
            state.through_l1(access);
        }
    });
}

/// Takes the lock of the checker, for an atomic and the note of it.
pub(crate) fn lock() {
    STATE.take();
}

/// Gives the lock of the checker back.
pub(crate) fn unlock() {
    STATE.give_back();
}

/// Checks an atomic, with the fences that its memory order means.
///
/// # Safety
/// The calling OS thread has called `lock` and since then not `unlock`, and makes one call at a time.
pub(crate) unsafe fn atomic(access: &Access, order: Fence) {
    let check = |state: &mut State| {
        if order.release {
            let before = Fence {
                acquire: false,
                ..order
            };
            state.fence(access.slot, before);
        }
        state.atomic(access);
        if order.acquire {
            let after = Fence {
                release: false,
                ..order
            };
            state.fence(access.slot, after);
        }
    };
    // SAFETY: this function's contract.
    unsafe { STATE.held(|state| noting(state, check)) };
}

/// Checks a fence of the thread in `slot`.
pub(crate) fn fence(slot: u32, fence: Fence) {
    with_state(|state| state.fence(slot, fence));
}

/// Notes that a device of this process is about to access `bytes` bytes at `addr`. For [its hook](crate#schedules).
pub extern "C" fn device_access(addr: u64, bytes: u64, writes: bool) {
    with_state(|state| state.device(addr, bytes, writes));
}

/// Notes that kernels reach the host's memory at `host` by the address `addr`. Only fences of scope sys order what a device does in it, and
/// a kernel that uses the host's address is a finding.
pub fn map_host_memory(addr: u64, host: u64, bytes: u64) {
    with_state(|state| state.map_host(addr, host, bytes));
}

/// Notes that memory is given back: new memory at these addresses begins without earlier accesses.
pub fn unmap_memory(addr: u64, bytes: u64) {
    with_state(|state| state.unmap(addr, bytes));
}

/// Takes the findings that were not reported yet.
#[must_use]
pub fn take_findings() -> Vec<Finding> {
    taken(None)
}

/// Begins a launch. Returns its number.
pub(crate) fn begin_launch() -> u64 {
    with_state(State::begin_launch)
}

/// Ends a launch. Returns its findings.
pub(crate) fn end_launch(launch: u64) -> Vec<Finding> {
    with_state(|state| state.end_launch(launch));
    taken(Some(launch))
}

/// Begins a thread. Returns its slot.
pub(crate) fn begin_thread(
    kernel: &'static str,
    thread: ThreadId,
    launch: u64,
    device: u32,
) -> u32 {
    let place = Place {
        launch,
        device,
        block: thread.block,
    };
    with_state(|state| state.begin_thread(kernel, thread, place))
}

pub(crate) fn end_thread(slot: u32) {
    with_state(|state| state.end_thread(slot));
}

/// Forgets the accesses of memory that begins a new life.
pub(crate) fn forget(addr: u64, bytes: u64) {
    with_state(|state| state.forget(addr, bytes));
}

/// Notes that lanes of a warp have met. `orders`: the meeting orders memory.
pub(crate) fn meet_warp(slots: &[u32], orders: bool) {
    with_state(|state| state.meet(slots, orders));
}

/// Notes that the threads of a block have met.
pub(crate) fn meet_block(slots: &[u32]) {
    with_state(|state| {
        let missing = slots
            .first()
            .is_some_and(|slot| state.lacks(*slot, Omission::BlockBarriers));
        if !missing {
            state.meet(slots, true);
        }
    });
}

pub(crate) fn arrive_at_grid(slot: u32, generation: u32) {
    with_state(|state| state.arrive_at_grid(slot, generation));
}

pub(crate) fn leave_grid(slot: u32, generation: u32) {
    with_state(|state| state.leave_grid(slot, generation));
}

/// Notes that the thread in `slot` is about to store to a register of a device.
pub(crate) fn doorbell(slot: u32) {
    with_state(|state| state.doorbell(slot));
}

/// Calls `f` with the state of the checker.
pub(super) fn with_state<R>(f: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(|state| noting(state, f))
}

/// Calls `f`. Once there is a finding, the process prints at its end those that no caller took.
fn noting<R>(state: &mut State, f: impl FnOnce(&mut State) -> R) -> R {
    let result = f(state);
    if state.has_findings() {
        report_at_exit();
    }
    result
}

fn taken(launch: Option<u64>) -> Vec<Finding> {
    let mut findings = with_state(|state| state.take_findings(launch));
    lines::look_up(&mut findings);
    findings
}

/// Lets the process print, when it ends, the findings that no caller took.
fn report_at_exit() {
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
