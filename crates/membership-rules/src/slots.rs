//! Sets of ranks as bits by slot, and sets of pairs of ranks.

use std::cmp::Ordering;

/// A set of ranks, by slot. The first 64 slots need no memory of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    low: u64,
    /// The words of the slots from 64 on. The last word is not zero, so that equal sets have equal words.
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

    /// Returns the index of the word that has a slot, and the bit of the slot in that word.
    fn place(slot: u32) -> (usize, u64) {
        let (word, bit) = (slot / 64, slot % 64);
        (word as usize, 1 << bit)
    }

    /// Returns whether the set has `slot`.
    pub fn contains(&self, slot: u32) -> bool {
        let (at, bit) = Self::place(slot);
        self.word(at) & bit != 0
    }

    /// Puts `slot` into the set.
    pub fn insert(&mut self, slot: u32) {
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

    /// Puts the slots from `first` to `last`, both included, into the set. If `last` is below `first` it puts in none.
    pub fn insert_run(&mut self, first: u32, last: u32) {
        // The words grow only once: each time that they grow, the allocator keeps the smaller block.
        let (words, _) = Self::place(last);
        if first <= last && self.high.len() < words {
            self.high.resize(words, 0);
        }
        let mut slot = first;
        while slot <= last {
            // Each step sets the slots of one word.
            let end = last.min(slot | 63);
            let (at, _) = Self::place(slot);
            let bits = u64::MAX >> (63 - (end - slot)) << (slot % 64);
            match at {
                0 => self.low |= bits,
                _ => self.high[at - 1] |= bits,
            }
            let Some(next) = end.checked_add(1) else {
                return;
            };
            slot = next;
        }
    }

    /// Returns the runs of adjacent slots in the set, ascending: the first and the last slot of each.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let first = self.next(from, true)?;
            from = self.next(first, false)?;
            Some((first, from - 1))
        })
    }

    /// Returns the lowest slot from `from` on that is in the set if `is_in`, and otherwise the lowest slot that is not.
    fn next(&self, from: u32, is_in: bool) -> Option<u32> {
        let (first, bit) = Self::place(from);
        (first..=self.words()).find_map(|at| {
            let word = if is_in { self.word(at) } else { !self.word(at) };
            let left = if at == first { word & !(bit - 1) } else { word };
            let number = u32::try_from(at).ok()?;
            (left != 0).then(|| 64 * number + left.trailing_zeros())
        })
    }

    /// Takes `slot` out of the set.
    pub fn remove(&mut self, slot: u32) {
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

    /// Returns whether the set holds no slot.
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_empty()
    }

    /// Returns the number of slots in the set.
    pub fn len(&self) -> u32 {
        let high: u32 = self.high.iter().map(|word| word.count_ones()).sum();
        self.low.count_ones() + high
    }

    /// Returns the lowest slot of the set.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// Returns all slots, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(0..self.words()).flat_map(|(number, at)| {
            let mut left = self.word(at);
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some(64 * number + bit)
            })
        })
    }

    /// Adds the slots of `other`.
    pub fn add(&mut self, other: &Self) {
        self.low |= other.low;
        if self.high.len() < other.high.len() {
            self.high.resize(other.high.len(), 0);
        }
        for (own, word) in self.high.iter_mut().zip(&other.high) {
            *own |= word;
        }
    }

    /// Removes the slots of `other`.
    pub fn take_away(&mut self, other: &Self) {
        self.low &= !other.low;
        for (own, word) in self.high.iter_mut().zip(&other.high) {
            *own &= !word;
        }
        self.trim();
    }

    /// Removes the slots that `other` does not have.
    pub fn retain(&mut self, other: &Self) {
        self.low &= other.low;
        self.high.truncate(other.high.len());
        for (own, word) in self.high.iter_mut().zip(&other.high) {
            *own &= word;
        }
        self.trim();
    }

    /// Returns the slots of both sets together.
    pub fn with(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.add(other);
        all
    }

    /// Returns the slots that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.take_away(other);
        left
    }

    /// Returns the slots that are in `other` too.
    pub fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.retain(other);
        both
    }

    /// Returns the slots above `slot`.
    pub fn behind(&self, slot: u32) -> Self {
        let (at, bit) = Self::place(slot);
        let mut left = self.clone();
        let upper = !(bit | (bit - 1));
        if at == 0 {
            left.low &= upper;
            return left;
        }
        left.low = 0;
        for (word, high) in left.high.iter_mut().enumerate() {
            match (word + 1).cmp(&at) {
                Ordering::Less => *high = 0,
                Ordering::Equal => *high &= upper,
                Ordering::Greater => {}
            }
        }
        left.trim();
        left
    }

    /// Returns whether all slots are in `other` too.
    pub fn is_subset(&self, other: &Self) -> bool {
        (0..self.words()).all(|at| self.word(at) & !other.word(at) == 0)
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

/// A set of pairs of ranks, by slot. A pair has no order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// For each slot, the other ends of its pairs. The last entry is not empty, so that equal sets of pairs are equal.
    ends: Vec<Slots>,
}

