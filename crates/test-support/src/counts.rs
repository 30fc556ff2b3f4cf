//! How much a test tries: little in every run, much with WV_TEST_FULL.

use std::ops::Range;

/// `few` seeds, or with WV_TEST_FULL set `many`.
pub fn seeds(few: u64, many: u64) -> Range<u64> {
    0..if full() { many } else { few }
}

/// Whether WV_TEST_FULL is set.
pub fn full() -> bool {
    std::env::var_os("WV_TEST_FULL").is_some()
}
