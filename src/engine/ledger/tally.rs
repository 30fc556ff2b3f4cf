//! Counters of an engine's work. One look sees consistent values.
//!
//! Only the worker itself writes its [`Tally`]. A look reads the counters against the way of a slice: concluded, then completed, then
//! posted, then queued. So no look sees a slice completed that was not posted, or posted that was not queued.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::ledger::account::Outcome;

/// What an engine has done since its start. One look is consistent: transfers that have ended were submitted, `completed + failed <=
/// posted`, and `posted + not_posted <= queued + retried`. Both are equal once all transfers are concluded, unless a worker has panicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Transfers that the engine has taken.
    pub submitted: u64,
    /// Transfers that the engine has refused with `WouldBlock`, since all slots were taken. A wait for a slot counts each of its tries.
    pub refused: u64,
    /// Transfers that are done.
    pub done: u64,
    /// Transfers that have failed.
    pub failed: u64,
    /// Transfers that were cancelled.
    pub cancelled: u64,
    /// Transfers whose deadline has passed.
    pub timed_out: u64,
    /// Bytes of the transfers that are done.
    pub done_bytes: u64,
    /// Slices of the submitted transfers.
    pub queued: u64,
    /// How often a slice was put back to be posted again, since it had failed.
    pub retried: u64,
    /// Slices that were queued or put back and never posted, since their transfers had ended before.
    pub not_posted: u64,
    /// What workers have done with slices, by NICs and by copies.
    pub slices: SliceCounts,
}

/// What workers have done with slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SliceCounts {
    /// Slices that were given to a QP or to a copy. Slices that were posted again count again, and those that the QP refused count too.
    pub posted: u64,
    /// Bytes of the slices that the QP or the copy has taken.
    pub posted_bytes: u64,
    /// Posted slices whose bytes have landed.
    pub completed: u64,
    /// Posted slices that have failed. Each may have been posted again.
    pub failed: u64,
    /// How long workers have had slices to post and no room on any of their QPs, summed over workers. The number grows while that lasts.
    pub stalled: Duration,
}

impl SliceCounts {
    /// Returns how many slices are posted and not finished.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.posted.saturating_sub(self.completed + self.failed)
    }

    pub(in crate::engine) fn add(&mut self, other: &Self) {
        self.posted += other.posted;
        self.posted_bytes += other.posted_bytes;
        self.completed += other.completed;
        self.failed += other.failed;
        self.stalled += other.stalled;
    }
}

/// Set in [`Tally::stall`] while the worker stalls.
const STALLS: u64 = 1 << 63;

/// The counts of one worker, by its NIC or by copies. They lie on cache lines of their own: no other worker writes them.
#[derive(Debug)]
#[repr(align(128))]
pub(in crate::engine) struct Tally {
    begin: Instant,
    posted: AtomicU64,
    posted_bytes: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    /// Nanoseconds for which the worker has stalled. While it stalls, the word is [`STALLS`] and a moment instead: the present
    /// time less this moment is the sum.
    stall: AtomicU64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            begin: Instant::now(),
            posted: AtomicU64::new(0),
            posted_bytes: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            stall: AtomicU64::new(0),
        }
    }
}

impl Tally {
    /// Counts `slices` that were given to a lane, which has taken `bytes`.
    pub(in crate::engine) fn post(&self, slices: u64, bytes: u64) {
        add(&self.posted_bytes, bytes);
        add(&self.posted, slices);
    }

    /// Counts slices that are finished.
    pub(in crate::engine) fn finish(&self, completed: u64, failed: u64) {
        add(&self.completed, completed);
        if failed > 0 {
            add(&self.failed, failed);
        }
    }

    /// Notes whether the worker has slices to post and no room for them.
    pub(in crate::engine) fn set_stalled(&self, stalls: bool) {
        let word = self.stall.load(Ordering::Relaxed);
        if (word & STALLS != 0) != stalls {
            let other = self.now().saturating_sub(word & !STALLS);
            let flag = if stalls { STALLS } else { 0 };
            self.stall.store(other | flag, Ordering::Relaxed);
        }
    }

    /// Returns what the worker has done. A thread that reads several kinds of counters calls this before it reads those that are
    /// counted earlier.
    pub(in crate::engine) fn look(&self) -> SliceCounts {
        let [completed, failed] = [&self.completed, &self.failed].map(load);
        let posted = load(&self.posted);
        let word = self.stall.load(Ordering::Relaxed);
        let nanos = match word & STALLS {
            0 => word,
            _ => self.now().saturating_sub(word & !STALLS),
        };
        SliceCounts {
            posted,
            posted_bytes: load(&self.posted_bytes),
            completed,
            failed,
            stalled: Duration::from_nanos(nanos),
        }
    }

