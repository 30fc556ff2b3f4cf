//! How long tests wait.
//!
//! No assertion is about these times. [`HANG`] only ends a test that hangs, and [`QUIET`] only bounds a look for what must not
//! happen.

use std::time::{Duration, Instant};

/// How long a test waits for what must happen: less than the five minutes after which nextest ends the test.
pub const HANG: Duration = Duration::from_secs(240);

/// How long a test looks for what must not happen. A slow machine shows less in this time, and never makes the test fail.
pub const QUIET: Duration = Duration::from_millis(30);

/// Waits until `happened`. After [`HANG`] the test fails with `what` was waited for.
#[track_caller]
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + HANG;
    while !happened() {
        assert!(Instant::now() < end, "not within {HANG:?}: {what}");
        std::thread::yield_now();
    }
}
