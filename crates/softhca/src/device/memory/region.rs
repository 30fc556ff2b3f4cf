//! Memory of this process that was registered with the device. Only this module touches such memory.
//!
//! No reference to such memory is ever made: the program that registered it writes it at any time, from other threads and other languages.
//! Each access is a copy to or from private memory, or an atomic access of at most 8 bytes.
//!
//! This module cannot promise that the memory is still mapped. Registration is an `unsafe` promise by the caller (the kernel pins pages
//! instead). A program that unmaps registered memory and lets the device use it ends in a fault.
//!
//! A mapping of a file is different: anybody may truncate the file. So the bytes of messages are moved by functions that return [`Gone`] if
//! a page is gone ([`Region::fetch`], [`Region::place`], [`Region::copy_to`], [`Region::update64`]). If a region [may
//! shrink](Region::may_shrink), they let the kernel copy. Queues, doorbell records and completion entries are read and written without that
//! check ([`Region::read`], [`Region::write`] and the functions for dwords). A program makes such memory for its device alone, and both
//! sides need each word as a whole, which copies of the kernel do not give.
//!
//! Order: [`Region::write`] makes the bytes of one call visible no later than the bytes of the next call. It makes the last words of a
//! write visible after all its other bytes. 8-byte words on 8-byte boundaries are never seen half-written in small writes.
//! [`Region::place`] and [`Region::copy_to`] do the same. If the kernel copies, it keeps only the order of the last word.

// UNSAFETY: copies and atomics on addresses that registrations vouch for; mincore.
#![expect(unsafe_code, reason = "access to registered memory by address")]

use super::observer::note;
use file_memory::Gone;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Longest write that goes out in words. Of longer writes only the end does.
const WORDWISE_BYTES: usize = 64;

/// A range of registered memory. A copy of the value is valid as long as the registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    address: usize,
    bytes: usize,
    may_shrink: bool,
}

impl Region {
    /// Returns the region of a range that a program registers.
    ///
    /// `None` if it wraps around the address space.
    ///
    /// # Safety
    ///
    /// The range stays mapped and readable for as long as the region or a part of it is used. It also stays writable if this
    /// module's writing functions are used on it.
    pub(crate) unsafe fn new(address: u64, bytes: u64) -> Option<Self> {
        let address = usize::try_from(address).ok()?;
        let bytes = usize::try_from(bytes).ok()?;
        address.checked_add(bytes)?;
        Some(Self {
            address,
            bytes,
            may_shrink: false,
        })
    }

    /// Returns this region with the mark `may_shrink`: whether it lies in a file that may be truncated.
    pub(crate) fn with_may_shrink(self, may_shrink: bool) -> Self {
        Self { may_shrink, ..self }
    }

    /// Returns whether pages of the region may go while it is registered.
    pub(crate) fn may_shrink(&self) -> bool {
        self.may_shrink
    }

    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns [`Self::bytes`] as a usize, for arithmetic on indices.
    pub(crate) fn length(&self) -> usize {
        self.bytes
    }

