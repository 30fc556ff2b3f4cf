//! Tables of regions by address, of this side or of a peer.
//!
//! A transfer keeps the tables that it was planned with until it is concluded. A change meanwhile is made to a copy of the table. The copy
//! shares all unchanged leaves with the old table. So one more region costs about as much in a table of ten thousand regions as in a table
//! of ten: only the list of leaves is longer.

use std::sync::Arc;

use crate::engine::kind::Rights;
use crate::engine::ledger::plan::{Region, Regions};
use crate::engine::memory::regions::Users;
use crate::engine::route::rails::RailKeys;

/// The registrations of this side.
pub(in crate::engine) type LocalTable = Table<Arc<Users>>;
/// The regions and grants of a peer that the program has imported.
pub(in crate::engine) type RemoteTable = Table<Rights>;

/// The tables of both ends with which a transfer was planned.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Tables {
    pub(in crate::engine) local: Arc<LocalTable>,
    pub(in crate::engine) remote: Arc<RemoteTable>,
}

/// The most regions of a leaf.
const LEAF: usize = 64;

/// A region in a table.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::engine) struct Mapped<T> {
    pub(in crate::engine) address: u64,
    pub(in crate::engine) bytes: u64,
    /// The keys by rail: lkeys of memory of this side, rkeys of a peer's.
    pub(in crate::engine) keys: RailKeys,
    pub(in crate::engine) owner: T,
}

/// Regions that do not overlap, by address. The number of a region in the table is its index.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Table<T> {
    /// The first address of each leaf.
    firsts: Vec<u64>,
    leaves: Vec<Arc<Leaf<T>>>,
}

/// A leaf of 1 to [`LEAF`] regions. Their addresses are in a list of their own, so that a search reads few cache lines.
#[derive(Clone, Debug)]
struct Leaf<T> {
    addresses: Vec<u64>,
    regions: Vec<Mapped<T>>,
}

/// The place of a region in a table, or the place that it would have.
#[derive(Clone, Copy, Debug)]
struct Place {
    leaf: usize,
    nth: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            firsts: Vec::new(),
            leaves: Vec::new(),
        }
    }
}

impl<T: Clone> Table<T> {
    /// Takes one more region. Returns false, and changes nothing, if it overlaps one in the table.
    pub(in crate::engine) fn insert(&mut self, region: Mapped<T>) -> bool {
        if self.overlaps(region.address, region.bytes) {
            return false;
        }
        let Place { leaf, nth } = self.behind(region.address);
        let Some(own) = self.leaves.get_mut(leaf) else {
            self.firsts.push(region.address);
            self.leaves.push(Arc::new(Leaf {
                addresses: vec![region.address],
                regions: vec![region],
            }));
            return true;
        };
        let own = Arc::make_mut(own);
        own.addresses.insert(nth, region.address);
        own.regions.insert(nth, region);
        let upper = (own.regions.len() > LEAF).then(|| Leaf {
            addresses: own.addresses.split_off(LEAF / 2),
            regions: own.regions.split_off(LEAF / 2),
        });
        self.firsts[leaf] = own.addresses[0];
        if let Some(upper) = upper {
            self.firsts.insert(leaf + 1, upper.addresses[0]);
            self.leaves.insert(leaf + 1, Arc::new(upper));
        }
        true
    }

    /// Removes the region that begins at `address`, if there is one.
    pub(in crate::engine) fn remove(&mut self, address: u64) {
        let Some(Place { leaf, nth }) = self.before(address) else {
            return;
        };
        if self.leaves[leaf].addresses[nth] != address {
            return;
        }
        let own = Arc::make_mut(&mut self.leaves[leaf]);
        own.addresses.remove(nth);
        own.regions.remove(nth);
        match own.addresses.first() {
            Some(first) => self.firsts[leaf] = *first,
            None => {
                self.firsts.remove(leaf);
                self.leaves.remove(leaf);
            }
        }
        self.join(leaf);
        if let Some(before) = leaf.checked_sub(1) {
            self.join(before);
        }
    }

