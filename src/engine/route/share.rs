//! The number of slices that a lane may have in flight beside the other lanes of its link.
//!
//! If a lane took as many slices as its queue has room for, the lane whose worker wakes first would take most of the slices that are left.
//! A slow lane would have hundreds of them when the other lanes have none left, and each transfer would wait for it. So a lane takes slices
//! as long as it finishes them no later than the other lanes finish theirs. A lane may always have two chains in flight. So no lane waits
//! for a thread that is not running, and each lane learns how fast it is.

use std::time::{Duration, Instant};

/// The number of chains that a lane may always have in flight.
pub(in crate::engine) const LEAST: u32 = 2;
/// The number of slices after which a lane measures its speed anew.
const COUNTED: u32 = 64;
/// Longest time for which a lane waits for these slices.
const COUNTED_IN: Duration = Duration::from_millis(4);
/// The last measurement has a weight of one part in so many.
const WEIGHT: u64 = 4;

/// What a lane still has to finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Backlog {
    /// The number of slices in flight.
    pub(in crate::engine) in_flight: u32,
    /// The nanoseconds from one completion to the next. 0: not known.
    pub(in crate::engine) each: u64,
    /// The nanoseconds since the last completion, or since the first slice was posted to an idle lane.
    pub(in crate::engine) since: u64,
}

impl Backlog {
    /// Returns in how many nanoseconds the backlog is finished. A lane of unknown speed counts as fast as the lane that asks.
    fn ends_in(self, own_each: u64) -> u64 {
        let each = self.each_or(own_each);
        match self.in_flight {
            0 => 0,
            // A lane that has stopped is late already.
            in_flight => each.saturating_mul(in_flight.into()).max(self.since),
        }
    }

    fn each_or(self, own_each: u64) -> u64 {
        if self.each == 0 { own_each } else { self.each }
    }
}

/// Returns how many slices a lane may have in flight. It takes `each` nanoseconds for one slice (0: not known), and posts chains
/// of `chain` slices.
pub(in crate::engine) fn window(
    chain: u32,
    each: u64,
    others: impl Iterator<Item = Backlog>,
) -> u32 {
    let least = LEAST * chain;
    // `soonest` is the time until the first other lane has finished, and `fastest` the time that the fastest lane takes for one slice.
    let both = others.map(|it| (it.ends_in(each), it.each_or(each)));
    let Some((soonest, fastest)) = both.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))) else {
        return u32::MAX;
    };
    let ahead = fastest.min(each).saturating_mul(chain.into());
    let like_others = soonest.saturating_add(ahead).checked_div(each).unwrap_or(0);
    least.max(u32::try_from(like_others).unwrap_or(u32::MAX))
}

/// The speed at which a lane completes slices while it has any.
#[derive(Debug, Default)]
pub(in crate::engine) struct Tempo {
    /// The time since which completions are counted. None: nothing is in flight.
    begun: Option<Instant>,
    done: u32,
    each: u64,
}

impl Tempo {
    /// Notes that slices were posted.
    pub(in crate::engine) fn post(&mut self, now: Instant) {
        self.begun.get_or_insert(now);
    }

    /// Notes that `done` slices have completed, after which `in_flight` are left.
    pub(in crate::engine) fn complete(&mut self, done: u32, in_flight: u32, now: Instant) {
        let Some(begun) = self.begun else {
            return;
        };
        self.done += done;
        let passed = now.saturating_duration_since(begun);
        let is_enough = self.done >= COUNTED || passed >= COUNTED_IN;
        let is_first = self.each == 0;
        // The clock is not read for each completion, so it may not have moved.
        if self.done > 0 && !passed.is_zero() && (is_enough || is_first) {
            let nanos = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
            let last = (nanos / u64::from(self.done)).max(1);
            self.each = match self.each {
                0 => last,
                known => (known / WEIGHT * (WEIGHT - 1) + last / WEIGHT).max(1),
            };
            (self.begun, self.done) = (Some(now), 0);
        }
        if in_flight == 0 {
            (self.begun, self.done) = (None, 0);
        }
    }

    /// Returns how many nanoseconds one slice takes. 0: not known.
    pub(in crate::engine) fn each(&self) -> u64 {
        self.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(in_flight: u32, each: u64) -> Backlog {
        Backlog {
            in_flight,
            each,
            since: 0,
        }
    }

    #[test]
    fn lanes_of_one_speed_go_in_step() {
        let of = |others: &[u32]| window(16, 10, others.iter().map(|it| busy(*it, 10)));
        assert_eq!(of(&[0, 0, 0]), 32, "two chains in any case");
        assert_eq!(of(&[200, 100, 300]), 116, "a chain more than the least");
        assert_eq!(of(&[]), u32::MAX, "none is beside it");
    }

    #[test]
    fn a_slow_lane_has_what_it_finishes_while_the_others_finish_theirs() {
        let others = [busy(512, 10), busy(500, 10)];
        // The slow lane finishes 50 slices while the others finish 500, and 1 while they finish most of a chain.
        assert_eq!(window(16, 100, others.into_iter()), 51);
        // The other lanes may go on as if the slow lane were as fast.
        assert_eq!(window(16, 10, [busy(51, 100)].into_iter()), 526);
        assert_eq!(window(16, 0, others.into_iter()), 32, "before it knows");
        assert_eq!(window(16, 10, [busy(40, 0)].into_iter()), 56);
    }

    #[test]
    fn a_lane_that_has_stopped_holds_up_none_beside_it() {
        let mut stopped = busy(32, 10);
        assert_eq!(window(16, 10, [stopped].into_iter()), 48);
        stopped.since = 5000;
        assert_eq!(window(16, 10, [stopped].into_iter()), 516);
    }

    #[test]
    fn time_without_anything_in_flight_does_not_count() {
        let begin = Instant::now();
        let at = |us| begin + Duration::from_micros(us);
        let mut tempo = Tempo::default();
        tempo.post(at(0));
        tempo.complete(16, 16, at(0));
        assert_eq!(tempo.each(), 0, "the clock has not moved");
        tempo.complete(16, 0, at(32));
        assert_eq!(tempo.each(), 1000);
        tempo.post(at(9000));
        tempo.complete(64, 0, at(9064));
        assert_eq!(tempo.each(), 1000);
        // Half of the speed shows after a while.
        for round in 0..30 {
            tempo.post(at(10_000 + round * 200));
            tempo.complete(64, 0, at(10_128 + round * 200));
        }
        assert!((1900..=2000).contains(&tempo.each()), "{}", tempo.each());
    }

    #[test]
    fn few_completions_count_once_they_took_long() {
        let begin = Instant::now();
        let at = |us| begin + Duration::from_micros(us);
        let mut tempo = Tempo::default();
        tempo.post(at(0));
        tempo.complete(1, 31, at(10));
        tempo.complete(1, 30, at(1000));
        assert_eq!(tempo.each(), 10_000, "too few so far");
        tempo.complete(1, 29, at(4010));
        assert_eq!(tempo.each(), 10_000 / 4 * 3 + 2_000_000 / 4);
    }
}
