//! What completes on each lane: a slow rail completes some slices, a dead rail completes none. This file also says what a transfer waits
//! for.
//!
//! Only the worker of a lane writes its [`Flow`]. The worker reads the clock once in a few turns, not for each completion. So a time may be
//! wrong by a few turns of the worker.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::route::crossing::number_of;
use crate::engine::route::lanes::Lanes;
use crate::engine::route::share::{self, Backlog};

/// A rail by which a connection has slices in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stalled {
    /// The number of the rail in [`Engine::rails`](crate::engine::Engine::rails). None: copies within the machine.
    pub rail: Option<u32>,
    /// The RDMA device of the rail. None: copies within the machine.
    pub device: Option<String>,
    /// Slices that were posted to the peer and have not completed.
    pub in_flight: u32,
    /// For how long no slice has completed: since the last completion, or since the first slice was posted to the idle rail.
    pub since_completion: Duration,
}

/// What a transfer that is not concluded waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// A worker posts the slices that are left, when a QP has room.
    Room,
    /// No QP of the connection takes slices. Both ends first reset one and connect it again.
    Qp,
    /// All slices that are left are posted, and have not completed. [`Engine::stalled`](crate::engine::Engine::stalled) says by which
    /// rails.
    Completion,
    /// All slices have ended, some of them on QPs that have failed. Both ends first reset these QPs.
    Reset,
    /// The connection has ended. This end resets its QPs once they are dry, and the peer reports when it has reset its own QPs.
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

/// What the worker of a lane reports of it. It lies on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(in crate::engine) struct Flow {
    begin: Instant,
    in_flight: AtomicU32,
    /// The time of the last completion, or of the last post to an idle lane, in nanoseconds since `begin`.
    moved: AtomicU64,
    /// Nanoseconds that one slice takes; 0 while the worker does not know it.
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
    /// Notes that slices were posted, after which `in_flight` are in flight.
    pub(in crate::engine) fn post(&self, in_flight: u32, now: Instant) {
        if self.in_flight.load(Ordering::Relaxed) == 0 {
            self.stamp(now);
        }
        self.in_flight.store(in_flight, Ordering::Release);
    }

    /// Notes that slices have completed, after which `in_flight` are left. One slice takes `each` nanoseconds.
    pub(in crate::engine) fn complete(&self, in_flight: u32, each: u64, now: Instant) {
        self.stamp(now);
        self.each.store(each, Ordering::Relaxed);
        self.in_flight.store(in_flight, Ordering::Release);
    }

    /// Notes that the lane is gone, with all slices that it had in flight.
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

    /// Returns what the lane still has to finish.
    pub(in crate::engine) fn backlog(&self, now: Instant) -> Backlog {
        let in_flight = self.in_flight.load(Ordering::Acquire);
        let moved = self.moved.load(Ordering::Relaxed);
        Backlog {
            in_flight,
            each: self.each.load(Ordering::Relaxed),
            since: self.nanos(now).saturating_sub(moved),
        }
    }

    /// Returns the number of slices in flight, and for how long none has completed.
    pub(in crate::engine) fn look(&self) -> (u32, Duration) {
        // Acquire: the time that is read below is not earlier than the post of these slices.
        let in_flight = self.in_flight.load(Ordering::Acquire);
        let moved = Duration::from_nanos(self.moved.load(Ordering::Relaxed));
        (in_flight, self.begin.elapsed().saturating_sub(moved))
    }
}

/// The flows of all lanes of a link.
#[derive(Debug)]
pub(in crate::engine) struct Flows(Box<[Flow]>);

impl Flows {
    pub(super) fn new(lanes: usize) -> Self {
        Self((0..lanes).map(|_| Flow::default()).collect())
    }

    /// Returns what the worker of the lane reports of it.
    pub(in crate::engine) fn of(&self, lane: usize) -> Option<&Flow> {
        self.0.get(lane)
    }

    /// Returns how many slices the lane may have in flight at most, beside the others of `lanes` that take any slice as it does. The
    /// lane posts chains of `chain` slices, and takes `each` nanoseconds for one slice.
    pub(in crate::engine) fn window(
        &self,
        lanes: &Lanes,
        lane: usize,
        chain: u32,
        each: u64,
        now: Instant,
    ) -> u32 {
        // Lanes by place may take every slice. Near the memory of the peer only some lanes may take a slice.
        if lanes.is_near() || lane >= lanes.qps() {
            return u32::MAX;
        }
        let others = lanes.open().filter(|it| *it < lanes.qps() && *it != lane);
        let others = others.filter_map(|it| self.of(it));
        share::window(chain, each, others.map(|flow| flow.backlog(now)))
    }

    /// Returns the rails by which slices are in flight. Copies within the machine come last.
    pub(in crate::engine) fn stalled(&self, lanes: &Lanes) -> Vec<Stalled> {
        let mut all: Vec<Stalled> = Vec::new();
        for (lane, flow) in self.0.iter().enumerate() {
            let (in_flight, since) = flow.look();
            if in_flight == 0 {
                continue;
            }
            let rail = number_of(lanes.crossing(lane).own);
            match all.iter_mut().find(|it| it.rail == rail) {
                Some(known) => {
                    known.in_flight += in_flight;
                    known.since_completion = known.since_completion.min(since);
                }
                None => all.push(Stalled {
                    rail,
                    device: None,
                    in_flight,
                    since_completion: since,
                }),
            }
        }
        all.sort_by_key(|it| it.rail.unwrap_or(u32::MAX));
        all
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
        // These slices were posted after others.
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
