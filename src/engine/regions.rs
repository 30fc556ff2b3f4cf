//! Registered memory, as transfers see it. It consists of tables that do not change, by address, of this side and of a peer, and
//! of descriptors. A peer learns of a region by its descriptor.
//!
//! A registry makes a new table with each change. A transfer keeps the tables that it was planned with until it is concluded.

#[cfg(test)]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::carried::{Opened, seal};
use super::error::EngineError;
use super::plan::{Region, Regions};
use super::rails::RailKeys;

/// Bytes of a descriptor as [`Descriptor::to_bytes`] gives it. The size is part of the format.
pub const DESCRIPTOR_BYTES: usize = 72;
/// What a descriptor begins with: its form, by number.
const MAGIC: [u8; 4] = *b"WVR\x02";

/// What a peer needs to know of a region. Programs may carry it themselves, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The engine that has the region, in the life that it has now.
    pub incarnation: u64,
    /// First byte.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// The keys, by rail.
    pub rkeys: RailKeys,
}

impl Descriptor {
    /// The bytes that a program carries to the peer, with a check of their own.
    #[must_use]
    pub fn to_bytes(self) -> [u8; DESCRIPTOR_BYTES] {
        let words = [self.incarnation, self.address, self.bytes];
        seal(MAGIC, self.rkeys, &words)
    }

    /// Parses the bytes of a descriptor, from any source.
    ///
    /// # Errors
    /// [`EngineError::Descriptor`] with what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EngineError> {
        let bad = |what| EngineError::Descriptor { what };
        let whole = bytes.try_into();
        let whole = whole.map_err(|_| bad("its length is not 72 bytes"))?;
        let opened = Opened::<DESCRIPTOR_BYTES>::new(MAGIC, whole).map_err(bad)?;
        let (address, bytes) = opened.range(16).map_err(bad)?;
        Ok(Self {
            incarnation: opened.word(8),
            address,
            bytes,
            rkeys: opened.rkeys().map_err(bad)?,
        })
    }
}

/// A region in a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mapped<T> {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// lkeys of this side's, rkeys of a peer's, by rail.
    pub(super) keys: RailKeys,
    pub(super) owner: T,
}

/// Regions that do not overlap, by address. Their number is their place.
#[derive(Clone, Debug)]
pub(super) struct Table<T> {
    regions: Vec<Mapped<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            regions: Vec::new(),
        }
    }
}

impl<T: Clone> Table<T> {
    /// The table with one more region. None: it overlaps one in the table.
    pub(super) fn with(&self, region: Mapped<T>) -> Option<Self> {
        let at = self.behind(region.address);
        let end = region.address.checked_add(region.bytes)?;
        let before = at.checked_sub(1).map(|before| &self.regions[before]);
        let overlaps_before = before.is_some_and(|it| it.address + it.bytes > region.address);
        let overlaps_next = self.regions.get(at).is_some_and(|it| it.address < end);
        if overlaps_before || overlaps_next {
            return None;
        }
        let mut regions = self.regions.clone();
        regions.insert(at, region);
        Some(Self { regions })
    }

    /// The same without that which begins at `address`.
    pub(super) fn without(&self, address: u64) -> Self {
        let others = self.regions.iter().filter(|it| it.address != address);
        Self {
            regions: others.cloned().collect(),
        }
    }
}

impl<T> Table<T> {
    pub(super) fn get(&self, number: u32) -> Option<&Mapped<T>> {
        self.regions.get(number as usize)
    }

    /// The one that has all of the range.
    pub(super) fn covering(&self, address: u64, bytes: u64) -> Option<&Mapped<T>> {
        let region = self.regions.get(self.behind(address).checked_sub(1)?)?;
        let skipped = address.checked_sub(region.address)?;
        let room = region.bytes.checked_sub(skipped)?;
        (bytes <= room).then_some(region)
    }

    /// How many begin at or before `address`.
    fn behind(&self, address: u64) -> usize {
        self.regions.partition_point(|it| it.address <= address)
    }
}

impl<T> Regions for Table<T> {
    fn region_of(&self, address: u64) -> Option<Region> {
        let number = self.behind(address).checked_sub(1)?;
        let region = &self.regions[number];
        (address - region.address < region.bytes).then(|| Region {
            number: u32::try_from(number).unwrap_or(u32::MAX),
            address: region.address,
            bytes: region.bytes,
        })
    }
}

/// How many transfers use a region, and whether it takes more.
#[derive(Debug)]
pub(super) struct Users {
    count: AtomicU32,
    is_open: AtomicBool,
}

impl Default for Users {
    fn default() -> Self {
        Self {
            count: AtomicU32::new(0),
            is_open: AtomicBool::new(true),
        }
    }
}

impl Users {
    /// One more. `false`: the region is being taken away, and nothing was counted.
    pub(super) fn enter(&self) -> bool {
        // SeqCst: either this thread sees that it is closed, or the thread that closes sees this user.
        self.count.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.load(Ordering::SeqCst);
        if !is_open {
            self.leave();
        }
        is_open
    }

    pub(super) fn leave(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes no more users. If it has users, it stays open, and the error is their number.
    pub(super) fn close(&self) -> Result<(), u32> {
        self.is_open.store(false, Ordering::SeqCst);
        match self.count.load(Ordering::SeqCst) {
            0 => Ok(()),
            count => {
                self.open();
                Err(count)
            }
        }
    }

    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

/// The tables of two engines that have one region of 4096 bytes each, at address 0, with these keys: for tests of transfers between
/// them.
#[cfg(test)]
pub(super) fn one_region_each(
    keys: RailKeys,
) -> (Arc<Table<Arc<Users>>>, Arc<Table<super::grant::Rights>>) {
    fn table<T: Clone>(keys: RailKeys, owner: T) -> Arc<Table<T>> {
        let region = Mapped {
            address: 0,
            bytes: 4096,
            keys,
            owner,
        };
        Arc::new(Table::default().with(region).unwrap())
    }
    (
        table(keys, Arc::default()),
        table(keys, super::grant::Rights::Both),
    )
}