    /// Returns the part of `bytes` bytes at `offset`, if it is inside the region.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        if end > self.bytes() {
            return None;
        }
        Some(Self {
            // PANIC: offset and bytes are at most self.bytes, which is a usize, and the end does not wrap.
            address: self.address + usize::try_from(offset).ok()?,
            bytes: usize::try_from(bytes).ok()?,
            ..*self
        })
    }

    fn pointer(&self, offset: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.address + offset)
    }

    fn check(&self, offset: usize, bytes: usize) {
        assert!(
            offset <= self.bytes && bytes <= self.bytes - offset,
            "{bytes} bytes at {offset} are outside a region of {} bytes",
            self.bytes
        );
    }

    /// Copies from `offset` to `out`.
    ///
    /// # Panics
    ///
    /// If the bytes are outside the region: a bug of the caller.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        // SAFETY: the source is inside the region (checked) and mapped (contract of `new`); the destination is private.
        unsafe { ptr::copy_nonoverlapping(self.pointer(offset), out.as_mut_ptr(), out.len()) };
        note(self.address + offset, out.len(), false);
    }

    /// Copies `data` to `offset`, in the order that the module promises.
    ///
    /// # Panics
    ///
    /// If the bytes are outside the region: a bug of the caller.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        note(self.address + offset, data.len(), true);
        // SAFETY: the destination is inside the region (checked), mapped and writable (contract of `new`).
        unsafe { write_in_order(data.as_ptr(), self.pointer(offset), data.len()) };
    }

    /// Copies the bytes of a message, all of this region, to `out`, which has the same length.
    ///
    /// # Errors
    ///
    /// A page of the region is gone.
    ///
    /// # Panics
    ///
    /// If the lengths differ: a bug of the caller.
    pub(crate) fn fetch(&self, out: &mut [u8]) -> Result<(), Gone> {
        assert!(self.bytes == out.len(), "regions of different lengths");
        if !self.may_shrink {
            self.read(0, out);
            return Ok(());
        }
        note(self.address, self.bytes, false);
        let to = out.as_mut_ptr().expose_provenance();
        // SAFETY: `out` is private; the kernel finds out what is mapped.
        unsafe { file_memory::copy(self.address, to, self.bytes) }
    }

    /// Copies `data`, the bytes of a message, to all of this region, which has the same length.
    ///
    /// # Errors
    ///
    /// A page of the region is gone.
    ///
    /// # Panics
    ///
    /// If the lengths differ: a bug of the caller.
    pub(crate) fn place(&self, data: &[u8]) -> Result<(), Gone> {
        assert!(self.bytes == data.len(), "regions of different lengths");
        if !self.may_shrink {
            self.write(0, data);
            return Ok(());
        }
        note(self.address, self.bytes, true);
        let from = data.as_ptr().expose_provenance();
        // SAFETY: what is mapped of the region may be written (contract of `new`).
        unsafe { file_memory::copy(from, self.address, self.bytes) }
    }

    /// Copies all of this region to `target`, which has the same length. The regions may overlap.
    ///
    /// # Errors
    ///
    /// A page of either region is gone.
    ///
    /// # Panics
    ///
    /// If the lengths differ: a bug of the caller.
    pub(crate) fn copy_to(&self, target: &Self) -> Result<(), Gone> {
        assert!(self.bytes == target.bytes, "regions of different lengths");
        note(self.address, self.bytes, false);
        note(target.address, target.bytes, true);
        if self.may_shrink || target.may_shrink {
            // SAFETY: what is mapped of the target may be written (contract of `new`).
            return unsafe { file_memory::copy(self.address, target.address, self.bytes) };
        }
        // SAFETY: both regions are mapped, the target is writable (contract of `new`).
        unsafe { write_in_order(self.pointer(0), target.pointer(0), self.bytes) };
        Ok(())
    }

    /// Loads a big-endian dword. Acquire: pairs with the release store or fence of the software that wrote it.
    ///
    /// # Panics
    ///
    /// If the dword is outside the region or not aligned: a bug of the caller.
    pub(crate) fn load_be32(&self, offset: usize) -> u32 {
        let word = self.atomic32(offset).load(Ordering::Acquire);
        note(self.address + offset, 4, false);
        u32::from_be(word)
    }

    /// Stores 4 bytes at once. Release: a thread that sees them sees all bytes that were written before.
    ///
    /// # Panics
    ///
    /// If the bytes are outside the region or not aligned: a bug of the caller.
    pub(crate) fn store_release(&self, offset: usize, bytes: [u8; 4]) {
        note(self.address + offset, 4, true);
        self.atomic32(offset)
            .store(u32::from_ne_bytes(bytes), Ordering::Release);
    }

    /// Replaces the 8-byte word at offset 0 atomically by what `change` makes of it. Returns the old word.
    ///
    /// In memory that may shrink, the word is fetched and then placed. This is atomic among the atomics of all HCAs of this process, which
    /// take turns, but not among other accesses. Verbs promise no more of a device that has `IBV_ATOMIC_HCA`.
    ///
    /// # Errors
    ///
    /// The page of the word is gone.
    ///
    /// # Panics
    ///
    /// If the region is no aligned word: a bug of the caller.
    pub(crate) fn update64(&self, mut change: impl FnMut(u64) -> u64) -> Result<u64, Gone> {
        self.check(0, 8);
        assert!(self.address.is_multiple_of(8), "atomic off its boundary");
        if self.may_shrink {
            let old = self.replace(|old| change(u64::from_ne_bytes(old)).to_ne_bytes())?;
            return Ok(u64::from_ne_bytes(old));
        }
        // SAFETY: inside the region, aligned (both checked), mapped and writable (contract of `new`). Other accesses of the same
        // word by other agents are atomic too, or races of their program.
        let word = unsafe { AtomicU64::from_ptr(self.pointer(0).cast()) };
        note(self.address, 8, true);
        let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
        Ok(old.unwrap_or_else(|old| old))
    }

    /// Replaces the 4-byte word at offset 0, as [`Self::update64`] does with 8 bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::update64`].
    ///
    /// # Panics
    ///
    /// If the region is no aligned dword: a bug of the caller.
    pub(crate) fn update32(&self, mut change: impl FnMut(u32) -> u32) -> Result<u32, Gone> {
        let word = self.atomic32(0);
        if self.may_shrink {
            let old = self.replace(|old| change(u32::from_ne_bytes(old)).to_ne_bytes())?;
            return Ok(u32::from_ne_bytes(old));
        }
        note(self.address, 4, true);
        let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
        Ok(old.unwrap_or_else(|old| old))
    }

    /// Replaces the first bytes by what `change` makes of them, in memory that may shrink. Returns the old bytes.
    fn replace<const N: usize>(
        &self,
        change: impl FnOnce([u8; N]) -> [u8; N],
    ) -> Result<[u8; N], Gone> {
        let word = Self { bytes: N, ..*self };
        let mut old = [0; N];
        word.fetch(&mut old)?;
        word.place(&change(old))?;
        Ok(old)
    }

    fn atomic32(&self, offset: usize) -> &AtomicU32 {
        self.check(offset, 4);
        assert!(
            (self.address + offset).is_multiple_of(4),
            "dword off its boundary"
        );
        // SAFETY: inside the region, aligned (both checked), mapped (contract of `new`).
        unsafe { AtomicU32::from_ptr(self.pointer(offset).cast()) }
    }
}

