//! The barrier of a whole grid, across workers.

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release,
};
use std::time::Duration;

use crate::idle;

/// The barrier of a cooperative launch, which counts arrivals and exits of all its threads.
#[derive(Debug)]
pub(crate) struct GridBarrier {
    total: u64,
    /// The number of threads that have arrived (low half) and of threads that have exited for good (high half). Both are in one word, so
    /// that the thread whose step completes the sum sees that.
    count: AtomicU64,
    /// The number of completed barriers. Waiting workers sleep on it.
    generation: AtomicU32,
}

/// The result of an arrival or an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Other threads are still to come.
    Open,
    /// All threads have come: the next generation has begun.
    Complete,
    /// All living threads have come, but some have exited. No thread will ever complete the barrier.
    Broken {
        /// The number of threads that have exited.
        exited: u64,
    },
}

impl GridBarrier {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            count: AtomicU64::new(0),
            generation: AtomicU32::new(0),
        }
    }

    /// Returns the number of completed barriers. Pairs with `arrive`: what threads wrote before the barrier is visible to a thread that
    /// sees the new generation.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }

    pub(crate) fn arrive(&self) -> Outcome {
        let outcome = self.judge(self.count.fetch_add(1, AcqRel) + 1);
        if outcome == Outcome::Complete {
            self.count.fetch_sub(self.total, AcqRel);
            self.generation.fetch_add(1, Release);
            idle::wake_all(&self.generation);
        }
        outcome
    }

    pub(crate) fn exit(&self) -> Outcome {
        self.judge(self.count.fetch_add(1 << 32, AcqRel) + (1 << 32))
    }

    fn judge(&self, count: u64) -> Outcome {
        let (arrived, exited) = (count & 0xffff_ffff, count >> 32);
        match arrived + exited {
            sum if sum < self.total || arrived == 0 => Outcome::Open,
            _ if exited == 0 => Outcome::Complete,
            _ => Outcome::Broken { exited },
        }
    }

    /// Waits for a generation other than `seen`, at most for `timeout`.
    pub(crate) fn wait(&self, seen: u32, timeout: Duration) {
        idle::sleep(&self.generation, seen, timeout);
    }

    /// Wakes waiters, so that they see the failure of the launch.
    pub(crate) fn wake(&self) {
        idle::wake_all(&self.generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_arrival_completes_and_an_exit_breaks_it() {
        let barrier = GridBarrier::new(3);
        assert_eq!([barrier.arrive(), barrier.arrive()], [Outcome::Open; 2]);
        assert_eq!(barrier.arrive(), Outcome::Complete);
        assert_eq!(barrier.generation(), 1);
        assert_eq!([barrier.exit(), barrier.arrive()], [Outcome::Open; 2]);
        assert_eq!(barrier.arrive(), Outcome::Broken { exited: 1 });
    }

    #[test]
    fn exits_alone_break_nothing() {
        let barrier = GridBarrier::new(2);
        assert_eq!([barrier.exit(), barrier.exit()], [Outcome::Open; 2]);
    }
}
