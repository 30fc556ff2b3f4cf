//! Which WRITEs carry their bytes in the WQE, so that the NIC reads no memory for them.

use crate::provider::files;
use crate::provider::memory::copy_out;
use crate::provider::{LocalRange, Verb, Work};

/// Returns how many bytes the WQE of this work carries, at most `inline`. Returns None if it names ranges, as it does for pages that may be
/// gone: the NIC itself finds out that they are.
pub(super) fn carried(inline: u64, work: &Work, ranges: &[LocalRange]) -> Option<usize> {
    if inline == 0 || work.verb == Verb::Read || work.stays_in_place() {
        return None;
    }
    let bytes: u64 = ranges.iter().map(|range| u64::from(range.bytes)).sum();
    let bytes = usize::try_from(bytes).ok();
    let is_there = |range: &LocalRange| !files::may_be_gone(range.address, range.bytes.into());
    bytes.filter(|bytes| *bytes as u64 <= inline && ranges.iter().all(is_there))
}

/// Copies the bytes of these ranges, as they are now, to the front of `into`.
pub(super) fn gather(ranges: &[LocalRange], into: &mut [u8]) {
    let mut at = 0;
    for range in ranges {
        let end = at + range.bytes as usize;
        copy_out(range, &mut into[at..end]);
        at = end;
    }
}
