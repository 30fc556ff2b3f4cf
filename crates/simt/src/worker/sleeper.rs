//! The sleeps of a worker whose threads all poll.

// UNSAFETY: the prctl system call.
#![expect(unsafe_code, reason = "a system call")]

use std::sync::atomic::{AtomicU32, Ordering::Acquire};
use std::time::Duration;

use crate::idle;
use crate::shared::Launch;

/// The number of rounds in which all threads poll in vain before the first sleep.
const SPIN_ROUNDS: u32 = 4;
/// The longest sleep. Sleeps double from 1 µs up to it.
const LONGEST_SLEEP: Duration = Duration::from_micros(200);

/// The sleeps of a worker in the time in which all its threads poll.
pub(crate) struct Sleeper {
    word: &'static AtomicU32,
    /// The value of the wake word before the threads looked last.
    seen_word: u32,
    /// The progress of the other workers by then.
    seen_others: u64,
    sleeps: u64,
    timer: Option<SharpTimer>,
}

impl Sleeper {
    pub(crate) fn new() -> Self {
        let word = idle::wake_word();
        Self {
            word,
            seen_word: word.load(Acquire),
            seen_others: 0,
            sleeps: 0,
            timer: None,
        }
    }

    /// Ends round number `round` ≥ 1 in a row in which all threads polled in vain. Returns at once in the first rounds, later after a
    /// sleep. Returns true if something happened outside this worker that a poll may see: the caller counts rounds from the start again.
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

/// A setting that lets sleeps of this OS thread end on time (Linux adds 50 µs by default). The old setting is restored when this is
/// dropped.
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
        // 0 means "the default of this thread", which is right if the first call has failed.
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
