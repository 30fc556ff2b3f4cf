//! Sleeping and waking: of the engine, and of software that waits for the device.
//!
//! The engine sleeps in `ppoll` on its sockets and an eventfd. [`softhca_kick`] writes the eventfd, but only if the engine is
//! asleep or about to be. Software that waits for completions or bytes of peers sleeps on a futex word that the
//! engine bumps.
//!
//! [`sleep`] calls `ppoll` of libc, not of rustix. The `ppoll` of rustix needs descriptors that stay open, but the descriptors of an HCA
//! may be closed meanwhile. Nor does rustix have signal masks.

// UNSAFETY: exported C symbols; ppoll, signal masks.
#![expect(unsafe_code, reason = "exported symbols, ppoll and signal masks")]

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{futex, set_current_timer_slack};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Duration;

/// The futex word. The engine bumps it after each turn in which it has written something that software may wait for.
static WAKE_WORD: AtomicU32 = AtomicU32::new(0);
/// True if the engine is asleep, or has decided to sleep.
static ASLEEP: AtomicBool = AtomicBool::new(false);
/// True if [`softhca_kick`] has ever been called.
static KICKED: AtomicBool = AtomicBool::new(false);
/// True if an executor looks at doorbells and sleeps on the wake word.
static EXECUTOR: AtomicBool = AtomicBool::new(false);
static BELL: OnceLock<OwnedFd> = OnceLock::new();

/// Returns the futex word. It changes, and its waiters are woken, when a completion was written or bytes of a peer have arrived.
///
/// Wait for a change with `FUTEX_WAIT` and `FUTEX_PRIVATE_FLAG`: load the word, look at the memory, then wait while the word
/// is as loaded.
#[unsafe(no_mangle)]
pub extern "C" fn softhca_wake_word() -> *const u32 {
    WAKE_WORD.as_ptr()
}

/// Wakes the engine after the store of a doorbell, so that a sleeping engine looks at once.
#[unsafe(no_mangle)]
pub extern "C" fn softhca_kick() {
    if !KICKED.load(Ordering::Relaxed) {
        KICKED.store(true, Ordering::Relaxed);
    }
    kick();
    // The doorbell may be for an executor, which sleeps on the wake word as software does.
    if EXECUTOR.load(Ordering::Relaxed) {
        announce();
    }
}

/// Sets whether kicks wake an executor.
pub(crate) fn serve_executor(attached: bool) {
    EXECUTOR.store(attached, Ordering::Relaxed);
}

/// Returns whether software has called [`softhca_kick`], as it does after its doorbells.
pub(super) fn is_kicked() -> bool {
    KICKED.load(Ordering::Relaxed)
}

/// Wakes the engine if it is asleep or about to be.
pub(crate) fn kick() {
    // Orders the doorbell's store before the load: either the engine's last look sees the doorbell, or this thread sees ASLEEP. Pairs with
    // the fence in `fall_asleep`.
    fence(Ordering::SeqCst);
    if ASLEEP.load(Ordering::Relaxed) && ASLEEP.swap(false, Ordering::Relaxed) {
        ring();
    }
}

fn ring() {
    if let Some(bell) = BELL.get() {
        // The write does not block. If the counter of the eventfd is full, the engine wakes as well.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

/// Opens the eventfd, once, before the engine starts.
pub(super) fn prepare() -> io::Result<()> {
    if BELL.get().is_some() {
        return Ok(());
    }
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    // If another thread has set its eventfd first, this eventfd is closed again.
    let _ = BELL.set(bell);
    Ok(())
}

/// Announces that the engine will sleep. It must look around once more before it does.
pub(super) fn fall_asleep() {
    ASLEEP.store(true, Ordering::Relaxed);
    // Pairs with the fence in `kick`.
    fence(Ordering::SeqCst);
}

/// Takes the announcement of a sleep back: the last look found something.
pub(super) fn stay_awake() {
    ASLEEP.store(false, Ordering::Relaxed);
}

/// Sleeps until a descriptor is ready, a thread kicks, or the time is over. `None` has no end.
pub(super) fn sleep(descriptors: &[(RawFd, i16)], time: Option<Duration>) {
    let Some(bell) = BELL.get() else {
        return;
    };
    let mut polled: Vec<libc::pollfd> = descriptors
        .iter()
        .copied()
        .chain([(bell.as_raw_fd(), libc::POLLIN)])
        .map(|(fd, events)| libc::pollfd {
            fd,
            events,
            revents: 0,
        })
        .collect();
    let time = time.map(|time| libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos()),
    });
    let timeout = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = polled.len() as libc::nfds_t;
    // SAFETY: an array of `count` entries and a timespec or null, all alive during the call.
    unsafe { libc::ppoll(polled.as_mut_ptr(), count, timeout, ptr::null()) };
    stay_awake();
    // The read does not block, even if no thread has rung.
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

/// Lets timers of the calling thread end on time. By default Linux lets them be 50 us late, which is as long as the engine's first nap.
pub(super) fn exact_timers() {
    const NANOSECONDS: NonZeroU64 = NonZeroU64::MIN;
    // Where a sandbox forbids this call, naps end late.
    let _ = set_current_timer_slack(Some(NANOSECONDS));
}

/// Announces to waiting software that it has something new to see.
pub(crate) fn announce() {
    // Release: a thread that sees the new word sees all writes that were made before.
    WAKE_WORD.fetch_add(1, Ordering::Release);
    // The wake fails only for words that are not aligned or not mapped.
    let _ = futex::wake(&WAKE_WORD, futex::Flags::PRIVATE, i32::MAX.unsigned_abs());
}

/// Runs `run` while all signals are blocked for the calling thread. Threads that `run` makes start with all signals blocked.
pub(super) fn without_signals<T>(run: impl FnOnce() -> T) -> T {
    // SAFETY: signal sets are plain data; both calls concern the calling thread only.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let result = run();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        result
    }
}
