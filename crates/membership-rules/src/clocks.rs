//! Observed time: clocks against other ranks run only while this rank looks and the store answers.

use std::fmt::Debug;
use std::time::Duration;

/// A length of time: a [`Duration`] for a group, ticks for the model.
pub trait Span: Copy + Ord + Default + Debug {
    /// Returns the sum of both.
    #[must_use]
    fn plus(self, other: Self) -> Self;
}

impl Span for Duration {
    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

/// How long each clock runs, and which pauses count as gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds<S> {
    /// The longest time between the ends of two looks that is no gap.
    pub between: S,
    /// The longest time of a store call that is no gap.
    pub call: S,
    /// U: the observed time after which a rank of which nothing is heard is unheard. It starts at the first look that finds nothing new.
    pub unheard: S,
    /// The observed time after which a pair without contact is overdue.
    pub stalled: S,
    /// The observed time after which a proposal without an answer is late.
    pub unanswered: S,
    /// The observed time without any member of the view after which a newcomer founds the group anew.
    pub found: S,
}

/// Returns the time that a clock keeps when its bound changes from `before` to `now`. If the bound becomes shorter, the clock keeps the
/// same part of it. Time that passed while the store was slow was a small part of the longer bound.
pub fn rescale(time: Duration, before: Duration, now: Duration) -> Duration {
    if now >= before {
        time
    } else if time >= before {
        now
    } else {
        time.mul_f64(now.div_duration_f64(before))
    }
}

/// How many looks, the first included, must find nothing new of a rank before the rank is unheard.
pub const LOOKS: u8 = 4;

/// A clock against one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock<S> {
    /// The observed time so far.
    pub time: S,
    /// The number of looks at different times, the first included; at most [`LOOKS`].
    pub looks: u8,
}

impl<S: Span> Clock<S> {
    /// Returns the clock at the first look that misses a rank.
    #[must_use]
    pub fn first() -> Self {
        Self {
            time: S::default(),
            looks: 1,
        }
    }

    /// Counts the next look, which ends `passed` after the one before. No clock runs beyond `bound`.
    pub fn look(&mut self, passed: S, bound: S) {
        self.time = self.time.plus(passed).min(bound);
        if passed > S::default() {
            self.looks = LOOKS.min(self.looks + 1);
        }
    }
}

/// The pace of the store as this rank sees it: the times of the last eight calls, with and without an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    last: [Duration; 8],
    at: usize,
}

/// The longest time that a store call may wait, however slow the store is.
const LONGEST_CALL: Duration = Duration::from_secs(5);
/// In P9, each of the first places waits twice as long as the one before. This is the number of these places.
const DOUBLED: u32 = 6;
/// The shortest turn of P9.
const SHORTEST_TURN: Duration = Duration::from_millis(20);

impl Pace {
    /// Notes the time of a call that has ended, with or without an answer.
    pub fn took(&mut self, call: Duration) {
        self.last[self.at] = call;
        self.at = (self.at + 1) % self.last.len();
    }

    /// Returns the time of the slowest of the last calls.
    pub fn slowest(&self) -> Duration {
        self.last.into_iter().max().unwrap_or_default()
    }

    /// Returns the bound of the next call.
    pub fn call_ends(&self, lease: Duration) -> Duration {
        (lease / 3).max(2 * self.slowest()).min(LONGEST_CALL)
    }

    /// Returns the bounds at the present pace of the store, for a lease that lives for `lease`. `configured` has the lower limits of the
    /// three bounds that can be configured.
    pub fn bounds(&self, lease: Duration, configured: &Bounds<Duration>) -> Bounds<Duration> {
        let pace = self.slowest();
        Bounds {
            between: (lease / 2).max(3 * pace),
            call: (lease / 3).max(2 * pace),
            unheard: (lease * 3 / 2).max(6 * pace),
            stalled: configured.stalled.max(2 * lease).max(8 * pace),
            unanswered: configured.unanswered.max(12 * pace),
            found: configured.found,
        }
    }

