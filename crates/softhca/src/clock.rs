//! The clock of HCAs: the clock of the machine, or a clock that a test moves.

use std::sync::OnceLock;
use std::time::Instant;

/// The source of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The machine's CLOCK_MONOTONIC.
    Real,
    /// A clock that stands at this nanosecond until a test moves it.
    Virtual(u64),
}

impl Clock {
    pub(crate) fn now_ns(self) -> u64 {
        match self {
            Self::Real => now_ns(),
            Self::Virtual(now_ns) => now_ns,
        }
    }
}

/// Returns the nanoseconds of a clock that never goes back.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // The clock starts at 1 s, so that arithmetic on intervals never meets 0.
    let since = START.get_or_init(Instant::now).elapsed();
    1_000_000_000 + u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2)
}
