//! Sets of ranks.

use std::fmt;

use super::limits::MAX_RANKS;

const WORDS: usize = MAX_RANKS as usize / 64;

/// A set of ranks, each below [`MAX_RANKS`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RankSet([u64; WORDS]);

impl RankSet {
    /// Returns the set of ranks 0 to `ranks` - 1.
    #[must_use]
    pub fn first(ranks: u32) -> Self {
        (0..ranks).collect()
    }

    /// Returns whether `rank` is in the set.
    #[must_use]
    pub fn contains(&self, rank: u32) -> bool {
        rank < MAX_RANKS && self.0[rank as usize / 64] >> (rank % 64) & 1 != 0
    }

    /// Returns this set with `rank`. A `rank` of [`MAX_RANKS`] or more is not added.
    #[must_use]
    pub fn with(self, rank: u32) -> Self {
        // No `mut self`: rustc 1.95 lets an optimized caller see such a change in its own copy of the argument.
        let mut words = self.0;
        if rank < MAX_RANKS {
            words[rank as usize / 64] |= 1 << (rank % 64);
        }
        Self(words)
    }

    /// Returns this set without `rank`.
    #[must_use]
    pub fn without(self, rank: u32) -> Self {
        let mut words = self.0; // as in `with`
        if rank < MAX_RANKS {
            words[rank as usize / 64] &= !(1 << (rank % 64));
        }
        Self(words)
    }

    /// Returns the ranks of the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let set = *self;
        (0..MAX_RANKS).filter(move |rank| set.contains(*rank))
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        ranks.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_and_not_taken_out() {
        let set: RankSet = [3, 64, 1023, 1024, u32::MAX].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 64, 1023]);
        assert!(set.contains(64) && !set.contains(63) && !set.contains(1024));
        assert_eq!(format!("{:?}", set.without(64)), "{3, 1023}");
        assert_eq!(set.without(2000).with(2000), set);
        assert_eq!(RankSet::first(0), RankSet::default());
        assert_eq!(RankSet::first(1024).iter().count(), 1024);
    }
}
