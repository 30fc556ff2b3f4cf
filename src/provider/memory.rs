//! Host memory that HCAs read and write for as long as this process holds it.
//!
//! Memory of a program may map a file that is truncated later. Module `files` lets the kernel copy such memory.

// UNSAFETY: maps memory, takes that of others, and copies from and to memory that HCAs change at any time.
#![expect(unsafe_code, reason = "memory shared with HCAs")]

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use file_memory::Mappings;

use super::chain::LocalRange;
use super::error::ProviderError;
use super::files::{self, FileRange};
use crate::gpu::{FileName, Mapping, SharedFile};

/// The largest number of bytes of one memory: half of the address space.
const MOST: u64 = 1 << 46;

/// Memory that HCAs read and write: pages of its own, which are zero at first, or memory of a program. Peers may write it at any time. So
/// no Rust reference into it exists, and Rust code only copies from and to it.
pub struct HostMemory {
    first: NonNull<u8>,
    bytes: usize,
    owner: Owner,
    /// The entry in the list of memory that may lose pages, if this memory maps a file that may become shorter.
    file_range: Option<FileRange>,
}

/// What the pages belong to.
enum Owner {
    /// Private pages, which are unmapped when the memory is dropped.
    Own,
    /// Pages of a file that other processes of this machine map too.
    Shared(
        SharedFile,
        #[expect(dead_code, reason = "held for its drop")] Mapping,
    ),
    /// Memory of a program or of another `HostMemory`, with what keeps it, which is dropped last.
    Other(#[expect(dead_code, reason = "held for its drop")] Option<Box<dyn Any + Send + Sync>>),
}

// SAFETY: the memory belongs to this object, or stays as `over` was promised, until it is dropped; all access is by atomics.
unsafe impl Send for HostMemory {}
// SAFETY: as for Send.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Returns `bytes` bytes of zeros. The system gives them pages when they are first touched.
    ///
    /// # Errors
    /// [`ProviderError::Memory`]: `bytes` is 0 or above the limit; [`ProviderError::System`]: the system has no memory left.
    pub fn new(bytes: u64) -> Result<Self, ProviderError> {
        let length = usize::try_from(bytes).ok();
        let length = length.filter(|_| (1..=MOST).contains(&bytes));
        let length = length.ok_or(ProviderError::Memory { bytes, most: MOST })?;
        // SAFETY: a new anonymous mapping; no address is asked for.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let failed = || ProviderError::system("mmap", std::io::Error::last_os_error());
        if mapped == libc::MAP_FAILED {
            return Err(failed());
        }
        // Peers use its address.
        mapped.expose_provenance();
        let first = NonNull::new(mapped.cast::<u8>()).ok_or_else(failed)?;
        Ok(Self {
            first,
            bytes: length,
            owner: Owner::Own,
            file_range: None,
        })
    }

    /// As `new`, in pages that engines of other processes of this machine and user may map. Those engines then copy at the speed of memory,
    /// without a system call.
    ///
    /// # Errors
    /// As [`HostMemory::new`].
    pub fn shared(bytes: u64) -> Result<Self, ProviderError> {
        let length = usize::try_from(bytes).ok();
        let length = length.filter(|_| (1..=MOST).contains(&bytes));
        let length = length.ok_or(ProviderError::Memory { bytes, most: MOST })?;
        let refused = |error| ProviderError::system("memfd_create", error);
        let file = SharedFile::new(length).map_err(refused)?;
        let mapping = Mapping::new(file.fd(), length);
        let mapping = mapping.map_err(|error| ProviderError::system("mmap", error))?;
        let first = mapping.start();
        first.as_ptr().expose_provenance();
        Ok(Self {
            first,
            bytes: length,
            owner: Owner::Shared(file, mapping),
            file_range: None,
        })
    }

    /// Returns the `bytes` bytes at `offset` of `whole` as memory of their own, which keeps `whole`.
    ///
    /// # Errors
    /// [`ProviderError::Memory`]: `bytes` is 0; [`ProviderError::Range`]: the bytes are not all inside `whole`.
    pub fn part(whole: &Arc<Self>, offset: u64, bytes: u64) -> Result<Self, ProviderError> {
        let length = usize::try_from(bytes).ok().filter(|length| *length > 0);
        let length = length.ok_or(ProviderError::Memory { bytes, most: MOST })?;
        let place = whole.place(offset, length)?;
        // SAFETY: `place` is inside the memory, which lives as long as the owner below.
        let first = unsafe { whole.first.add(place) };
        Ok(Self {
            first,
            bytes: length,
            owner: Owner::Other(Some(Box::new(Arc::clone(whole)))),
            file_range: whole
                .file_range
                .as_ref()
                .map(|_| FileRange::new(whole.address() + offset, bytes)),
        })
    }

