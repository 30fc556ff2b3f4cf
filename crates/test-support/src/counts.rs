//! How much a test tries: little in every run, much with WV_TEST_FULL.

use std::ops::Range;

use crate::device;

/// Seeds on a GPU, where they choose no schedule of threads: twice is enough to see what a second run finds.
const ON_A_GPU: u64 = 2;

/// `few` seeds, or with WV_TEST_FULL set `many`. On a GPU two at most.
pub fn seeds(few: u64, many: u64) -> Range<u64> {
    let wanted = if full() { many } else { few };
    0..if device::is_a_gpu() {
        wanted.min(ON_A_GPU)
    } else {
        wanted
    }
}

/// Returns whether WV_TEST_FULL is set.
pub fn full() -> bool {
    std::env::var_os("WV_TEST_FULL").is_some()
}
