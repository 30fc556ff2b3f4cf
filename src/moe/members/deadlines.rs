//! How long the calls of a layer wait.

use std::time::Duration;

use bytemuck::Zeroable;

use crate::abi::MoeClock;
use crate::config::setters;

/// The waiting times of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlines {
    /// Longest wait of a phase. It may be shorter than the time in which the HCA gives up on a peer
    /// ([`PathConfig::ack_timeout`](crate::config::PathConfig::ack_timeout), eight times). Until the HCA gives up, calls go on, and
    /// send that peer nothing.
    pub steady: Duration,
    /// Longest wait of a phase in the first `warm_calls` calls.
    pub warm: Duration,
    /// Number of calls that are warm-up.
    pub warm_calls: u32,
    /// Longest time for which a call is held back, or clocks stand still, while a change is prepared. A call that is held for
    /// longer is lost at every rank. So the time should not be less than a group needs to find out that a member does not answer.
    /// [`Deadlines::new`] takes [`CHANGE`](Self::CHANGE), or `steady` if that is longer.
    pub change: Duration,
}

setters! {
    const Deadlines {
        with_steady(steady: Duration),
        with_warm(warm: Duration),
        with_warm_calls(warm_calls: u32),
        with_change(change: Duration),
    }
}

impl Deadlines {
    /// The default for the longest time of a change of members, 10 s. With leases of 2 s a group drops a member that has stopped
    /// answering in less time.
    pub const CHANGE: Duration = Duration::from_secs(10);

    /// Returns waiting times of `steady` in every call.
    #[must_use]
    pub const fn new(steady: Duration) -> Self {
        let is_long = steady.as_nanos() > Self::CHANGE.as_nanos();
        Self {
            steady,
            warm: steady,
            warm_calls: 0,
            change: if is_long { steady } else { Self::CHANGE },
        }
    }
}

/// Returns the waiting times as kernels read them, and the longest time for which a phase may run, ns. A time of more nanoseconds
/// than 64 bits hold counts as the largest such number, 584 years.
pub(super) fn clock_of(deadlines: &Deadlines) -> (MoeClock, u64) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let clock = MoeClock {
        steady_ns: ns(deadlines.steady),
        warm_ns: ns(deadlines.warm),
        warm_calls: deadlines.warm_calls,
        change_ns: ns(deadlines.change),
        ..MoeClock::zeroed()
    };
    let longest = clock.steady_ns.max(clock.warm_ns);
    let phase = longest.saturating_mul(2).saturating_add(clock.change_ns);
    (clock, phase.saturating_mul(2))
}

/// Returns how long a launch may run, if its phase may run for `phase_ns`, or its call has the deadline `own`, which may be zero.
pub(super) fn longest_launch(phase_ns: u64, own: Duration) -> Duration {
    let longest = Duration::from_nanos(phase_ns).max(own.saturating_mul(6));
    longest.saturating_add(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_may_take_longer_than_a_short_deadline() {
        for (steady, change) in [(0, 10), (1, 10), (10, 10), (11, 11)] {
            let deadlines = Deadlines::new(Duration::from_secs(steady));
            assert_eq!(deadlines.change, Duration::from_secs(change));
        }
    }

    #[test]
    fn times_beyond_every_clock_count_as_its_end_and_none_as_none() {
        let (clock, phase_ns) = clock_of(&Deadlines::new(Duration::MAX));
        assert_eq!(
            [clock.steady_ns, clock.warm_ns, clock.change_ns, phase_ns],
            [u64::MAX; 4]
        );
        assert_eq!(longest_launch(0, Duration::MAX), Duration::MAX);
        let longest = longest_launch(phase_ns, Duration::ZERO);
        assert_eq!(
            longest,
            Duration::from_nanos(u64::MAX) + Duration::from_secs(60)
        );
        let all = |time| Deadlines::new(time).with_change(time);
        let (clock, phase_ns) = clock_of(&all(Duration::ZERO));
        assert_eq!((clock.steady_ns, phase_ns), (0, 0));
        let (_, phase_ns) = clock_of(&all(Duration::from_nanos(7)));
        assert_eq!(phase_ns, 2 * (2 * 7 + 7));
    }
}
