//! The L1 of one block: bytes that a weak load may still find there after memory has changed.
//!
//! A load fills the 32-byte sector that it touches. Stores and atomics of the block itself go through the L1. An acquire fence of scope gpu
//! or sys drops all sectors, a barrier of the block drops none, and the oldest sector is dropped when the L1 is full. If a weak load would
//! find other bytes in the L1 than memory holds now, that is a finding: a GPU may return either.

// UNSAFETY: looks at the memory that a kernel is about to load.
#![expect(unsafe_code, reason = "compares with memory, by address")]

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::shadow::Mix;

const SECTOR: u64 = 32;
/// The number of sectors of 128 KiB.
const SECTORS: usize = 4096;

#[derive(Debug)]
struct Sector {
    words: [u64; 4],
    /// The bytes that are as they were loaded: the block has not stored to them since.
    valid: u32,
    loaded_at: u64,
}

/// The L1 of one block, see the module.
#[derive(Debug, Default)]
pub(super) struct L1 {
    sectors: HashMap<u64, Sector, BuildHasherDefault<Mix>>,
    order: VecDeque<u64>,
}

/// Returns a mask of the bytes of `addr..addr + bytes` in sector `number`.
fn mask(number: u64, addr: u64, bytes: u64) -> u32 {
    let start = number * SECTOR;
    (0..32u32)
        .filter(|byte| (addr..addr + bytes).contains(&(start + u64::from(*byte))))
        .fold(0, |mask, byte| mask | 1 << byte)
}

fn numbers(addr: u64, bytes: u64) -> std::ops::Range<u64> {
    addr / SECTOR..(addr + bytes).div_ceil(SECTOR)
}

impl L1 {
    /// Notes a weak load, before it happens. If it would find old bytes, returns the `pc` at which their sector was loaded.
    pub(super) fn load(&mut self, addr: u64, bytes: u64, pc: u64) -> Option<u64> {
        let mut stale = None;
        for number in numbers(addr, bytes) {
            let now = memory(number);
            if let Some(sector) = self.sectors.get(&number) {
                let looked_at = mask(number, addr, bytes) & sector.valid;
                if differing(&sector.words, &now) & looked_at == 0 {
                    continue;
                }
                stale = stale.or(Some(sector.loaded_at));
            } else {
                if self.order.len() == SECTORS
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.sectors.remove(&oldest);
                }
                self.order.push_back(number);
            }
            let sector = Sector {
                words: now,
                valid: u32::MAX,
                loaded_at: pc,
            };
            self.sectors.insert(number, sector);
        }
        stale
    }

    /// Notes a store of the block.
    pub(super) fn store(&mut self, addr: u64, bytes: u64) {
        for number in numbers(addr, bytes) {
            if let Some(sector) = self.sectors.get_mut(&number) {
                sector.valid &= !mask(number, addr, bytes);
            }
        }
    }
}

/// Returns the bytes of the sector in memory.
fn memory(number: u64) -> [u64; 4] {
    let start = number * SECTOR;
    [0, 8, 16, 24].map(|offset| {
        let address = usize::try_from(start + offset).unwrap_or(0);
        let word = std::ptr::with_exposed_provenance_mut::<u64>(address);
        // SAFETY: a kernel loads from this sector next, and a sector lies in one page, so the word is mapped; it is aligned. Atomic,
        // since devices write it meanwhile.
        unsafe { AtomicU64::from_ptr(word) }.load(Relaxed)
    })
}

/// Returns a mask of the bytes in which two sectors differ.
fn differing(a: &[u64; 4], b: &[u64; 4]) -> u32 {
    let bytes = a.iter().zip(b).flat_map(|(a, b)| (a ^ b).to_le_bytes());
    bytes
        .enumerate()
        .fold(0, |mask, (at, byte)| mask | u32::from(byte != 0) << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(32))]
    struct Memory([AtomicU64; 8]);

    #[test]
    fn changed_bytes_stay_stale_until_their_sector_goes_except_own_stores() {
        let memory = Memory([const { AtomicU64::new(0) }; 8]);
        let at = memory.0.as_ptr().expose_provenance() as u64;
        let mut l1 = L1::default();
        assert_eq!(l1.load(at, 8, 1), None);
        memory.0[3].store(5, Relaxed);
        assert_eq!(l1.load(at, 8, 2), None, "another word of the sector");
        memory.0[0].store(7, Relaxed);
        assert_eq!(l1.load(at + 1, 7, 3), None, "only byte 0 has changed");
        assert_eq!(l1.load(at, 1, 3), Some(1));
        assert_eq!(l1.load(at, 32, 4), None, "reported once, then loaded again");
        l1.store(at + 8, 8);
        memory.0[1].store(9, Relaxed);
        assert_eq!(l1.load(at + 8, 8, 5), None, "the block's own store");
        assert_eq!(l1.load(at + 32, 8, 6), None);
        memory.0[4].store(1, Relaxed);
        let mut fresh = L1::default();
        assert_eq!(fresh.load(at + 32, 8, 7), None);
        assert_eq!(l1.load(at + 24, 16, 8), Some(6));
    }
}
