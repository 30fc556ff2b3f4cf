//! How other processes reach the memory of a region: by a file that they map, or an allocation of a CUDA device that they open.
//!
//! A region has one of 1,024 places for the handle of its allocation. Without a place the NIC moves its bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::gpu::FileName;
#[cfg(test)]
use crate::gpu::MemoryHandle;

/// The most regions that have a handle at a time.
pub(super) const NAMES: usize = 1 << 10;
/// The number of words of one name: the handle of an allocation, and the offset of the region in it.
const NAME_WORDS: usize = IPC_BYTES / 8 + 1;
/// The number of words of all names.
pub(super) const ALL_WORDS: usize = NAMES * NAME_WORDS;
/// The number of bytes of a CUDA IPC handle.
const IPC_BYTES: usize = 64;

/// How other processes reach a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemoryName {
    /// A file, all of which they map.
    File(FileName),
    /// An allocation of a CUDA device, which they open.
    Cuda(IpcName),
}

/// A place in an allocation of a CUDA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpcName {
    handle: [u8; IPC_BYTES],
    /// Offset of the region in the allocation.
    offset: u64,
    /// The number of the allocation, which is unique in its process.
    allocation: u64,
}

impl IpcName {
    /// Returns the name. Returns None if the handle has another length.
    pub(crate) fn new(handle: &[u8], offset: u64, allocation: u64) -> Option<Self> {
        Some(Self {
            handle: handle.try_into().ok()?,
            offset,
            allocation,
        })
    }

    pub(super) fn handle(&self) -> &[u8] {
        &self.handle
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn allocation(&self) -> u64 {
        self.allocation
    }

    /// Writes handle and offset into the name at `place` of `words`.
    pub(super) fn put(&self, words: &[AtomicU64], place: usize) {
        let parts = self.handle.chunks_exact(8).map(|part| {
            let mut word = [0; 8];
            word.copy_from_slice(part);
            u64::from_le_bytes(word)
        });
        let all = parts.chain([self.offset]);
        for (word, value) in words[place * NAME_WORDS..].iter().zip(all) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the name at `place` of `words`, if `words` have that place.
    pub(super) fn take(words: &[AtomicU64], place: u64, allocation: u64) -> Option<Self> {
        let place = usize::try_from(place).ok().filter(|it| *it < NAMES)?;
        let own = words.get(place * NAME_WORDS..(place + 1) * NAME_WORDS)?;
        let (parts, offset) = own.split_at(NAME_WORDS - 1);
        let mut handle = [0; IPC_BYTES];
        for (to, word) in handle.chunks_exact_mut(8).zip(parts) {
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        Some(Self {
            handle,
            offset: offset.first()?.load(Ordering::Relaxed),
            allocation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_was_put_and_places_beyond_the_last_have_none() {
        let words: Vec<AtomicU64> = (0..ALL_WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut random = fastrand::Rng::with_seed(7);
        let mut names = Vec::new();
        for _ in 0..NAMES {
            let mut handle = [0; IPC_BYTES];
            random.fill(&mut handle);
            let name = IpcName::new(&handle, random.u64(..), random.u64(..)).unwrap();
            assert_eq!(
                MemoryHandle::of_ipc(8, name.handle()).ipc().unwrap().0,
                handle
            );
            name.put(&words, names.len());
            names.push(name);
        }
        for (place, name) in (0..).zip(&names) {
            assert_eq!(IpcName::take(&words, place, name.allocation()), Some(*name));
        }
        assert_eq!(IpcName::take(&words, NAMES as u64, 0), None);
        assert_eq!(IpcName::take(&words, u64::MAX, 0), None);
        assert_eq!(IpcName::take(&words[1..], NAMES as u64 - 1, 0), None);
        for length in [0, 63, 65] {
            assert_eq!(IpcName::new(&vec![0; length], 0, 0), None);
        }
    }
}