    /// Returns the nanoseconds since `begin`.
    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).map_or(STALLS - 1, |now| now.min(STALLS - 1))
    }
}

/// Adds to a counter that this thread alone writes.
fn add(counter: &AtomicU64, more: u64) {
    // Release: a thread that loads this value (`load`) also sees what the worker counted before it.
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Release);
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Acquire)
}

/// Counters of transfers, to which any thread may add.
#[derive(Debug, Default)]
pub(in crate::engine) struct Totals {
    submitted: AtomicU64,
    refused: AtomicU64,
    queued: AtomicU64,
    retried: AtomicU64,
    not_posted: AtomicU64,
    done_bytes: AtomicU64,
    /// Transfers that have ended, by outcome.
    outcomes: [AtomicU64; 4],
}

impl Totals {
    /// Counts a transfer of so many slices. The caller does so before workers learn of the transfer.
    pub(in crate::engine) fn submit(&self, slices: u32) {
        self.submitted.fetch_add(1, Ordering::Release);
        self.queued.fetch_add(slices.into(), Ordering::Release);
    }

    /// Counts a transfer for which no slot was free.
    pub(in crate::engine) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a slice that is to be posted again. The caller does so before a worker takes the slice.
    pub(in crate::engine) fn retry(&self) {
        self.retried.fetch_add(1, Ordering::Release);
    }

    /// Counts slices that will not be posted any more.
    pub(in crate::engine) fn give_up(&self, slices: u32) {
        if slices > 0 {
            self.not_posted.fetch_add(slices.into(), Ordering::Release);
        }
    }

    /// Counts a transfer of so many bytes that has ended.
    pub(in crate::engine) fn conclude(&self, outcome: Outcome, bytes: u64) {
        if outcome == Outcome::Done {
            self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Release);
    }

    /// Returns how many transfers have ended with this outcome.
    pub(in crate::engine) fn count(&self, outcome: Outcome) -> u64 {
        load(&self.outcomes[outcome as usize])
    }

    /// Returns all counters, with what `slices` returns of workers.
    pub(in crate::engine) fn look(&self, slices: impl FnOnce() -> SliceCounts) -> Statistics {
        let [done, failed, cancelled, timed_out] = self.outcomes.each_ref().map(load);
        let [done_bytes, not_posted] = [&self.done_bytes, &self.not_posted].map(load);
        let slices = slices();
        Statistics {
            submitted: load(&self.submitted),
            refused: load(&self.refused),
            done,
            failed,
            cancelled,
            timed_out,
            done_bytes,
            queued: load(&self.queued),
            retried: load(&self.retried),
            not_posted,
            slices,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_while_it_lasts_and_stays_when_it_is_over() {
        let tally = Tally::default();
        assert_eq!(tally.look().stalled, Duration::ZERO);
        tally.set_stalled(false);
        assert_eq!(tally.look().stalled, Duration::ZERO);
        tally.set_stalled(true);
        let first = tally.look().stalled;
        let mut next = first;
        while next == first {
            tally.set_stalled(true);
            next = tally.look().stalled;
        }
        assert!(next > first);
        tally.set_stalled(false);
        let over = tally.look().stalled;
        assert!(over >= next);
        assert_eq!(tally.look().stalled, over);
        tally.set_stalled(true);
        assert!(tally.look().stalled >= over);
    }

    #[test]
    fn no_look_sees_more_finished_than_posted_or_more_posted_than_queued() {
        const SLICES: u64 = 200_000;
        let (totals, tally) = (Totals::default(), Tally::default());
        let check = || {
            let all = totals.look(|| tally.look());
            let SliceCounts {
                posted,
                completed,
                failed,
                ..
            } = all.slices;
            assert!(completed + failed <= posted, "{all:?}");
            assert!(
                posted + all.not_posted <= all.queued + all.retried,
                "{all:?}"
            );
            assert!(all.done + all.failed <= all.submitted, "{all:?}");
            all
        };
        std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                for nth in 0..SLICES {
                    totals.submit(2);
                    tally.post(1, 8);
                    tally.finish(u64::from(nth % 2 == 0), u64::from(nth % 2 == 1));
                    totals.give_up(1);
                    totals.conclude(Outcome::Failed, 16);
                }
            });
            while !working.is_finished() {
                check();
            }
        });
        let all = check();
        assert_eq!((all.queued, all.not_posted), (2 * SLICES, SLICES));
        assert_eq!((all.slices.posted, all.slices.in_flight()), (SLICES, 0));
        assert_eq!((all.failed, all.done_bytes), (SLICES, 0));
    }
}