/// Copies `bytes` bytes so that the end becomes visible after the rest.
///
/// # Safety
///
/// `source` is readable and `target` writable for `bytes` bytes.
unsafe fn write_in_order(source: *const u8, target: *mut u8, bytes: usize) {
    let bulk = if bytes > WORDWISE_BYTES {
        // The end is the last 16 bytes, and the bytes before them that share an aligned word with them.
        let end = target.addr() + bytes;
        ((end - 16) & !7) - target.addr()
    } else {
        0
    };
    // A private copy of the end is made first, since the source may overlap the target.
    let mut end = [0; WORDWISE_BYTES];
    let end = &mut end[..bytes - bulk];
    // SAFETY: `bulk..bytes` is inside both ranges; at most 64 bytes (24 after a bulk copy).
    unsafe { ptr::copy_nonoverlapping(source.add(bulk), end.as_mut_ptr(), end.len()) };
    // SAFETY: `bulk` is less than `bytes`. A memmove, since a program may write to itself.
    unsafe { ptr::copy(source, target, bulk) };
    // SAFETY: as above.
    unsafe { store_words(end, target.add(bulk)) };
}

/// Stores `data` in ascending order, in aligned words of 8 or 4 bytes where `target` allows that, else in bytes. Each store is a release:
/// it is seen after all that was written before.
///
/// # Safety
///
/// `target` is writable for `data.len()` bytes.
unsafe fn store_words(data: &[u8], target: *mut u8) {
    let mut at = 0;
    while at < data.len() {
        // SAFETY: `at` is below the length.
        let place = unsafe { target.add(at) };
        if let Some(word) = data[at..].first_chunk::<8>()
            && place.addr().is_multiple_of(8)
        {
            // SAFETY: 8 bytes are left and `place` is aligned.
            let atomic = unsafe { AtomicU64::from_ptr(place.cast()) };
            atomic.store(u64::from_ne_bytes(*word), Ordering::Release);
            at += 8;
        } else if let Some(word) = data[at..].first_chunk::<4>()
            && place.addr().is_multiple_of(4)
        {
            // SAFETY: 4 bytes are left and `place` is aligned.
            let atomic = unsafe { AtomicU32::from_ptr(place.cast()) };
            atomic.store(u32::from_ne_bytes(*word), Ordering::Release);
            at += 4;
        } else {
            // SAFETY: one byte is left.
            let atomic = unsafe { AtomicU8::from_ptr(place) };
            atomic.store(data[at], Ordering::Release);
            at += 1;
        }
    }
}

