//! The clock of records.

use std::time::SystemTime;

/// Returns the microseconds since 1970, by the clock that all processes of a machine share.
pub(crate) fn unix_us() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |time| {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    })
}
