//! The bounds of a group: how long ranks wait for each other.

use std::fmt;
use std::time::Duration;

use membership_rules::clocks;

use super::GroupError;
use crate::config::setters;
use crate::team::LEASE_TTL;

/// Bounds of a group. All ranks must have the same bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupConfig {
    /// How long a rank that does not renew its lease counts as living. Default 2 s.
    pub lease_ttl: Duration,
    /// How long a living rank may be without contact to every rank of the larger side before the group expels it. Without contact
    /// means that kernels wait for the rank in vain, or that its QPs are in error. At least two leases. Default 5 times the team's
    /// deadline, and two leases at least.
    pub stall_bound: Option<Duration>,
    /// How long a QP to a rank is in error before the pair parts. No call of the next view sends between the two ranks, and their
    /// QPs are connected anew. Neither rank is expelled for that. Default the team's deadline.
    pub error_bound: Option<Duration>,
    /// How long a living rank may leave a proposal unanswered before another member makes a smaller proposal without that rank. At least
    /// two leases. Default 5 times the team's deadline, and two leases at least.
    pub promise_bound: Option<Duration>,
    /// Longest wait of the founders for each other. Also how long joining ranks must have heard of no member before they found the group
    /// anew. Default the team's timeout.
    pub found_bound: Option<Duration>,
}

setters! {
    const GroupConfig {
        with_lease_ttl(lease_ttl: Duration),
        with_stall_bound(stall_bound: Option<Duration>),
        with_error_bound(error_bound: Option<Duration>),
        with_promise_bound(promise_bound: Option<Duration>),
        with_found_bound(found_bound: Option<Duration>),
    }
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl GroupConfig {
    /// Returns a configuration in which each bound has its default.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            lease_ttl: Duration::from_secs(2),
            stall_bound: None,
            error_bound: None,
            promise_bound: None,
            found_bound: None,
        }
    }
}

/// The bounds with their defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) lease_ttl: Duration,
    pub(super) stall: Duration,
    pub(super) error: Duration,
    pub(super) promise: Duration,
    pub(super) found: Duration,
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lease_ttl,
            stall,
            error,
            promise,
            found,
        } = self;
        write!(
            f,
            "lease_ttl {lease_ttl:?}, stall_bound {stall:?}, error_bound {error:?}, promise_bound {promise:?}, found_bound {found:?}"
        )
    }
}

impl Bounds {
    /// Returns whether a rank may have written `text` as its bounds: `name duration` five times.
    pub(super) fn are_in(text: &[u8]) -> bool {
        const NAMES: [&str; 5] = [
            "lease_ttl ",
            "stall_bound ",
            "error_bound ",
            "promise_bound ",
            "found_bound ",
        ];
        // Every unit in which `Duration` is written ends with an `s`.
        let is_time = |time: &str| {
            time.starts_with(|first: char| first.is_ascii_digit()) && time.ends_with('s')
        };
        let parts = std::str::from_utf8(text).map(|text| text.split(", ").collect::<Vec<_>>());
        let Ok(parts) = parts else { return false };
        let mut named = parts.iter().zip(NAMES);
        parts.len() == NAMES.len()
            && named.all(|(part, name)| part.strip_prefix(name).is_some_and(is_time))
    }

    /// Returns whether a rank may be expelled before its pairs have gone round a rail that carries nothing. Going round takes the HCA's
    /// `patience`, the error bound, and the `deadline` after which a rail counts as silent.
    pub(super) fn ends_before(&self, patience: Duration, deadline: Duration) -> bool {
        let times = [patience, self.error, deadline];
        let round = times
            .into_iter()
            .fold(Duration::ZERO, Duration::saturating_add);
        round >= self.stall
    }

    /// Returns the bounds of clocks before any call of the store was measured.
    pub(super) fn clocks(&self) -> clocks::Bounds<Duration> {
        let configured = clocks::Bounds {
            between: Duration::ZERO,
            call: Duration::ZERO,
            unheard: Duration::ZERO,
            stalled: self.stall,
            unanswered: self.promise,
            found: self.found,
        };
        clocks::Pace::default().bounds(self.lease_ttl, &configured)
    }
}