/// Returns whether every page of the range is mapped now.
pub(crate) fn is_mapped(address: u64, bytes: u64) -> bool {
    const PAGE: usize = 4096;
    const CHUNK: usize = 1 << 14;
    let (Ok(first), Some(end)) = (
        usize::try_from(address).map(|address| address & !(PAGE - 1)),
        address
            .checked_add(bytes)
            .and_then(|end| usize::try_from(end).ok()),
    ) else {
        return false;
    };
    let mut resident = vec![0u8; CHUNK];
    let mut at = first;
    while at < end {
        let span = (end - at).min(CHUNK * PAGE);
        // SAFETY: mincore looks only at the page tables; `resident` has a byte for each page of the span.
        let result = unsafe {
            libc::mincore(
                ptr::with_exposed_provenance_mut(at),
                span,
                resident.as_mut_ptr().cast(),
            )
        };
        if result != 0 {
            return false;
        }
        at += span;
    }
    true
}

/// Returns a region for tests that never access it.
#[cfg(test)]
pub(crate) fn tests_region(address: u64, bytes: u64) -> Region {
    // SAFETY: the callers do not access the region.
    unsafe { Region::new(address, bytes) }.unwrap()
}

/// Returns a region over `memory`, for tests that keep `memory` alive and access it through the region only.
#[cfg(test)]
pub(crate) fn tests_memory(memory: &mut [u64]) -> Region {
    let address = memory.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: see above.
    unsafe { Region::new(address, size_of_val(memory) as u64) }.unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(memory: &mut [u64]) -> Region {
        tests_memory(memory)
    }

    #[test]
    fn writes_of_every_length_and_alignment_arrive_and_touch_nothing_else() {
        for bytes in (0..100).chain([1000, 4096]) {
            for shift in 0..9 {
                let mut memory = vec![0x5a5a_5a5a_5a5a_5a5au64; 600];
                let data: Vec<u8> = (0..bytes)
                    .map(|n| (n % 251usize).to_le_bytes()[0])
                    .collect();
                let all = region(&mut memory);
                all.write(16 + shift, &data);
                let mut back = vec![0; 4800];
                all.read(0, &mut back);
                let end = 16 + shift + bytes;
                assert_eq!(back[16 + shift..end], data, "{bytes} bytes at {shift}");
                assert!(back[..16 + shift].iter().all(|byte| *byte == 0x5a));
                assert!(back[end..].iter().all(|byte| *byte == 0x5a));
            }
        }
    }

    #[test]
    fn overlapping_copies_move_the_bytes_as_they_were() {
        for bytes in [8, 40, 64, 65, 100, 1000] {
            for (from, to) in [(0, 8), (8, 0), (3, 5), (5, 3)] {
                let mut memory = vec![0u64; 200];
                let all = region(&mut memory);
                let data: Vec<u8> = (0..bytes)
                    .map(|n| (n * 7 % 251usize).to_le_bytes()[0])
                    .collect();
                all.write(from, &data);
                let source = all.part(from as u64, bytes as u64).unwrap();
                let target = all.part(to as u64, bytes as u64).unwrap();
                source.copy_to(&target).unwrap();
                let mut back = vec![0; bytes];
                all.read(to, &mut back);
                assert_eq!(back, data, "{bytes} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn parts_end_inside_the_region() {
        let mut memory = [0u64; 2];
        let all = region(&mut memory);
        assert!(all.part(16, 0).is_some());
        assert!(all.part(8, 8).is_some());
        assert!(all.part(8, 9).is_none());
        assert!(all.part(u64::MAX, 2).is_none());
    }

    #[test]
    fn a_hole_in_the_address_space_is_not_mapped() {
        let memory = vec![0u8; 10_000];
        let address = memory.as_ptr().expose_provenance() as u64;
        assert!(is_mapped(address, 10_000));
        assert!(!is_mapped(0x1000, 1));
        assert!(!is_mapped(address, 1 << 46));
        assert!(!is_mapped(u64::MAX, 2));
    }
}
