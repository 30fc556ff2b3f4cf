//! Sets of ranks by slot, as bits, and of pairs of ranks.
//!
//! In a record a set is its bits as hexadecimal digits, slot 0 in the last one: 256 digits for 1,024 slots.

use std::collections::BTreeSet;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

/// Most digits of a set in a record: slots below 65,536.
const MAX_DIGITS: usize = 1 << 14;

/// Ranks by slot. The first 64 need no memory of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    low: u64,
    /// Slots from 64 on. The last word is not zero, so that equal sets are equal.
    high: Vec<u64>,
}

impl Slots {
    fn word(&self, at: usize) -> u64 {
        match at {
            0 => self.low,
            _ => self.high.get(at - 1).copied().unwrap_or(0),
        }
    }

    fn words(&self) -> usize {
        1 + self.high.len()
    }

    fn trim(&mut self) {
        while self.high.last() == Some(&0) {
            self.high.pop();
        }
    }

    /// The word of a slot, and its bit in it.
    fn place(slot: u32) -> (usize, u64) {
        let (word, bit) = (slot / 64, slot % 64);
        (word as usize, 1 << bit)
    }

    /// Whether it has `slot`.
    pub(crate) fn contains(&self, slot: u32) -> bool {
        let (at, bit) = Self::place(slot);
        self.word(at) & bit != 0
    }

    /// Puts `slot` into it.
    pub(crate) fn insert(&mut self, slot: u32) {
        let (at, bit) = Self::place(slot);
        if at == 0 {
            self.low |= bit;
            return;
        }
        if self.high.len() < at {
            self.high.resize(at, 0);
        }
        self.high[at - 1] |= bit;
    }

    /// Takes `slot` out of it.
    pub(crate) fn remove(&mut self, slot: u32) {
        let (at, bit) = Self::place(slot);
        match at {
            0 => self.low &= !bit,
            _ => {
                if let Some(word) = self.high.get_mut(at - 1) {
                    *word &= !bit;
                    self.trim();
                }
            }
        }
    }

    /// Whether nobody is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_empty()
    }

    /// How many are in it.
    pub(crate) fn len(&self) -> u32 {
        let high: u32 = self.high.iter().map(|word| word.count_ones()).sum();
        self.low.count_ones() + high
    }

    /// The highest.
    pub(crate) fn last(&self) -> Option<u32> {
        self.iter().last()
    }

    /// The lowest.
    pub(crate) fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// All, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(0..self.words()).flat_map(|(number, at)| {
            let mut left = self.word(at);
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some(64 * number + bit)
            })
        })
    }

    /// Adds those of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.low |= other.low;
        if self.high.len() < other.high.len() {
            self.high.resize(other.high.len(), 0);
        }
        for (own, word) in self.high.iter_mut().zip(&other.high) {
            *own |= word;
        }
    }

    /// Takes those of `other` away.
    pub(crate) fn take_away(&mut self, other: &Self) {
        self.low &= !other.low;
        for (own, word) in self.high.iter_mut().zip(&other.high) {
            *own &= !word;
        }
        self.trim();
    }

    /// Leaves only those that `other` has too.
    pub(crate) fn retain(&mut self, other: &Self) {
        self.low &= other.low;
        self.high.truncate(other.high.len());
        for (own, word) in self.high.iter_mut().zip(&other.high) {
            *own &= word;
        }
        self.trim();
    }

    /// Those of both.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.add(other);
        all
    }

    /// Those that are not in `other`.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.take_away(other);
        left
    }

    /// Those that are in `other` too.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.retain(other);
        both
    }

    /// Whether all are in `other` too.
    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        (0..self.words()).all(|at| self.word(at) & !other.word(at) == 0)
    }
}

impl Serialize for Slots {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (words, last) = (self.words(), self.word(self.words() - 1));
        let mut text = format!("{last:x}");
        for at in (0..words - 1).rev() {
            text.push_str(&format!("{:016x}", self.word(at)));
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Slots {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() || text.len() > MAX_DIGITS {
            let digits = text.len();
            let limits = format!("a set of {digits} digits; it has 1 to {MAX_DIGITS}");
            return Err(D::Error::custom(limits));
        }
        let word = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok()?;
            let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            u64::from_str_radix(digits, 16).ok().filter(|_| plain)
        };
        let words: Option<Vec<u64>> = text.as_bytes().rchunks(16).map(word).collect();
        let words = words.ok_or_else(|| D::Error::custom("a set that is no hexadecimal number"))?;
        let mut all = Self {
            low: words[0],
            high: words[1..].to_vec(),
        };
        all.trim();
        Ok(all)
    }
}

