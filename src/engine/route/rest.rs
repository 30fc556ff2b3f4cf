//! The rests of rails. A rail rests for [`REST`] after [`ERRORS`] failures of its QPs within [`WITHIN`]. Then one of its QPs, the probe, is
//! connected again. If the probe does not fail for [`WITHIN`], the other QPs follow. If it fails, the rail rests again.
//!
//! A QP joins a rail of this end and a rail of the peer, and its failure does not say which of them has failed. If rails of one end meet
//! several rails of the other, the failures of several QPs show it ([`Failures`]). Then the rail rests that has failed, or the way between
//! two rails.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use crate::engine::route::crossing::Crossing;

/// The number of failures after which a rail rests.
const ERRORS: usize = 5;
/// The time within which these failures are counted.
const WITHIN: Duration = Duration::from_secs(5);
/// How long a rail rests.
pub(in crate::engine) const REST: Duration = Duration::from_secs(30);

/// The state of a rail, which decides when its failed QPs are connected again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RailState {
    /// The failed QPs are connected again.
    #[default]
    Works,
    /// The rail has failed often. Its QPs are not connected while another rail carries slices.
    Rests,
    /// The rail has rested. One of its QPs is connected, and the others follow if that QP does not fail.
    Probes,
}

impl fmt::Display for RailState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Works => "works",
            Self::Rests => "rests",
            Self::Probes => "probes",
        })
    }
}

/// What is known of the failures of one rail.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Rest {
    /// The times of the failures within [`WITHIN`], at most [`ERRORS`].
    failures: VecDeque<Instant>,
    state: State,
    /// How often the rail has begun to rest.
    begun: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Works,
    /// No QP of the rail is connected until this time.
    Rests(Instant),
    /// One QP of the rail is connected, and no other until this time.
    Probes(Instant),
}

impl Rest {
    /// Notes that a QP of the rail has failed. Returns whether the rail rests from now on.
    pub(in crate::engine) fn failed(&mut self, now: Instant) -> bool {
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

    /// Lets a QP of the rail be connected now. The error says how long it must wait.
    pub(in crate::engine) fn may_connect(&mut self, now: Instant) -> Result<(), Duration> {
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

    /// Returns whether QPs of the rail are connected now, or how it rests.
    pub(in crate::engine) fn state(&self, now: Instant) -> RailState {
        match self.state {
            State::Works => RailState::Works,
            State::Rests(until) if now < until => RailState::Rests,
            // The rest is over, and no QP has asked to be connected yet.
            State::Rests(_) => RailState::Probes,
            State::Probes(until) if now < until => RailState::Probes,
            State::Probes(_) => RailState::Works,
        }
    }

    /// Returns how often the rail has begun to rest.
    pub(in crate::engine) fn begun(&self) -> u64 {
        self.begun
    }
}

/// The cause of failures, as the QPs of one connection show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum Fault {
    /// A rail of this end.
    Own(usize),
    /// A rail of the peer.
    Peers(usize),
    /// The path between two rails. Each of the two works with the other rails that it meets, if any.
    Way(Crossing),
}

impl Fault {
    /// Returns whether QPs with this crossing are concerned by the fault.
    pub(in crate::engine) fn has(self, crossing: Crossing) -> bool {
        match self {
            Self::Own(rail) => crossing.own == rail,
            Self::Peers(rail) => crossing.theirs == rail,
            Self::Way(way) => crossing == way,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(rail) => write!(f, "rail {rail}"),
            Self::Peers(rail) => write!(f, "rail {rail} of the peer"),
            Self::Way(Crossing { own, theirs }) => {
                write!(f, "the way from rail {own} to rail {theirs} of the peer")
            }
        }
    }
}

/// The crossings of QPs of one connection that have failed lately.
#[derive(Debug, Default)]
pub(in crate::engine) struct Failures(VecDeque<(Instant, Crossing)>);

impl Failures {
    /// Notes that a QP with the crossing `failed` has failed. Its connection has the crossings `crossings`. Returns the fault. A rail has
    /// failed if it fails with every rail that it meets. If both rails have failed, the fault is the rail of this end.
    pub(in crate::engine) fn add(
        &mut self,
        failed: Crossing,
        crossings: &[Crossing],
        now: Instant,
    ) -> Fault {
        let Self(known) = self;
        known.retain(|(at, it)| now.saturating_duration_since(*at) < WITHIN && *it != failed);
        known.push_back((now, failed));
        let has_failed = |it: &Crossing| known.iter().any(|(_, known)| known == it);
        let rails = [Fault::Own(failed.own), Fault::Peers(failed.theirs)];
        let mut rails = rails.into_iter();
        let rail = rails.find(|rail| {
            let mut with = crossings.iter().filter(|it| rail.has(**it));
            with.all(has_failed)
        });
        rail.unwrap_or(Fault::Way(failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::route::crossing::RailCounts;

    const S: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    /// Returns a rail that has begun to rest, and the time at which it did.
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

    /// Returns the faults that are found when QPs between these rails fail, each a second after the one before.
    fn said([own, theirs]: [usize; 2], failed: &[(usize, usize)]) -> Vec<Fault> {
        let rails = RailCounts { own, theirs };
        let crossings: Vec<Crossing> = (0..8)
            .map(|lane| Crossing::of_near_lane(lane, rails, true))
            .collect();
        let (mut failures, now) = (Failures::default(), Instant::now());
        let mut all = Vec::new();
        for (nth, (own, theirs)) in (0..).zip(failed.iter().copied()) {
            let failed = Crossing { own, theirs };
            all.push(failures.add(failed, &crossings, now + nth * S));
        }
        all
    }

    #[test]
    fn a_rail_has_failed_that_fails_with_every_rail_that_it_meets() {
        use Fault::{Own, Peers, Way};
        let way = |own, theirs| Way(Crossing { own, theirs });
        assert_eq!(said([2, 2], &[(0, 0), (0, 1)]), [way(0, 0), Own(0)]);
        assert_eq!(said([2, 2], &[(0, 0), (1, 0)]), [way(0, 0), Peers(0)]);
        // Each of these rails has failed with one rail only, or always by the same way.
        assert_eq!(said([2, 2], &[(0, 0), (1, 1)]), [way(0, 0), way(1, 1)]);
        assert_eq!(said([2, 2], &[(0, 1); 3]), [way(0, 1); 3]);
        // One end has one rail, which still works with other rails of the peer.
        assert_eq!(said([1, 2], &[(0, 1), (0, 0)]), [Peers(1), Own(0)]);
        assert_eq!(said([2, 1], &[(1, 0)]), [Own(1)]);
        assert_eq!(said([1, 1], &[(0, 0)]), [Own(0)]);
        // Failures of long ago do not count.
        let late = [(0, 0), (1, 1), (1, 1), (1, 1), (1, 1), (0, 1)];
        assert_eq!(said([2, 2], &late)[5], Peers(1));
    }

    #[test]
    fn a_fault_has_the_qps_of_its_rail_or_way_alone() {
        let of = |own, theirs| Crossing { own, theirs };
        let all = [of(0, 0), of(0, 1), of(1, 0), of(1, 1)];
        let had = |fault: Fault| all.map(|it| fault.has(it));
        assert_eq!(had(Fault::Own(0)), [true, true, false, false]);
        assert_eq!(had(Fault::Peers(0)), [true, false, true, false]);
        assert_eq!(had(Fault::Way(of(0, 1))), [false, true, false, false]);
        let said = "the way from rail 0 to rail 1 of the peer";
        assert_eq!(Fault::Way(of(0, 1)).to_string(), said);
    }
}
