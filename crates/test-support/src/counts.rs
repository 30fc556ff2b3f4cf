//! How much a test tries: little in every run, much if WV_TEST_FULL is set.

use std::ops::Range;

use crate::device;

/// The number of seeds on a GPU, where seeds choose no schedule of threads. Two runs are enough to see what differs in a second run.
const ON_A_GPU: u64 = 2;

/// Returns `few` seeds, or `many` if WV_TEST_FULL is set. On a GPU it returns two at most.
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