impl FromIterator<u32> for Slots {
    fn from_iter<I: IntoIterator<Item = u32>>(slots: I) -> Self {
        let mut all = Self::default();
        for slot in slots {
            all.insert(slot);
        }
        all
    }
}

/// Pairs of ranks, by slot; a pair has no order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub(crate) struct Pairs(BTreeSet<(u32, u32)>);

impl From<Vec<(u32, u32)>> for Pairs {
    fn from(pairs: Vec<(u32, u32)>) -> Self {
        let mut all = Self::default();
        for (a, b) in pairs {
            all.insert(a, b);
        }
        all
    }
}

impl From<Pairs> for Vec<(u32, u32)> {
    fn from(pairs: Pairs) -> Self {
        pairs.0.into_iter().collect()
    }
}

impl Pairs {
    /// Whether it has the pair.
    #[cfg(test)]
    pub(crate) fn contains(&self, a: u32, b: u32) -> bool {
        self.0.contains(&(a.min(b), a.max(b)))
    }

    /// Puts the pair into it. A rank and itself are none.
    pub(crate) fn insert(&mut self, a: u32, b: u32) {
        if a != b {
            self.0.insert((a.min(b), a.max(b)));
        }
    }

    /// Takes the pair out of it.
    pub(crate) fn remove(&mut self, a: u32, b: u32) {
        self.0.remove(&(a.min(b), a.max(b)));
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All, the lower slot first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().copied()
    }

    /// The other ends of the pairs of `rank`.
    pub(crate) fn of(&self, rank: u32) -> Slots {
        let other = |(a, b): (u32, u32)| match (a == rank, b == rank) {
            (true, _) => Some(b),
            (_, true) => Some(a),
            _ => None,
        };
        self.iter().filter_map(other).collect()
    }

    /// Those of both.
    pub(crate) fn with(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    /// Those with both ends in `ranks`.
    pub(crate) fn inside(&self, ranks: &Slots) -> Self {
        let both = |(a, b): &(u32, u32)| ranks.contains(*a) && ranks.contains(*b);
        Self(self.iter().filter(both).collect())
    }

    /// Whether all are in `other` too.
    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_many_words_are_sets() {
        let mut all: Slots = [3, 64, 4095].into_iter().collect();
        assert_eq!(all.iter().collect::<Vec<_>>(), [3, 64, 4095]);
        assert_eq!((all.len(), all.first()), (3, Some(3)));
        all.remove(4095);
        assert_eq!(all, [64, 3].into_iter().collect());
        assert!(all.is_subset(&[3, 5, 64].into_iter().collect()));
        let few: Slots = [64].into_iter().collect();
        assert_eq!(all.without(&few), [3].into_iter().collect());
        assert_eq!(all.and(&few), few);
        assert_eq!(few.with(&[3].into_iter().collect()), all);
        let mut pairs = Pairs::default();
        pairs.insert(5, 2);
        pairs.insert(1, 1);
        assert!(pairs.contains(2, 5) && !pairs.contains(1, 1));
        assert_eq!(pairs.of(5), [2].into_iter().collect());
        assert!(pairs.inside(&few).is_empty());
    }

    #[test]
    fn a_set_in_a_record_is_the_same_set_and_others_are_refused() {
        let text = |slots: &[u32]| {
            let all: Slots = slots.iter().copied().collect();
            let text = serde_json::to_string(&all).unwrap();
            assert_eq!(serde_json::from_str::<Slots>(&text).unwrap(), all);
            text
        };
        assert_eq!(text(&[]), "\"0\"");
        assert_eq!(text(&[0, 5]), "\"21\"");
        assert_eq!(text(&[0, 63, 64]), "\"18000000000000001\"");
        text(&[65_535]);
        text(&(0..4096).collect::<Vec<u32>>());
        let zeros = format!("\"{}1\"", "0".repeat(40));
        let one: Slots = [0].into_iter().collect();
        assert_eq!(serde_json::from_str::<Slots>(&zeros).unwrap(), one);
        let long = format!("\"{}\"", "f".repeat(MAX_DIGITS + 1));
        for wrong in ["\"\"", "\"g\"", "\"-1\"", "\"+1\"", "7", &long] {
            assert!(serde_json::from_str::<Slots>(wrong).is_err(), "{wrong:.20}");
        }
    }
}