    /// Joins this leaf and the next, if both are small. So leaves do not outlive their regions.
    fn join(&mut self, leaf: usize) {
        let length = |at: usize| self.leaves.get(at).map(|leaf| leaf.regions.len());
        let (Some(own), Some(next)) = (length(leaf), length(leaf + 1)) else {
            return;
        };
        if own + next <= LEAF / 2 {
            self.firsts.remove(leaf + 1);
            let next = self.leaves.remove(leaf + 1);
            let own = Arc::make_mut(&mut self.leaves[leaf]);
            own.addresses.extend(&next.addresses);
            own.regions.extend(next.regions.iter().cloned());
        }
    }
}

impl<T> Table<T> {
    pub(in crate::engine) fn get(&self, number: u32) -> Option<&Mapped<T>> {
        let number = number as usize;
        let leaf = self.leaves.get(number / LEAF)?;
        leaf.regions.get(number % LEAF)
    }

    /// Returns the region that has all of the range.
    pub(in crate::engine) fn covering(&self, address: u64, bytes: u64) -> Option<&Mapped<T>> {
        let Place { leaf, nth } = self.before(address)?;
        let region = &self.leaves[leaf].regions[nth];
        let skipped = address.checked_sub(region.address)?;
        let room = region.bytes.checked_sub(skipped)?;
        (bytes <= room).then_some(region)
    }

    /// Returns whether a region has a byte of the range, or the range ends after the last address.
    pub(in crate::engine) fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let Some(end) = address.checked_add(bytes) else {
            return true;
        };
        let before = self.before(address);
        let before = before.map(|Place { leaf, nth }| &self.leaves[leaf].regions[nth]);
        let Place { leaf, nth } = self.behind(address);
        let next = self.leaves.get(leaf);
        let next = next.and_then(|leaf| leaf.addresses.get(nth).copied());
        let next = next.or_else(|| self.firsts.get(leaf + 1).copied());
        before.is_some_and(|it| it.address + it.bytes > address) || next.is_some_and(|it| it < end)
    }

    /// Returns the place of the last region that begins at or before `address`.
    fn before(&self, address: u64) -> Option<Place> {
        let Place { leaf, nth } = self.behind(address);
        let nth = nth.checked_sub(1)?;
        Some(Place { leaf, nth })
    }

    /// Returns the place after the last region that begins at or before `address`. In every leaf but the first, a region of the
    /// leaf is before this place.
    fn behind(&self, address: u64) -> Place {
        let leaf = self.firsts.partition_point(|first| *first <= address);
        let leaf = leaf.saturating_sub(1);
        let own = self.leaves.get(leaf);
        let addresses = own.map_or(&[][..], |it| it.addresses.as_slice());
        let nth = addresses.partition_point(|it| *it <= address);
        Place { leaf, nth }
    }
}

impl<T> Regions for Table<T> {
    fn region_of(&self, address: u64) -> Option<Region> {
        let Place { leaf, nth } = self.before(address)?;
        let region = &self.leaves[leaf].regions[nth];
        (address - region.address < region.bytes).then(|| Region {
            number: u32::try_from(leaf * LEAF + nth).unwrap_or(u32::MAX),
            address: region.address,
            bytes: region.bytes,
        })
    }
}

/// A table of an engine on its own, for measurements.
#[derive(Clone, Debug, Default)]
pub struct RegionTable(Table<()>);

impl RegionTable {
    /// Takes one more region. Returns false if it overlaps one in the table.
    pub fn insert(&mut self, address: u64, bytes: u64) -> bool {
        self.0.insert(Mapped {
            address,
            bytes,
            keys: RailKeys::default(),
            owner: (),
        })
    }
}

impl Regions for RegionTable {
    fn region_of(&self, address: u64) -> Option<Region> {
        self.0.region_of(address)
    }
}

