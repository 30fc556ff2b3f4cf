//! Sleeping and waking: of the engine, and of software that waits for the device.
//!
//! The engine sleeps in `ppoll` on its sockets and an eventfd. [`softhca_kick`] writes the eventfd, but only if the engine is
//! asleep or about to be. Software that waits for completions or bytes of peers sleeps on a futex word that the
//! engine bumps.
//!
//! [`sleep`] calls `ppoll` of libc: rustix asks for descriptors that stay open, and those of an HCA may be closed meanwhile. Nor
//! does rustix have signal masks.

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

/// Bumped after each turn in which software got something new to see.
static WAKE_WORD: AtomicU32 = AtomicU32::new(0);
/// The engine is asleep, or decided to be.
static ASLEEP: AtomicBool = AtomicBool::new(false);
/// [`softhca_kick`] has been called.
static KICKED: AtomicBool = AtomicBool::new(false);
/// An executor looks at doorbells and sleeps on the wake word.
static EXECUTOR: AtomicBool = AtomicBool::new(false);
static BELL: OnceLock<OwnedFd> = OnceLock::new();

/// The futex word that changes (and is woken) when a completion was written or a peer's bytes have arrived.
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
    // The doorbell may be for an executor, which sleeps as software does.
    if EXECUTOR.load(Ordering::Relaxed) {
        announce();
    }
}

/// Says whether an executor is to be woken by kicks.
pub(crate) fn serve_executor(attached: bool) {
    EXECUTOR.store(attached, Ordering::Relaxed);
}

/// Returns whether software calls the engine after its doorbells.
pub(super) fn is_kicked() -> bool {
    KICKED.load(Ordering::Relaxed)
}

/// See [`softhca_kick`].
pub(crate) fn kick() {
    // Orders the doorbell's store before the load: either the engine's last look sees the doorbell, or we see ASLEEP.
    // Pairs with the fence in `fall_asleep`.
    fence(Ordering::SeqCst);
    if ASLEEP.load(Ordering::Relaxed) && ASLEEP.swap(false, Ordering::Relaxed) {
        ring();
    }
}

fn ring() {
    if let Some(bell) = BELL.get() {
        // It does not block; a full counter rings as well.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

/// Opens the eventfd. Once, before the engine starts.
pub(super) fn prepare() -> io::Result<()> {
    if BELL.get().is_some() {
        return Ok(());
    }
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    // If another thread was first, this one is closed again.
    let _ = BELL.set(bell);
    Ok(())
}

/// Announces that the engine will sleep. It must look around once more before it does.
pub(super) fn fall_asleep() {
    ASLEEP.store(true, Ordering::Relaxed);
    // Pairs with the fence in `kick`.
    fence(Ordering::SeqCst);
}

/// The last look found something: no sleep.
pub(super) fn stay_awake() {
    ASLEEP.store(false, Ordering::Relaxed);
}

/// Sleeps until a descriptor is ready, a thread kicks, or the time is over; `None` is for ever.
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
    // It does not block, even if no thread has rung.
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

/// Lets timers of the calling thread end on time. Linux lets them be 50 us late, which is as long as the engine's first nap.
pub(super) fn exact_timers() {
    const NANOSECONDS: NonZeroU64 = NonZeroU64::MIN;
    // Where a sandbox forbids it, naps end late.
    let _ = set_current_timer_slack(Some(NANOSECONDS));
}

/// Announces to waiting software that it has something new to see.
pub(crate) fn announce() {
    // Release: a thread that sees the new word sees all writes before it.
    WAKE_WORD.fetch_add(1, Ordering::Release);
    // It fails for words that are not aligned or not mapped.
    let _ = futex::wake(&WAKE_WORD, futex::Flags::PRIVATE, i32::MAX.unsigned_abs());
}

/// Blocks all signals for the calling thread while `run` runs: threads made meanwhile start with them blocked.
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
