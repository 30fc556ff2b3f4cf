//! The limits of stores, which their errors name.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The most bytes of a key.
pub const MAX_KEY: usize = 256;
/// The most bytes of a value. etcd takes so many in one request, with room for the rest of the request.
pub const MAX_VALUE: usize = 1 << 20;
/// The most bytes of a run id.
pub(crate) const MAX_RUN: usize = 128;
/// The shortest and the longest time to live of a lease.
pub const LEASE_TTL: RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(3600);
/// The most keys that one look names beside its prefix.
pub const MAX_LOOK: usize = 64;
/// Longest bound of a call, and the bound of a handle for which the caller has asked for none.
pub const MAX_BOUND: Duration = Duration::from_secs(5);

/// Returns the bound of a handle for which the caller asks for `bound`.
pub(crate) fn clamped(bound: Duration) -> Duration {
    bound.min(MAX_BOUND)
}
