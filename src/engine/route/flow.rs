//! Whether something completes of what is in flight: a slow rail completes, a dead one does not. And what a transfer waits for, also
//! where nothing is in flight.
//!
//! A worker alone writes the [`Flow`] of its lane. It reads the clock once in a few turns, not for each completion. So a time is as
//! exact as a few turns of the worker are long.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::route::share::Backlog;

/// A rail by which a connection has slices in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stalled {
    /// Its number in [`Engine::rails`](crate::engine::Engine::rails); none of copies within the machine.
    pub rail: Option<u32>,
    /// Its RDMA device; none as above.
    pub device: Option<String>,
    /// Slices that were posted to the peer and have not completed.
    pub in_flight: u32,
    /// How long none of them has completed: since the last completion, or since the first of them was posted to a rail that had none.
    pub since_completion: Duration,
}

/// What a transfer waits for that is not concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// A worker posts the slices that are left, when a QP has room.
    Room,
    /// No QP of the connection takes slices: both ends reset one first, and connect it again.
    Qp,
    /// The slices that are left are posted: their completions. [`Engine::stalled`](crate::engine::Engine::stalled) says more of them.
    Completion,
    /// All slices have ended, some on QPs that have failed: both ends reset these first.
    Reset,
    /// Its connection has ended: QPs of this end run dry and are reset, and the peer says that its QPs are.
    End,
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Room => "room on a QP",
            Self::Qp => "a QP that is connected again",
            Self::Completion => "completions",
            Self::Reset => "the reset of failed QPs at both ends",
            Self::End => "the end of its connection",
        })
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device.as_deref().unwrap_or("this machine");
        let (count, since) = (self.in_flight, self.since_completion);
        write!(
            f,
            "{count} slices by {device}, none completed for {since:.1?}"
        )
    }
}

/// What the worker of a lane says of it, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(in crate::engine) struct Flow {
    begin: Instant,
    in_flight: AtomicU32,
    /// When something has completed last, or was posted to an idle lane: nanoseconds since the begin.
    moved: AtomicU64,
    /// Nanoseconds of one slice, as far as the worker knows.
    each: AtomicU64,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            begin: Instant::now(),
            in_flight: AtomicU32::new(0),
            moved: AtomicU64::new(0),
            each: AtomicU64::new(0),
        }
    }
}

impl Flow {
    /// Slices were posted, and so many are in flight then.
    pub(in crate::engine) fn post(&self, in_flight: u32, now: Instant) {
        if self.in_flight.load(Ordering::Relaxed) == 0 {
            self.stamp(now);
        }
        self.in_flight.store(in_flight, Ordering::Release);
    }

    /// Slices have completed, and so many are left. One takes `each` nanoseconds.
    pub(in crate::engine) fn complete(&self, in_flight: u32, each: u64, now: Instant) {
        self.stamp(now);
        self.each.store(each, Ordering::Relaxed);
        self.in_flight.store(in_flight, Ordering::Release);
    }

    /// The lane is gone, and whatever it had.
    pub(in crate::engine) fn end(&self) {
        self.in_flight.store(0, Ordering::Release);
    }

    fn stamp(&self, now: Instant) {
        self.moved.store(self.nanos(now), Ordering::Relaxed);
    }

    fn nanos(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.begin);
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// What the lane has to finish.
    pub(in crate::engine) fn backlog(&self, now: Instant) -> Backlog {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        let moved = self.moved.load(Ordering::Relaxed);
        Backlog {
            in_flight,
            each: self.each.load(Ordering::Relaxed),
            since: self.nanos(now).saturating_sub(moved),
        }
    }

    /// Slices in flight, and how long nothing has completed.
    pub(in crate::engine) fn look(&self) -> (u32, Duration) {
        // Acquire: with slices that are in flight goes a time that is not before they were posted.
        let in_flight = self.in_flight.load(Ordering::Acquire);
        let moved = Duration::from_nanos(self.moved.load(Ordering::Relaxed));
        (in_flight, self.begin.elapsed().saturating_sub(moved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_that_completes_nothing_is_reported_in_words() {
        let mut found = Stalled {
            rail: Some(1),
            device: Some("mlx5_1".to_owned()),
            in_flight: 8,
            since_completion: Duration::from_millis(1500),
        };
        let said = "8 slices by mlx5_1, none completed for 1.5s";
        assert_eq!(found.to_string(), said);
        (found.rail, found.device) = (None, None);
        assert!(found.to_string().starts_with("8 slices by this machine,"));
    }

    #[test]
    fn time_counts_from_the_first_post_and_from_each_completion() {
        let flow = Flow::default();
        let at = |ms| flow.begin + Duration::from_millis(ms);
        let moved = || Duration::from_nanos(flow.moved.load(Ordering::Relaxed)).as_millis();
        flow.post(3, at(5));
        assert_eq!(moved(), 5);
        // Behind others.
        flow.post(7, at(9));
        assert_eq!((moved(), flow.look().0), (5, 7));
        flow.complete(2, 7, at(20));
        assert_eq!((moved(), flow.look().0), (20, 2));
        let backlog = flow.backlog(at(23));
        let known = (backlog.in_flight, backlog.each, backlog.since);
        assert_eq!(known, (2, 7, 3_000_000));
        flow.complete(0, 7, at(21));
        flow.post(1, at(400));
        assert_eq!(moved(), 400);
        flow.end();
        assert_eq!(flow.look().0, 0);
    }
}
