//! Deadlines of waits on the host. [`Looks`] is the order of clock and look for all of them.

use std::time::{Duration, Instant};

pub use rendezvous::Looks;

/// Stands for a time that the clock does not hold.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// When `timeout` from now has passed. A time beyond the clock's range counts as a century.
pub(crate) fn deadline_in(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + CENTURY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timeout_has_a_deadline() {
        let left = |timeout| deadline_in(timeout).saturating_duration_since(Instant::now());
        assert!(left(Duration::ZERO).is_zero());
        assert!(left(Duration::from_secs(60)) <= Duration::from_secs(60));
        for endless in [Duration::MAX, Duration::from_secs(u64::MAX)] {
            assert!(left(endless) > CENTURY / 2);
        }
    }
}
