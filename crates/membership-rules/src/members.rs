//! Ranks and their generations, by slot.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::slots::Slots;

/// The generation of each member, by slot. Clones share their memory until one of them changes.
///
/// A rank keeps the members of its view at several places: in the record, in its events, and for its kernels. To save memory they are kept
/// as runs of adjacent slots with one generation. The members of a new group are one run, and a rank that comes back adds two. A run takes
/// 12 bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Members(Arc<Vec<Run>>);

/// Adjacent slots whose members have one generation. The runs of [`Members`] ascend, and each is as long as it can be, so equal members
/// have equal runs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u32,
    last: u32,
    generation: u32,
}

impl Run {
    fn slots(self) -> RangeInclusive<u32> {
        self.first..=self.last
    }

    /// Returns whether `next` begins where this run ends, with the same generation.
    fn goes_on(self, next: Self) -> bool {
        self.last.checked_add(1) == Some(next.first) && self.generation == next.generation
    }
}

impl Members {
    /// Returns the index of the run that has `slot`. As an error, returns the index of the first run after `slot`.
    fn find(&self, slot: u32) -> Result<usize, usize> {
        let at = self.0.partition_point(|run| run.last < slot);
        let run = self.0.get(at);
        if run.is_some_and(|run| run.first <= slot) {
            Ok(at)
        } else {
            Err(at)
        }
    }

    /// Returns the generation of the member in `slot`.
    #[must_use]
    pub fn get(&self, slot: u32) -> Option<u32> {
        let at = self.find(slot).ok()?;
        self.0.get(at).map(|run| run.generation)
    }

