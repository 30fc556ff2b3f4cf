//! How patient a group is.

use std::time::Duration;

use super::GroupError;
use crate::config::setters;
use crate::team::LEASE_TTL;

/// Bounds of a group. All ranks say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupConfig {
    /// How long a rank that does not renew its lease counts as living. Default 2 s.
    pub lease_ttl: Duration,
    /// How long kernels may wait in vain for a rank whose lease lives before it has to go. Default 5 times the team's deadline.
    pub stall_bound: Option<Duration>,
    /// The same for a rank a QP to which is in error, or all of whose ports are down. It goes then if all who stay are in doubt of
    /// it; while only some are, either end of a pair may be ill, and nobody goes before the stall bound. Default the team's
    /// deadline.
    pub error_bound: Option<Duration>,
    /// How long a living rank may leave a proposal unanswered before a smaller one goes on without it. Default 5 times the
    /// team's deadline.
    pub promise_bound: Option<Duration>,
    /// Longest wait of the founders for each other. Default the team's timeout.
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
    /// All defaults.
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

impl GroupConfig {
    /// In a team whose device calls wait for `deadline`, and its collective calls for `timeout`.
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
        let long = deadline.saturating_mul(5);
        let bounds = Bounds {
            lease_ttl: self.lease_ttl,
            stall: self.stall_bound.unwrap_or(long),
            error: self.error_bound.unwrap_or(deadline),
            promise: self.promise_bound.unwrap_or(long),
            found: self.found_bound.unwrap_or(timeout),
        };
        // A rank that waits for another that waits is late by one deadline and a quarter without being ill.
        for (what, value, least) in [
            ("stall_bound", bounds.stall, deadline.saturating_mul(2)),
            ("promise_bound", bounds.promise, Duration::from_millis(10)),
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
        let bounds = GroupConfig::default().bounds(DEADLINE, TIMEOUT).unwrap();
        assert_eq!(bounds.stall, 5 * DEADLINE);
        assert_eq!(bounds.promise, 5 * DEADLINE);
        assert_eq!(bounds.error, DEADLINE);
        assert_eq!(bounds.found, TIMEOUT);
    }

    #[test]
    fn a_bound_that_would_drop_healthy_ranks_is_refused_with_its_limit() {
        let short = GroupConfig {
            stall_bound: Some(DEADLINE),
            ..GroupConfig::default()
        };
        let error = short.bounds(DEADLINE, TIMEOUT).unwrap_err().to_string();
        assert_eq!(error, "stall_bound is 200ms; it must be at least 400ms");
        let short = GroupConfig {
            lease_ttl: Duration::from_millis(1),
            ..GroupConfig::default()
        };
        let error = short.bounds(DEADLINE, TIMEOUT).unwrap_err().to_string();
        assert_eq!(error, "lease_ttl is 1ms; it must be 50ms to 3600s");
    }
}
