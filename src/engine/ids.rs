//! Ids of transfers and regions. No two of a process are equal, and each names its engine.

use std::fmt;

use crate::engine::limits::{MOST_REGIONS, REGION_BITS};

/// Names one transfer of one engine of this process. No other transfer ever has this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId {
    pub(in crate::engine) engine: u32,
    pub(in crate::engine) slot: u32,
    pub(in crate::engine) generation: u64,
}

impl TransferId {
    /// Returns the slot in which the engine keeps what belongs to the transfer.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// Returns the id as two words, for other languages.
    #[must_use]
    pub const fn to_words(self) -> [u64; 2] {
        let place = (self.engine as u64) << 32 | self.slot as u64;
        [place, self.generation]
    }

    /// Returns the id of the words that [`TransferId::to_words`] has made. Any other words name a transfer of another engine, or
    /// one that is unknown.
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

/// Names one region of one engine of this process. No other region ever has this id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(u64);

impl RegionId {
    /// Returns the id as a number, for other languages. It names the engine of the region, and is never 0.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the id of a number. A number that no id has, such as 0, names a region of another engine, or one that is unknown.
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