    /// P9: returns how long the living member at `place` waits before it does what any member may do. Places are counted from the rank that
    /// proposed. Each waits twice as long as the one before it, up to 64 turns more. A change may be slow because many ranks share few
    /// processors, and ranks that help make it slower. During the wait the lease of a dead rank lapses, and the next rank gets its place.
    pub fn turn(&self, place: u32) -> Duration {
        let unit = SHORTEST_TURN.max(2 * self.slowest());
        let doubled: u32 = (1 << place.min(DOUBLED)) - 1;
        let more = place.saturating_sub(DOUBLED).saturating_mul(1 << DOUBLED);
        unit.saturating_mul(doubled.saturating_add(more))
    }
}

/// Returns how long to wait after `failures` failures: `unit` × 1, 2, 4 … `most`. P6 waits so for a slot whose newcomer was dropped before
/// it served 10 leases: in leases, at most 64. P7 waits so before it connects anew: in error bounds, at most 32.
pub fn back_off(unit: Duration, failures: u32, most: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        _ => unit * most.min(1 << (failures - 1).min(31)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_slow_store_is_waited_for_twice_as_long_each_time() {
        let lease = 2000 * MS;
        let configured = Bounds {
            between: MS,
            call: MS,
            unheard: MS,
            stalled: MS,
            unanswered: 4000 * MS,
            found: 10_000 * MS,
        };
        let mut pace = Pace::default();
        let bounds = pace.bounds(lease, &configured);
        assert_eq!(bounds.unheard, 3000 * MS);
        assert_eq!(bounds.between, 1000 * MS);
        assert_eq!(bounds.stalled, 4000 * MS);
        let mut waits = Vec::new();
        for _ in 0..4 {
            let wait = pace.call_ends(lease);
            waits.push(wait);
            pace.took(wait);
        }
        assert_eq!(waits[1], 2 * waits[0]);
        assert_eq!(waits[3], LONGEST_CALL);
        let slow = pace.bounds(lease, &configured);
        assert_eq!(slow.unheard, 30_000 * MS);
        assert_eq!(slow.unanswered, 60_000 * MS);
        assert_eq!(slow.stalled, 40_000 * MS);
        assert_eq!(slow.found, configured.found);
        // After eight quick calls the bounds are as before.
        for _ in 0..8 {
            pace.took(MS);
        }
        assert_eq!(pace.bounds(lease, &configured), bounds);
    }

    #[test]
    fn a_clock_keeps_its_part_of_a_bound_that_becomes_shorter() {
        let scaled = |time: u32, before: u32, now: u32| rescale(time * MS, before * MS, now * MS);
        assert_eq!(scaled(15, 30, 3), 1500 * MS / 1000);
        assert_eq!(scaled(30, 30, 3), 3 * MS);
        assert_eq!(scaled(31, 30, 3), 3 * MS);
        assert_eq!(scaled(0, 30, 3), Duration::ZERO);
        assert_eq!(scaled(2, 3, 30), 2 * MS);
        assert_eq!(scaled(2, 3, 3), 2 * MS);
    }

    #[test]
    fn turns_and_waits_grow() {
        let mut pace = Pace::default();
        let turns = [0, 1, 2, 3, 6, 7, 8].map(|place| pace.turn(place).as_millis());
        assert_eq!(turns, [0, 20, 60, 140, 1260, 2540, 3820]);
        assert!(pace.turn(u32::MAX) > pace.turn(4096));
        pace.took(100 * MS);
        assert_eq!(pace.turn(2), 600 * MS);
        let waits = [0, 1, 2, 7, 8, 400].map(|failures| back_off(MS, failures, 64));
        assert_eq!(waits.map(|it| it.as_millis()), [0, 1, 2, 64, 64, 64]);
    }
}
