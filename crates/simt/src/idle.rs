//! Sleeping while all threads poll, and the two words by which a software device in this process takes part.
//!
//! The device bumps the wake word after each completion and each incoming write and wakes the futex. A launch that found nothing
//! sleeps on it, for a bounded time. Most of what it waits for comes from other processes' devices or from memory whose changes
//! no device announces.
//!
//! rustix would make the system calls here safe. Build scripts depend on this crate too. So it would be compiled a second time, 4
//! s of one core before the first kernel is, for four blocks. Mappings of stacks stay calls of libc, which AddressSanitizer sees.

// UNSAFETY: the futex and prctl system calls, and a kick hook that is a C function.
#![expect(
    unsafe_code,
    reason = "system calls, and a function pointer kept in an atomic"
)]

use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use crate::launch::Launch;

/// Used while the process has no device: workers of a launch still wake each other on it.
static NO_DEVICE: AtomicU32 = AtomicU32::new(0);
static WAKE_WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
static KICK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Names the futex word that a software device of this process bumps (and wakes) when it has written something. For launches
/// that start later.
pub fn set_wake_word(word: &'static AtomicU32) {
    WAKE_WORD.store(ptr::from_ref(word).cast_mut(), Release);
}

/// Sets the function that announces the store of a doorbell to a software device of this process. It must not unwind.
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

/// Returns the word to sleep on.
pub(crate) fn wake_word() -> &'static AtomicU32 {
    // SAFETY: null or a `&'static AtomicU32` that `set_wake_word` was given.
    unsafe { WAKE_WORD.load(Acquire).as_ref() }.unwrap_or(&NO_DEVICE)
}

/// Sleeps while `word` is `seen`, at most `timeout`. Wakes early when a thread wakes the futex.
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

/// Rounds in which all threads poll in vain before the first sleep.
const SPIN_ROUNDS: u32 = 4;
/// Sleeps double from 1 µs up to this.
const LONGEST_SLEEP: Duration = Duration::from_micros(200);

/// Decides how a worker spends the time in which all its threads poll.
pub(crate) struct Sleeper {
    word: &'static AtomicU32,
    /// Value of the wake word before the threads looked last.
    seen_word: u32,
    /// What the other workers had done by then.
    seen_others: u64,
    sleeps: u64,
    timer: Option<SharpTimer>,
}

impl Sleeper {
    pub(crate) fn new() -> Self {
        let word = wake_word();
        Self {
            word,
            seen_word: word.load(Acquire),
            seen_others: 0,
            sleeps: 0,
            timer: None,
        }
    }

    /// Round number `round` ≥ 1 in a row in which all threads polled in vain is over. Returns at once for the first rounds,
    /// else after a sleep. True if something happened outside this worker that a poll may see: count from the start again.
    pub(crate) fn rest(&mut self, launch: &Launch, worker: u32, round: u32) -> bool {
        if round > SPIN_ROUNDS && self.word.load(Acquire) == self.seen_word {
            self.timer.get_or_insert_with(SharpTimer::new);
            let doubled = Duration::from_micros(1 << (round - SPIN_ROUNDS - 1).min(8));
            self.sleeps += 1;
            launch.sleep(self.word, self.seen_word, doubled.min(LONGEST_SLEEP));
        }
        let now = (self.word.load(Acquire), launch.others_progress(worker));
        let before = (self.seen_word, self.seen_others);
        (self.seen_word, self.seen_others) = now;
        now != before
    }

    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps
    }
}

/// Lets sleeps of this OS thread end on time (Linux adds 50 µs by default); restores the old setting when dropped.
struct SharpTimer {
    old_slack_ns: libc::c_ulong,
}

impl SharpTimer {
    fn new() -> Self {
        // SAFETY: both calls only concern the timer slack of the calling thread.
        let old = unsafe {
            let old = libc::prctl(libc::PR_GET_TIMERSLACK);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
            old
        };
        // 0 would mean "back to the default of this thread", which is the right thing if the question failed.
        Self {
            old_slack_ns: libc::c_ulong::try_from(old).unwrap_or(0),
        }
    }
}

impl Drop for SharpTimer {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.old_slack_ns) };
    }
}
