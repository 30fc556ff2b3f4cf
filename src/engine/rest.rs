//! When a rail is given a rest: after [`ERRORS`] failures of its QPs within [`WITHIN`], for [`REST`]. Then one QP of it is connected again,
//! the probe. The others follow when that has not failed for [`WITHIN`]; if it fails, the rail rests again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::rails::RailState;

/// Failures that send a rail to rest.
const ERRORS: usize = 5;
/// Within so long.
const WITHIN: Duration = Duration::from_secs(5);
/// How long it rests.
pub(super) const REST: Duration = Duration::from_secs(30);

/// What is known of the failures of one rail.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// Failures of the last [`WITHIN`], at most [`ERRORS`].
    failures: VecDeque<Instant>,
    state: State,
    /// How often it has begun to rest.
    begun: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Works,
    /// Until then no QP of it is connected.
    Rests(Instant),
    /// One QP is connected: until then no other is.
    Probes(Instant),
}

impl Rest {
    /// A QP of the rail has failed. Whether the rail rests from now on.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        if let State::Rests(until) = self.state
            && now < until
        {
            return false;
        }
        self.failures.push_back(now);
        self.failures
            .retain(|failure| now.saturating_duration_since(*failure) < WITHIN);
        let probes = matches!(self.state, State::Probes(until) if now < until);
        if !probes && self.failures.len() < ERRORS {
            return false;
        }
        self.failures.clear();
        self.state = State::Rests(now + REST);
        self.begun += 1;
        true
    }

    /// Whether a QP of it may be connected now. If not, how long that is not so.
    pub(super) fn may_connect(&mut self, now: Instant) -> Result<(), Duration> {
        match self.state {
            State::Works => Ok(()),
            State::Rests(until) | State::Probes(until) if now < until => Err(until - now),
            State::Rests(_) => {
                self.state = State::Probes(now + WITHIN);
                Ok(())
            }
            State::Probes(_) => {
                self.state = State::Works;
                Ok(())
            }
        }
    }

    /// Whether its QPs are connected now.
    pub(super) fn state(&self, now: Instant) -> RailState {
        match self.state {
            State::Works => RailState::Works,
            State::Rests(until) if now < until => RailState::Rests,
            // Behind its rest no QP may have asked yet.
            State::Rests(_) => RailState::Probes,
            State::Probes(until) if now < until => RailState::Probes,
            State::Probes(_) => RailState::Works,
        }
    }

    /// How often it has begun to rest.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    /// A rail that has begun to rest at the time that is returned.
    fn resting() -> (Rest, Instant) {
        let (mut rest, now) = (Rest::default(), Instant::now());
        for nth in 0..4 {
            assert!(!rest.failed(now + nth * S));
            assert_eq!(rest.may_connect(now + nth * S), Ok(()));
        }
        assert!(rest.failed(now + 4 * S));
        (rest, now + 4 * S)
    }

    #[test]
    fn five_failures_in_five_seconds_send_it_to_rest_and_four_do_not() {
        let (mut rest, now) = (Rest::default(), Instant::now());
        for nth in 0..100 {
            assert!(!rest.failed(now + nth * (S + 250 * MS)), "{nth}");
        }
        assert_eq!(rest.begun(), 0);
        assert_eq!(resting().0.begun(), 1);
    }

    #[test]
    fn it_rests_for_thirty_seconds_whatever_fails_meanwhile() {
        let (mut rest, now) = resting();
        for after in [0, 1, 29_999] {
            let left = REST - after * MS;
            assert_eq!(rest.may_connect(now + after * MS), Err(left));
            assert!(!rest.failed(now + after * MS));
        }
        assert_eq!(rest.state(now + 29 * S), RailState::Rests);
        assert_eq!(rest.state(now + REST), RailState::Probes);
        assert_eq!(rest.may_connect(now + REST), Ok(()));
    }

    #[test]
    fn behind_a_rest_one_probes_and_the_others_follow_when_it_holds() {
        let (mut rest, now) = resting();
        let probe = now + REST;
        assert_eq!(rest.may_connect(probe), Ok(()));
        assert_eq!(rest.may_connect(probe), Err(WITHIN));
        assert_eq!(rest.may_connect(probe + WITHIN - MS), Err(MS));
        for _ in 0..2 {
            assert_eq!(rest.may_connect(probe + WITHIN), Ok(()));
        }
        assert_eq!(rest.state(probe + WITHIN), RailState::Works);
        assert!(!rest.failed(probe + WITHIN));
    }

    #[test]
    fn a_probe_that_fails_is_a_rest_again() {
        let (mut rest, now) = resting();
        let probe = now + REST;
        assert_eq!(rest.may_connect(probe), Ok(()));
        assert!(rest.failed(probe + MS));
        assert_eq!(rest.may_connect(probe + 2 * MS), Err(REST - MS));
        assert_eq!(rest.begun(), 2);
    }
}
