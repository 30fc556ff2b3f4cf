//! Memory of a program that maps files which may become shorter. A copy of such memory ends with an error where a page is gone.
//!
//! A lane knows its local ranges only by their addresses. So one list holds all such memory of the process. Nearly every process has none,
//! and finds that out by reading one word.

// UNSAFETY: copies between addresses.
#![expect(unsafe_code, reason = "copies of memory")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use file_memory::{Gone, Mappings};

/// The number of ranges in `RANGES`.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static RANGES: RwLock<Ranges> = RwLock::new(Ranges::new());

/// A range of memory that may lose pages. It is listed until this is dropped.
#[derive(Debug)]
pub(super) struct FileRange(Key);

/// The address of a range's first byte, and a number: several ranges may begin at one address.
type Key = (u64, u64);

#[derive(Debug)]
struct Ranges {
    /// The end of each range.
    ends: BTreeMap<Key, u64>,
    /// The number of bytes of the longest range that was ever listed.
    longest: u64,
    next: u64,
}

impl Ranges {
    const fn new() -> Self {
        Self {
            ends: BTreeMap::new(),
            longest: 0,
            next: 0,
        }
    }

    fn insert(&mut self, address: u64, bytes: u64) -> Key {
        let key = (address, self.next);
        self.next += 1;
        self.ends.insert(key, address + bytes);
        self.longest = self.longest.max(bytes);
        key
    }

    /// Returns whether a listed range contains one of these `bytes` bytes at `address`.
    fn meets(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let before = self.ends.range(..(end, 0)).rev();
        before
            .take_while(|((first, _), _)| first.saturating_add(self.longest) > address)
            .any(|(_, end)| *end > address)
    }
}

impl FileRange {
    /// Lists this memory if it maps a file that may become shorter. Returns None if it does not.
    pub(super) fn of(mappings: &Mappings, address: u64, bytes: u64) -> Option<Self> {
        mappings
            .may_shrink(address, bytes)
            .then(|| Self::new(address, bytes))
    }

    /// Lists this memory, of which the caller knows that it maps a file that may become shorter.
    pub(super) fn new(address: u64, bytes: u64) -> Self {
        let mut ranges = RANGES.write().unwrap_or_else(PoisonError::into_inner);
        let key = ranges.insert(address, bytes);
        COUNT.store(ranges.ends.len(), Ordering::Relaxed);
        Self(key)
    }
}

impl Drop for FileRange {
    fn drop(&mut self) {
        let mut ranges = RANGES.write().unwrap_or_else(PoisonError::into_inner);
        ranges.ends.remove(&self.0);
        COUNT.store(ranges.ends.len(), Ordering::Relaxed);
    }
}

/// Returns whether one of these bytes may be gone. A thread that copies learns of the memory only after its range is listed.
pub(super) fn may_be_gone(address: u64, bytes: u64) -> bool {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let ranges = RANGES.read().unwrap_or_else(PoisonError::into_inner);
    ranges.meets(address, bytes)
}

/// Copies `bytes` bytes from address `from` to address `to`. The two ranges may overlap.
///
/// # Errors
/// A page is gone.
///
/// # Safety
/// Both ranges are mapped, but for pages of files that were truncated, and the target is writable. No Rust reference to them exists.
pub(super) unsafe fn copy(from: u64, to: u64, bytes: u64) -> Result<(), Gone> {
    // On this machine addresses have 64 bits.
    let [source, target, length] =
        [from, to, bytes].map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    if may_be_gone(from, bytes) || may_be_gone(to, bytes) {
        // SAFETY: the caller's promise.
        return unsafe { file_memory::copy(source, target, length) };
    }
    let from = std::ptr::with_exposed_provenance(source);
    // SAFETY: the caller's promise; no page of a file is among them.
    unsafe { libc::memmove(std::ptr::with_exposed_provenance_mut(target), from, length) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_met_by_whatever_has_a_byte_of_it_and_by_nothing_else() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..200 {
            let mut ranges = Ranges::new();
            let mut all = Vec::new();
            for _ in 0..random.usize(0..8) {
                let (address, bytes) = (random.u64(1..100), random.u64(1..30));
                all.push((ranges.insert(address, bytes), address, bytes));
            }
            if !all.is_empty() && random.bool() {
                let (key, ..) = all.swap_remove(random.usize(..all.len()));
                ranges.ends.remove(&key);
            }
            for _ in 0..50 {
                let (at, count) = (random.u64(0..140), random.u64(1..20));
                let expected = all
                    .iter()
                    .any(|(_, address, bytes)| *address < at + count && at < address + bytes);
                let found = ranges.meets(at, count);
                assert_eq!(
                    found, expected,
                    "seed {seed} round {round}: {count} at {at} of {all:?}"
                );
            }
        }
    }
}
