//! Ids of transfers and regions. No two of a process are equal, and each names its engine.

use std::fmt;

use crate::engine::limits::{MOST_REGIONS, REGION_BITS};

/// Names one transfer of one engine of this process. No other transfer ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId {
    pub(in crate::engine) engine: u32,
    pub(in crate::engine) slot: u32,
    pub(in crate::engine) generation: u64,
}

impl TransferId {
    /// Where the engine keeps what belongs to the transfer.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// As two words, for other languages.
    #[must_use]
    pub const fn to_words(self) -> [u64; 2] {
        let place = (self.engine as u64) << 32 | self.slot as u64;
        [place, self.generation]
    }

    /// From the words that [`TransferId::to_words`] has made. Any others name a transfer of another engine or one that is unknown.
    #[must_use]
    pub const fn from_words([place, generation]: [u64; 2]) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "two halves of a word")]
        let (engine, slot) = ((place >> 32) as u32, place as u32);
        Self {
            engine,
            slot,
            generation,
        }
    }
}

/// Names one region of one engine of this process. No other region ever has the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(u64);

impl RegionId {
    /// Its number, for other languages. It says which engine the region is of, and is never 0.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// From its number. Any other number names a region of another engine, or one that is unknown; so does 0.
    #[must_use]
    pub const fn of_number(number: u64) -> Self {
        Self(number)
    }

    pub(in crate::engine) const fn engine(self) -> u32 {
        (self.0 >> REGION_BITS) as u32
    }
}

impl fmt::Debug for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (engine, nth) = (self.engine(), self.0 & MOST_REGIONS);
        write!(f, "RegionId({}: {nth} of engine {engine})", self.0)
    }
}