impl Pairs {
    /// Returns whether the set has the pair.
    pub fn contains(&self, a: u32, b: u32) -> bool {
        self.ends
            .get(a as usize)
            .is_some_and(|ends| ends.contains(b))
    }

    fn ends_mut(&mut self, slot: u32) -> &mut Slots {
        let slot = slot as usize;
        if self.ends.len() <= slot {
            self.ends.resize(slot + 1, Slots::default());
        }
        &mut self.ends[slot]
    }

    fn trim(&mut self) {
        while self.ends.last().is_some_and(Slots::is_empty) {
            self.ends.pop();
        }
    }

    /// Puts the pair into the set. A rank makes no pair with itself.
    pub fn insert(&mut self, a: u32, b: u32) {
        if a != b {
            self.ends_mut(a.max(b)).insert(a.min(b));
            self.ends_mut(a.min(b)).insert(a.max(b));
        }
    }

    /// Takes the pair out of the set.
    pub fn remove(&mut self, a: u32, b: u32) {
        for (one, other) in [(a, b), (b, a)] {
            if let Some(ends) = self.ends.get_mut(one as usize) {
                ends.remove(other);
            }
        }
        self.trim();
    }

    /// Returns whether the list holds no pair.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns all pairs, the lower slot of each first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let lower = (0u32..).zip(&self.ends);
        lower.flat_map(|(a, ends)| ends.iter().filter(move |b| a < *b).map(move |b| (a, b)))
    }

    /// Returns the other ends of the pairs of `rank`.
    pub fn of(&self, rank: u32) -> Slots {
        self.ends.get(rank as usize).cloned().unwrap_or_default()
    }

    /// Returns the ranks that have a pair, ascending, with the other ends of each.
    pub fn rows(&self) -> impl Iterator<Item = (u32, &Slots)> {
        let all = (0u32..).zip(&self.ends);
        all.filter(|(_, ends)| !ends.is_empty())
    }

    /// Returns the pairs that `choose` makes of the ends of each slot in `self` and in `other`. `choose` must treat both ends of a pair
    /// alike.
    fn zip(&self, other: &Self, choose: impl Fn(&Slots, &Slots) -> Slots) -> Self {
        let none = Slots::default();
        let all = 0..self.ends.len().max(other.ends.len());
        let ends = all.map(|at| {
            let [own, theirs] = [self, other].map(|pairs| pairs.ends.get(at).unwrap_or(&none));
            choose(own, theirs)
        });
        let mut both = Self {
            ends: ends.collect(),
        };
        both.trim();
        both
    }

    /// Returns the pairs of both sets together.
    pub fn with(&self, other: &Self) -> Self {
        self.zip(other, Slots::with)
    }

    /// Returns the pairs that are in only one of both sets.
    pub fn differing(&self, other: &Self) -> Self {
        self.zip(other, |own, theirs| {
            own.without(theirs).with(&theirs.without(own))
        })
    }

    /// Returns the pairs with both ends in `ranks`.
    pub fn inside(&self, ranks: &Slots) -> Self {
        let mut inside = Self::default();
        for (rank, ends) in self.rows().filter(|(rank, _)| ranks.contains(*rank)) {
            let ends = ends.and(ranks);
            if !ends.is_empty() {
                *inside.ends_mut(rank) = ends;
            }
        }
        inside
    }

    /// Returns whether all pairs are in `other` too.
    pub fn is_subset(&self, other: &Self) -> bool {
        let none = Slots::default();
        self.rows().all(|(rank, ends)| {
            let theirs = other.ends.get(rank as usize).unwrap_or(&none);
            ends.is_subset(theirs)
        })
    }

    /// Returns a pair that has an end outside `ranks`, if there is one.
    pub fn outside(&self, ranks: &Slots) -> Option<(u32, u32)> {
        let mut rows = self.rows();
        rows.find_map(|(rank, ends)| {
            match ranks.contains(rank) {
                true => ends.without(ranks).first(),
                false => ends.first(),
            }
            .map(|other| (rank.min(other), rank.max(other)))
        })
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
    fn those_behind_a_slot_are_all_above_it() {
        let all: Slots = [0, 3, 63, 64, 70, 128].into_iter().collect();
        for slot in 0..200 {
            let behind: Slots = all.iter().filter(|other| *other > slot).collect();
            assert_eq!(all.behind(slot), behind, "{slot}");
        }
    }

    #[test]
    fn runs_are_what_single_slots_are() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let edges = [
            (0, 0),
            (0, 63),
            (0, 64),
            (63, 64),
            (64, 127),
            (1, 4095),
            (5, 4),
        ];
        let drawn = std::iter::repeat_with(|| {
            let first = random.u32(..300);
            (first, first + random.u32(..140))
        });
        for (first, last) in edges.into_iter().chain(drawn.take(300)) {
            for before in [None, Some(last / 2), Some(last + 2)] {
                let mut runs: Slots = before.into_iter().collect();
                let mut single = runs.clone();
                runs.insert_run(first, last);
                (first..=last).for_each(|slot| single.insert(slot));
                assert_eq!(runs, single, "{first}-{last}, {before:?} before");
                let again: Vec<u32> = runs.runs().flat_map(|(a, b)| a..=b).collect();
                assert_eq!(again, runs.iter().collect::<Vec<_>>(), "{first}-{last}");
                let apart = |pair: &[(u32, u32)]| pair[0].1 + 1 < pair[1].0;
                let parts: Vec<_> = runs.runs().collect();
                assert!(parts.windows(2).all(apart), "{first}-{last}: {parts:?}");
            }
        }
        assert_eq!(Slots::default().runs().next(), None);
    }

    #[test]
    fn sets_of_pairs_are_sets() {
        let of = |pairs: &[(u32, u32)]| {
            let mut all = Pairs::default();
            for (a, b) in pairs {
                all.insert(*b, *a);
            }
            all
        };
        let (few, more) = (of(&[(1, 9)]), of(&[(1, 9), (2, 70), (1, 70)]));
        assert_eq!(more.iter().collect::<Vec<_>>(), [(1, 9), (1, 70), (2, 70)]);
        assert!(few.is_subset(&more) && !more.is_subset(&few));
        assert_eq!(few.with(&more), more);
        assert_eq!(more.differing(&few), of(&[(1, 70), (2, 70)]));
        assert_eq!(few.differing(&more), of(&[(1, 70), (2, 70)]));
        assert!(more.differing(&more).is_empty());
        assert_eq!(more.inside(&[1, 9, 2].into_iter().collect()), few);
        assert_eq!(
            more.outside(&[1, 9, 2].into_iter().collect()),
            Some((1, 70))
        );
        assert_eq!(few.outside(&[1, 9].into_iter().collect()), None);
        let mut less = more.clone();
        less.remove(70, 2);
        less.remove(70, 1);
        assert_eq!(less, few);
        less.remove(5, 6);
        less.remove(9, 1);
        assert_eq!(less, Pairs::default());
    }
}