/// Returns the tables of two engines that have one region of 4096 bytes each, at address 0, with these keys. Tests of transfers use them.
#[cfg(test)]
pub(in crate::engine) fn one_region_each(keys: RailKeys) -> Tables {
    fn table<T: Clone>(keys: RailKeys, owner: T) -> Arc<Table<T>> {
        let mut table = Table::default();
        let region = Mapped {
            address: 0,
            bytes: 4096,
            keys,
            owner,
        };
        assert!(table.insert(region), "the table was empty");
        Arc::new(table)
    }
    Tables {
        local: table(keys, Arc::default()),
        remote: table(keys, Rights::Both),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const SPAN: u64 = 1 << 12;

    fn region(address: u64, bytes: u64) -> Mapped<u64> {
        let (keys, owner) = (RailKeys::default(), address ^ bytes);
        Mapped {
            address,
            bytes,
            keys,
            owner,
        }
    }

    /// Returns all regions of a table, by address, and checks that its leaves are what they must be.
    fn regions(table: &Table<u64>) -> BTreeMap<u64, u64> {
        assert_eq!(table.firsts.len(), table.leaves.len());
        for (first, leaf) in table.firsts.iter().zip(&table.leaves) {
            assert!((1..=LEAF).contains(&leaf.regions.len()));
            assert_eq!(*first, leaf.addresses[0]);
            let addresses = leaf.regions.iter().map(|it| it.address);
            assert!(addresses.eq(leaf.addresses.iter().copied()));
        }
        let leaves = table.leaves.iter();
        let all: Vec<_> = leaves.flat_map(|leaf| leaf.regions.iter()).collect();
        assert!(all.is_sorted_by_key(|it| it.address));
        all.iter().map(|it| (it.address, it.bytes)).collect()
    }

    #[test]
    fn a_table_says_what_a_map_says_through_random_changes() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for step in 0..3000 {
                let address = random.u64(0..SPAN) * 16;
                let bytes = random.u64(1..80);
                // The table first grows, then shrinks.
                if random.u64(0..3000) > step {
                    let is_free = map
                        .iter()
                        .all(|(at, length)| at + length <= address || address + bytes <= *at);
                    assert_eq!(table.insert(region(address, bytes)), is_free, "seed {seed}");
                    if is_free {
                        map.insert(address, bytes);
                    }
                } else if let Some(at) = map.keys().nth(random.usize(0..=map.len())).copied() {
                    table.remove(at + 1);
                    table.remove(at);
                    map.remove(&at);
                }
                let byte = random.u64(0..SPAN * 16);
                let having = map.range(..=byte).next_back();
                let having = having.filter(|(at, length)| byte < *at + *length);
                let found = table.region_of(byte);
                let pair = found.map(|it| (it.address, it.bytes));
                assert_eq!(
                    pair,
                    having.map(|(at, length)| (*at, *length)),
                    "seed {seed}"
                );
                let by_number = found.and_then(|it| table.get(it.number));
                assert_eq!(by_number.map(|it| (it.address, it.bytes)), pair);
                // A range of no bytes may also lie at the end of a region.
                let (from, most) = (found.map_or(byte, |it| it.address), random.u64(1..90));
                let covers = pair.is_some_and(|(_, length)| most <= length);
                assert_eq!(table.covering(from, most).is_some(), covers, "seed {seed}");
            }
            assert_eq!(regions(&table), map, "seed {seed}");
            for at in map.keys() {
                table.remove(*at);
            }
            assert!(table.leaves.is_empty() && table.firsts.is_empty());
        }
    }

    #[test]
    fn a_range_that_ends_behind_the_last_address_is_no_region() {
        let mut table = Table::default();
        assert!(!table.insert(region(u64::MAX - 7, 16)));
        assert!(table.insert(region(u64::MAX - 7, 7)));
        assert!(table.covering(u64::MAX - 7, 8).is_none());
        assert!(table.region_of(u64::MAX - 1).is_some());
    }

    /// After a change of a table that a transfer holds, one leaf differs, and not the whole table.
    #[test]
    fn a_copy_has_the_leaves_of_the_first_but_those_that_changed() {
        let mut table = Table::default();
        for nth in 0..10_000 {
            assert!(table.insert(region(nth * 64, 32)));
        }
        let held = table.clone();
        let before = regions(&held);
        assert!(table.insert(region(5_000 * 64 + 32, 32)));
        table.remove(0);
        let is_held = |leaf: &&Arc<Leaf<_>>| held.leaves.iter().any(|it| Arc::ptr_eq(it, leaf));
        let copied = table.leaves.iter().filter(|leaf| !is_held(leaf)).count();
        assert!((1..=3).contains(&copied), "{copied} leaves");
        assert_eq!(regions(&held), before);
        assert_eq!(regions(&table).len(), 10_000);
    }
}