    /// Returns whether `slot` has a member.
    #[must_use]
    pub fn contains_key(&self, slot: u32) -> bool {
        self.find(slot).is_ok()
    }

    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        let slots = self.0.iter().map(|run| (run.last - run.first) as usize + 1);
        slots.sum()
    }

    /// Returns whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns slot and generation of each member, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + Clone {
        let all = self.0.iter();
        all.flat_map(|run| run.slots().map(|slot| (slot, run.generation)))
    }

    /// Returns the slots, in their order.
    pub fn keys(&self) -> impl Iterator<Item = u32> + Clone {
        self.0.iter().flat_map(|run| run.slots())
    }

    /// Returns the generations, in the order of the slots.
    pub fn values(&self) -> impl Iterator<Item = u32> {
        self.iter().map(|(_, generation)| generation)
    }

    /// Returns the slots, in their order.
    pub fn into_keys(self) -> impl Iterator<Item = u32> {
        let runs = Arc::unwrap_or_clone(self.0);
        runs.into_iter().flat_map(Run::slots)
    }

    /// Sets the member in `slot` to `generation`. Returns the generation that the slot had before.
    pub fn insert(&mut self, slot: u32, generation: u32) -> Option<u32> {
        let before = self.remove(slot);
        let at = self.0.partition_point(|run| run.last < slot);
        let mut new = Run {
            first: slot,
            last: slot,
            generation,
        };
        let runs = Arc::make_mut(&mut self.0);
        let mut replaced = at..at;
        if let Some(lower) = at.checked_sub(1).map(|lower| runs[lower])
            && lower.goes_on(new)
        {
            (new.first, replaced.start) = (lower.first, at - 1);
        }
        if let Some(upper) = runs.get(at)
            && new.goes_on(*upper)
        {
            (new.last, replaced.end) = (upper.last, at + 1);
        }
        runs.splice(replaced, [new]);
        before
    }

    /// Removes the member in `slot`. Returns the generation that the slot had.
    pub fn remove(&mut self, slot: u32) -> Option<u32> {
        let at = self.find(slot).ok()?;
        let runs = Arc::make_mut(&mut self.0);
        let run = runs[at];
        let lower = (run.first < slot).then(|| Run {
            last: slot - 1,
            ..run
        });
        let upper = (slot < run.last).then(|| Run {
            first: slot + 1,
            ..run
        });
        runs.splice(at..=at, lower.into_iter().chain(upper));
        Some(run.generation)
    }

    /// Leaves only the members for whose slot and generation `stays` holds.
    pub fn retain(&mut self, stays: impl Fn(u32, u32) -> bool) {
        let goes = |&(slot, generation): &(u32, u32)| !stays(slot, generation);
        for (slot, _) in self.clone().iter().filter(goes) {
            self.remove(slot);
        }
    }

    /// Returns the slots, as a set.
    pub fn slots(&self) -> Slots {
        let mut all = Slots::default();
        for run in self.0.iter().rev() {
            all.insert_run(run.first, run.last);
        }
        all
    }

    /// Returns the slots that have the same generation here and in `other`.
    pub fn common(&self, other: &Self) -> Slots {
        let mut all = Slots::default();
        let (mut own, mut theirs) = (
            self.0.iter().rev().peekable(),
            other.0.iter().rev().peekable(),
        );
        while let (Some(one), Some(another)) = (own.peek(), theirs.peek()) {
            let (first, last) = (one.first.max(another.first), one.last.min(another.last));
            if one.generation == another.generation && first <= last {
                all.insert_run(first, last);
            }
            if one.first > another.first {
                own.next()
            } else {
                theirs.next()
            };
        }
        all
    }

    /// Shares the memory of `other` if both are equal.
    pub fn share(&mut self, other: &Self) {
        if self == other {
            self.0 = Arc::clone(&other.0);
        }
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<const N: usize> From<[(u32, u32); N]> for Members {
    fn from(members: [(u32, u32); N]) -> Self {
        members.into_iter().collect()
    }
}

impl FromIterator<(u32, u32)> for Members {
    fn from_iter<T: IntoIterator<Item = (u32, u32)>>(members: T) -> Self {
        let mut all = Self::default();
        all.extend(members);
        all
    }
}

impl Extend<(u32, u32)> for Members {
    fn extend<T: IntoIterator<Item = (u32, u32)>>(&mut self, members: T) {
        for (slot, generation) in members {
            self.insert(slot, generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_clone_shares_its_memory_until_it_changes() {
        let shares = |a: &Members, b: &Members| Arc::ptr_eq(&a.0, &b.0);
        let members = Members::from([(0, 1), (3, 2)]);
        let mut other = members.clone();
        assert!(shares(&members, &other));
        other.insert(4, 1);
        assert!(!shares(&members, &other));
        assert_eq!(members, [(0, 1), (3, 2)].into());
        other.share(&members);
        assert!(!shares(&members, &other), "they differ");
        other.remove(4);
        other.share(&members);
        assert!(shares(&members, &other));
    }

    #[test]
    fn members_in_runs_are_those_of_a_map() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut map, mut members) = (BTreeMap::new(), Members::default());
        let mut other = members.clone();
        for step in 0..4000 {
            // Slots lie at both ends of the numbers that a slot may have.
            let slot =
                [random.u32(..24), u32::MAX - random.u32(..3)][usize::from(random.u8(..8) == 0)];
            let generation = random.u32(1..3);
            match random.u8(..4) {
                0 => assert_eq!(members.remove(slot), map.remove(&slot), "step {step}"),
                1 if random.u8(..64) == 0 => {
                    let stays = |slot: u32, of: u32| slot.is_multiple_of(3) || of == generation;
                    members.retain(stays);
                    map.retain(|slot, of| stays(*slot, *of));
                }
                _ => {
                    let before = members.insert(slot, generation);
                    assert_eq!(before, map.insert(slot, generation), "step {step}");
                }
            }
            assert!(
                members.iter().eq(map.iter().map(|it| (*it.0, *it.1))),
                "step {step}: {members:?}"
            );
            assert!(members.keys().eq(map.keys().copied()), "step {step}");
            assert!(
                members.clone().into_keys().eq(map.keys().copied()),
                "step {step}"
            );
            assert!(members.values().eq(map.values().copied()), "step {step}");
            assert_eq!(
                (members.len(), members.is_empty()),
                (map.len(), map.is_empty())
            );
            assert_eq!(members.get(slot), map.get(&slot).copied(), "step {step}");
            assert_eq!(members.contains_key(slot), map.contains_key(&slot));
            // Equal members have equal runs, however they came to be.
            assert_eq!(
                members,
                map.iter().map(|it| (*it.0, *it.1)).collect(),
                "step {step}"
            );
            // The memory of a set grows with its highest slot.
            if map.last_key_value().is_none_or(|it| *it.0 < 1 << 16) {
                let slots: Slots = map.keys().copied().collect();
                assert_eq!(members.slots(), slots, "step {step}");
                let same = |it: &(u32, u32)| other.get(it.0) == Some(it.1);
                let common: Slots = members.iter().filter(same).map(|it| it.0).collect();
                assert_eq!(
                    members.common(&other),
                    common,
                    "step {step}: {members:?} {other:?}"
                );
                assert_eq!(
                    other.common(&members),
                    common,
                    "step {step}: {members:?} {other:?}"
                );
                if random.u8(..16) == 0 {
                    other = members.clone();
                }
            }
            let apart = |pair: &[Run]| !pair[0].goes_on(pair[1]);
            assert!(members.0.windows(2).all(apart), "step {step}: {members:?}");
        }
    }
}