impl GroupConfig {
    /// Returns the bounds in a team whose device calls wait for `deadline`, and whose collective calls wait for `timeout`.
    pub(super) fn bounds(
        &self,
        deadline: Duration,
        timeout: Duration,
    ) -> Result<Bounds, GroupError> {
        if !LEASE_TTL.contains(&self.lease_ttl) {
            return Err(GroupError::Bound {
                what: "lease_ttl",
                value: self.lease_ttl,
                least: *LEASE_TTL.start(),
                most: *LEASE_TTL.end(),
            });
        }
        let two_leases = self.lease_ttl.saturating_mul(2);
        let long = deadline.saturating_mul(5).max(two_leases);
        let bounds = Bounds {
            lease_ttl: self.lease_ttl,
            stall: self.stall_bound.unwrap_or(long),
            error: self.error_bound.unwrap_or(deadline),
            promise: self.promise_bound.unwrap_or(long),
            found: self.found_bound.unwrap_or(timeout),
        };
        // Why these limits: a rank that waits for another waiting rank is late by one deadline and a quarter without being ill. A rank that
        // stood still for less than a lease, or after four gaps of half a lease, is not ill either.
        for (what, value, least) in [
            ("stall_bound", bounds.stall, deadline.saturating_mul(2)),
            ("stall_bound", bounds.stall, two_leases),
            ("promise_bound", bounds.promise, two_leases),
        ] {
            if value < least {
                return Err(GroupError::Bound {
                    what,
                    value,
                    least,
                    most: Duration::MAX,
                });
            }
        }
        Ok(bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(200);
    const TIMEOUT: Duration = Duration::from_secs(30);

    #[test]
    fn what_is_not_said_follows_from_the_deadline() {
        let config = GroupConfig::default().with_lease_ttl(DEADLINE);
        let bounds = config.bounds(DEADLINE, TIMEOUT).unwrap();
        assert_eq!(bounds.stall, 5 * DEADLINE);
        assert_eq!(bounds.promise, 5 * DEADLINE);
        let patient = GroupConfig::default().bounds(DEADLINE, TIMEOUT).unwrap();
        assert_eq!(patient.stall, 2 * patient.lease_ttl);
        assert_eq!(patient.promise, 2 * patient.lease_ttl);
        assert_eq!(bounds.error, DEADLINE);
        assert_eq!(bounds.found, TIMEOUT);
    }

    #[test]
    fn a_stall_bound_leaves_time_to_go_round_a_rail_or_does_not() {
        let second = Duration::from_secs(1);
        let config = GroupConfig::default()
            .with_stall_bound(Some(6 * second))
            .with_error_bound(Some(second));
        let bounds = config.bounds(second, TIMEOUT).unwrap();
        let ms = Duration::from_millis(1);
        assert!(!bounds.ends_before(4 * second - ms, second));
        assert!(bounds.ends_before(4 * second, second));
        assert!(bounds.ends_before(4 * second - ms, second + ms));
        assert!(bounds.ends_before(Duration::MAX, second));
    }

    #[test]
    fn bounds_are_known_from_garbage_and_from_a_part_of_them() {
        let bounds = GroupConfig::default().bounds(DEADLINE, TIMEOUT).unwrap();
        let longest = Bounds {
            stall: Duration::MAX,
            error: Duration::from_nanos(1),
            promise: Duration::from_micros(1500),
            found: Duration::ZERO,
            ..bounds
        };
        for text in [bounds.to_string(), longest.to_string()] {
            assert!(Bounds::are_in(text.as_bytes()), "{text}");
            for end in 0..text.len() {
                assert!(!Bounds::are_in(&text.as_bytes()[..end]), "{text} to {end}");
                let mut flipped = text.clone().into_bytes();
                flipped[end] = 0xff;
                assert!(!Bounds::are_in(&flipped), "{text} at {end}");
            }
            assert!(!Bounds::are_in(format!("{text}, {text}").as_bytes()));
        }
    }

    #[test]
    fn a_bound_that_would_drop_healthy_ranks_is_refused_with_its_limit() {
        let short = GroupConfig {
            stall_bound: Some(DEADLINE),
            ..GroupConfig::default()
        };
        let error = short.bounds(DEADLINE, TIMEOUT).unwrap_err().to_string();
        assert_eq!(error, "stall_bound is 200ms; it must be at least 400ms");
        let second = Some(Duration::from_secs(1));
        for (what, short) in [
            (
                "stall_bound",
                GroupConfig::default().with_stall_bound(second),
            ),
            (
                "promise_bound",
                GroupConfig::default().with_promise_bound(second),
            ),
        ] {
            let error = short.bounds(DEADLINE, TIMEOUT).unwrap_err().to_string();
            assert_eq!(error, format!("{what} is 1s; it must be at least 4s"));
        }
        let short = GroupConfig {
            lease_ttl: Duration::from_millis(1),
            ..GroupConfig::default()
        };
        let error = short.bounds(DEADLINE, TIMEOUT).unwrap_err().to_string();
        assert_eq!(error, "lease_ttl is 1ms; it must be 50ms to 3600s");
    }
}
