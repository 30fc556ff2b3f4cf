//! How long a test waits for what must come: so long that only a hang ends the wait, whatever else the machine runs.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The bound of every wait for what must come. It is less than the five minutes after which nextest ends a test, so that the test itself can
/// say what it has waited for.
pub const HANG: Duration = Duration::from_secs(240);

/// Waits until `condition` holds, which `what` names. Panics if that takes longer than [`HANG`].
#[track_caller]
pub fn until(what: impl Display, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < HANG, "not within {HANG:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
