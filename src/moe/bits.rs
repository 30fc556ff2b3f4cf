//! A set of ranks as bits, one for each rank, as host and kernels exchange it.

use crate::team::MAX_RANKS;

/// A set of ranks: one bit for each rank that a team may have.
pub(super) type RankBits = [u32; MAX_RANKS as usize / 32];

/// Returns the ranks whose bits are set.
pub(super) fn ranks_of(words: &RankBits) -> Vec<u32> {
    let has = |rank: &u32| words[*rank as usize / 32] >> (rank % 32) & 1 != 0;
    (0..MAX_RANKS).filter(has).collect()
}
