//! Registered memory, as transfers see it: tables that do not change, by address, of this side and of a peer; and descriptors, by
//! which a peer learns of a region.
//!
//! A registry makes a new table with each change. A transfer keeps the tables that it was planned with until it is concluded.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::error::EngineError;
use super::plan::{Region, Regions};

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 40;
/// What a descriptor begins with: its form, by number.
const MAGIC: [u8; 4] = *b"WVR\x01";

/// What a peer needs to know of a region. Programs may carry it themselves, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The engine that has the region, in the life that it has now.
    pub incarnation: u64,
    /// First byte.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// The key.
    pub rkey: u32,
}

impl Descriptor {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.rkey.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.address.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        let sum = checksum(&bytes[..32]);
        bytes[32..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// From bytes that somebody has told.
    ///
    /// # Errors
    /// [`EngineError::Descriptor`] with what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EngineError> {
        let bad = |what| EngineError::Descriptor { what };
        if bytes.len() != DESCRIPTOR_BYTES {
            return Err(bad("its length is not 40 bytes"));
        }
        if bytes[..4] != MAGIC {
            return Err(bad("it is none of this version"));
        }
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        if word(32) != checksum(&bytes[..32]) {
            return Err(bad("its checksum is wrong"));
        }
        let [a, b, c, d] = [bytes[4], bytes[5], bytes[6], bytes[7]];
        let (address, length) = (word(16), word(24));
        if length == 0 || address.checked_add(length).is_none() {
            return Err(bad("its range is empty or ends behind the last address"));
        }
        Ok(Self {
            incarnation: word(8),
            address,
            bytes: length,
            rkey: u32::from_le_bytes([a, b, c, d]),
        })
    }
}

/// FNV-1a: bytes that were damaged on their way are found, a forger is not kept out.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A region in a table.
#[derive(Clone, Debug)]
pub(super) struct Mapped<T> {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// lkey of this side's, rkey of a peer's.
    pub(super) key: u32,
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
    /// The same with one more. None: it overlaps one that is there.
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
        // SeqCst: either this sees that it is closed, or who closes sees the user.
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

    /// Takes no more users. How many there are: with any it is open again.
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