    /// Returns the name of the file that other processes map. Returns None for memory that is not shared.
    pub(crate) fn file(&self) -> Option<FileName> {
        match &self.owner {
            Owner::Shared(file, _) => Some(file.name()),
            Owner::Own | Owner::Other(_) => None,
        }
    }

    /// Returns the `bytes` bytes at `first`, which belong to a program. `owner` may be what keeps them: it is dropped after everything that
    /// uses them.
    ///
    /// The bytes may map a file. If the file is truncated, pages of the mapping are gone. Copies of the bytes by the processor then fail,
    /// with EFAULT or a protection error as the cause, and the process goes on. This holds for lanes within this machine, the software HCA,
    /// [`HostMemory::read`] and [`HostMemory::write`]. The kernel makes these copies, at one system call each. `over` reads once how the
    /// bytes are mapped. The caller bears the other risks:
    ///
    /// - A hardware HCA has pinned the pages. It goes on using them, and what it writes never shows in the file.
    /// - The caller's own loads and stores end the process with SIGBUS, and so do those of a driver that copies for a GPU.
    /// - A sandbox may forbid `process_vm_writev` on the own process. Copies then end the process where a page is gone.
    ///
    /// A file that cannot shrink has none of these risks: a memfd with `F_SEAL_SHRINK`, or [`HostMemory::shared`].
    ///
    /// # Errors
    /// [`ProviderError::Memory`]: `bytes` is 0 or above the limit, or the range ends beyond the last address.
    ///
    /// # Safety
    /// The bytes stay readable and writable memory until the result is dropped. Before that every region that was registered of
    /// it has been taken away, or its engine closed. Meanwhile no Rust reference to them is used but to atomics, since HCAs read
    /// and write them.
    pub unsafe fn over(
        first: *mut u8,
        bytes: u64,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, ProviderError> {
        // SAFETY: the caller's promise.
        unsafe { Self::over_mapped(&Mappings::now(), first, bytes, owner) }
    }

    /// As [`HostMemory::over`], with mappings that the caller has read once for many memories.
    ///
    /// # Errors
    /// As [`HostMemory::over`].
    ///
    /// # Safety
    /// As [`HostMemory::over`]. The memory has not been mapped since the mappings were read.
    pub unsafe fn over_mapped(
        mappings: &Mappings,
        first: *mut u8,
        bytes: u64,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, ProviderError> {
        let refused = || ProviderError::Memory { bytes, most: MOST };
        let length = usize::try_from(bytes)
            .ok()
            .filter(|_| (1..=MOST).contains(&bytes));
        let length = length.ok_or_else(refused)?;
        let address = first.expose_provenance();
        let first = NonNull::new(first).filter(|_| address.checked_add(length).is_some());
        let first = first.ok_or_else(refused)?;
        Ok(Self {
            first,
            bytes: length,
            owner: Owner::Other(owner),
            file_range: FileRange::of(mappings, address as u64, bytes),
        })
    }

    /// Returns the address of the first byte, as requests give it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.first.as_ptr().addr() as u64
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns the NUMA node of the first page, if that page is in memory and the system says the node.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        let (mut page, mut node) = (self.first.as_ptr().cast::<libc::c_void>(), -1i32);
        let nowhere = std::ptr::null::<libc::c_int>();
        // SAFETY: one address and room for one node; without nodes nothing is moved.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                1usize,
                &raw mut page,
                nowhere,
                &raw mut node,
                0,
            )
        };
        (asked == 0).then_some(node)?.try_into().ok()
    }

    /// Copies `from` into the memory at `offset`.
    ///
    /// # Errors
    /// [`ProviderError::Range`]; [`ProviderError::Gone`], after which some bytes may have been copied.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), ProviderError> {
        let place = self.place(offset, from.len())?;
        if self.file_range.is_some() {
            let source = from.as_ptr().expose_provenance() as u64;
            // SAFETY: `place` is inside the memory, which is mapped as `over` was promised, but for pages of a file; `from` is another's.
            let copied = unsafe { files::copy(source, self.address() + offset, from.len() as u64) };
            return copied.map_err(|_| self.gone(offset, from.len()));
        }
        let (head, words, tail) = self.split(place, from.len());
        let (first, rest) = from.split_at(head);
        let (middle, last) = rest.split_at(8 * words);
        for (nth, byte) in first.iter().enumerate() {
            self.byte(place + nth).store(*byte, Ordering::Relaxed);
        }
        for (nth, word) in middle.chunks_exact(8).enumerate() {
            let mut value = [0; 8];
            value.copy_from_slice(word);
            let at = place + head + 8 * nth;
            self.word(at)
                .store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        debug_assert_eq!(last.len(), tail);
        for (nth, byte) in last.iter().enumerate() {
            self.byte(place + head + 8 * words + nth)
                .store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies the bytes at `offset` of the memory to `to`.
    ///
    /// # Errors
    /// [`ProviderError::Range`]; [`ProviderError::Gone`].
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), ProviderError> {
        let place = self.place(offset, to.len())?;
        if self.file_range.is_some() {
            let target = to.as_mut_ptr().expose_provenance() as u64;
            // SAFETY: as in `write`; `to` is private.
            let copied = unsafe { files::copy(self.address() + offset, target, to.len() as u64) };
            return copied.map_err(|_| self.gone(offset, to.len()));
        }
        let (head, words, _) = self.split(place, to.len());
        let (first, rest) = to.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(8 * words);
        for (nth, byte) in first.iter_mut().enumerate() {
            *byte = self.byte(place + nth).load(Ordering::Relaxed);
        }
        for (nth, word) in middle.chunks_exact_mut(8).enumerate() {
            let value = self.word(place + head + 8 * nth).load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
        }
        for (nth, byte) in last.iter_mut().enumerate() {
            *byte = self
                .byte(place + head + 8 * words + nth)
                .load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the error that a page of these bytes is gone.
    fn gone(&self, offset: u64, bytes: usize) -> ProviderError {
        ProviderError::Gone {
            address: self.address() + offset,
            bytes: bytes as u64,
        }
    }

    /// Stores a word at `offset`, after all that this thread has stored or seen. Does nothing if it is not aligned or inside, or its page
    /// is gone.
    pub(crate) fn store(&self, offset: u64, value: u64) {
        if self.file_range.is_some() {
            let _ = self.write(offset, &value.to_ne_bytes());
            return;
        }
        let place = self.place(offset, 8).ok();
        let is_aligned = |place: &usize| (self.first.as_ptr().addr() + place).is_multiple_of(8);
        if let Some(place) = place.filter(is_aligned) {
            self.word(place).store(value, Ordering::Release);
        }
    }

    /// Returns `offset` as an index if the `bytes` bytes there lie inside.
    fn place(&self, offset: u64, bytes: usize) -> Result<usize, ProviderError> {
        let place = usize::try_from(offset).ok();
        let end = place.and_then(|place| place.checked_add(bytes));
        match (place, end) {
            (Some(place), Some(end)) if end <= self.bytes => Ok(place),
            _ => Err(ProviderError::Range {
                offset,
                bytes: bytes as u64,
                has: self.bytes as u64,
            }),
        }
    }

    /// Returns the byte at `place`, which is inside the memory.
    fn byte(&self, place: usize) -> &AtomicU8 {
        debug_assert!(place < self.bytes, "byte {place} of {}", self.bytes);
        // SAFETY: inside the memory, as `place` has checked, which lives as long as `self`; all access is atomic or from outside.
        unsafe { AtomicU8::from_ptr(self.first.as_ptr().add(place)) }
    }

    /// Returns the aligned word at `place`, which is inside the memory.
    fn word(&self, place: usize) -> &AtomicU64 {
        debug_assert!(place + 8 <= self.bytes);
        // SAFETY: as in `byte`; `split` gives places of whole aligned words.
        unsafe { AtomicU64::from_ptr(self.first.as_ptr().add(place).cast()) }
    }

    /// Splits the `bytes` bytes at `place`: returns the number of bytes before the first aligned word, of whole words, and of bytes after
    /// them.
    fn split(&self, place: usize, bytes: usize) -> (usize, usize, usize) {
        let odd = (self.first.as_ptr().addr() % 8 + place) % 8;
        let head = ((8 - odd) % 8).min(bytes);
        let words = (bytes - head) / 8;
        (head, words, bytes - head - 8 * words)
    }
}

/// Copies the bytes of a local range, as this thread sees them now. `into` has as many bytes.
pub(super) fn copy_out(range: &LocalRange, into: &mut [u8]) {
    // The range is memory of this process, so the address fits.
    let address = usize::try_from(range.address).unwrap_or(usize::MAX);
    let first = std::ptr::with_exposed_provenance_mut::<u8>(address);
    debug_assert_eq!(range.bytes as usize, into.len());
    for (nth, byte) in into.iter_mut().enumerate().take(range.bytes as usize) {
        // SAFETY: the range lies in a registered region of host memory, which stays registered while a transfer uses it. All
        // access to it is atomic or from outside.
        *byte = unsafe { AtomicU8::from_ptr(first.add(nth)) }.load(Ordering::Relaxed);
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if !matches!(self.owner, Owner::Own) {
            return;
        }
        // SAFETY: the mapping that `new` has made; registrations of it hold this object, so none is left.
        if unsafe { libc::munmap(self.first.as_ptr().cast(), self.bytes) } != 0 {
            tracing::error!("leaked: munmap: {}", std::io::Error::last_os_error());
        }
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HostMemory({} bytes at {:#x})",
            self.bytes,
            self.address()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_reach_every_byte_at_any_offset_and_no_other() {
        copy_all(&HostMemory::new(64).unwrap());
        let shared = HostMemory::shared(64).unwrap();
        copy_all(&shared);
        assert!(shared.file().is_some());
        // Memory of a program, at every alignment.
        let mut bytes = [0u64; 9];
        for skipped in 0..8 {
            let first = bytes.as_mut_ptr().cast::<u8>().wrapping_add(skipped);
            // SAFETY: it lies in `bytes`, which nothing else uses until it is dropped.
            let memory = unsafe { HostMemory::over(first, 64, None) }.unwrap();
            copy_all(&memory);
        }
    }

    fn copy_all(memory: &HostMemory) {
        for offset in 0..16u64 {
            for bytes in 0..=40usize {
                memory.write(0, &[0xee; 64]).unwrap();
                let wanted: Vec<u8> = (0..bytes).map(|nth| u8::try_from(nth).unwrap()).collect();
                memory.write(offset, &wanted).unwrap();
                let (mut all, mut part) = ([0; 64], vec![0; bytes]);
                memory.read(0, &mut all).unwrap();
                memory.read(offset, &mut part).unwrap();
                let offset = usize::try_from(offset).unwrap();
                let mut expected = [0xee; 64];
                expected[offset..offset + bytes].copy_from_slice(&wanted);
                assert_eq!((all, part), (expected, wanted), "{bytes} at {offset}");
            }
        }
    }

    #[test]
    fn what_a_memory_does_not_have_is_refused() {
        let memory = HostMemory::new(64).unwrap();
        for (offset, bytes) in [(64, 1), (0, 65), (u64::MAX, 1), (u64::MAX, 0)] {
            let refused = memory.write(offset, &vec![0; bytes]).unwrap_err();
            assert!(
                matches!(refused, ProviderError::Range { has: 64, .. }),
                "{refused}"
            );
            assert!(memory.read(offset, &mut vec![0; bytes]).is_err());
        }
        for bytes in [0, MOST + 1, u64::MAX] {
            for refused in [HostMemory::new(bytes), HostMemory::shared(bytes)] {
                assert!(
                    matches!(refused, Err(ProviderError::Memory { .. })),
                    "{refused:?}"
                );
            }
            // SAFETY: a length that none has, of which nothing is made.
            let refused = unsafe { HostMemory::over(std::ptr::dangling_mut(), bytes, None) };
            assert!(
                matches!(refused, Err(ProviderError::Memory { .. })),
                "{refused:?}"
            );
        }
        for (first, bytes) in [(0, 1), (usize::MAX, 1), (usize::MAX - 7, 8)] {
            let first = std::ptr::without_provenance_mut(first);
            // SAFETY: a range that none is, of which nothing is made.
            let refused = unsafe { HostMemory::over(first, bytes, None) };
            assert!(
                matches!(refused, Err(ProviderError::Memory { .. })),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn what_keeps_the_memory_of_a_program_goes_with_the_last_that_uses_it() {
        let (kept, mut bytes) = (Arc::new(()), [0u8; 8]);
        let owner = Box::new(Arc::clone(&kept));
        // SAFETY: `bytes` lives longer, and nothing else uses it.
        let memory = unsafe { HostMemory::over(bytes.as_mut_ptr(), 8, Some(owner)) }.unwrap();
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(memory);
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
