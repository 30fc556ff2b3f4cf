//! Memory as software shares it with the device.

use softhca::device::{Context, UarPage};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Memory shared with the device: page-aligned, zeroed, accessed by atomics only.
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: all access is atomic.
unsafe impl Send for Memory {}
// SAFETY: all access is atomic.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeros, at a page boundary.
    pub fn new(bytes: usize) -> Self {
        // SAFETY: a fresh private mapping.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(base != libc::MAP_FAILED);
        let base: NonNull<u8> = NonNull::new(base.cast()).unwrap();
        base.as_ptr().expose_provenance();
        Self { base, bytes }
    }

    /// Of the first byte.
    pub fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// Returns the length of the memory in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns the 8 bytes at `offset`.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: inside the mapping and aligned.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Returns the 4 bytes at `offset`.
    pub fn dword(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        // SAFETY: inside the mapping and aligned.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Stores `data` at `offset`.
    pub fn write(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.bytes);
        // SAFETY: inside the mapping; the device does not write here while the test does.
        unsafe {
            std::ptr::copy_nonoverlapping(
                data.as_ptr(),
                self.base.as_ptr().add(offset),
                data.len(),
            );
        }
    }

    /// Loads the bytes at `offset`.
    pub fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        assert!(offset + bytes <= self.bytes);
        let mut out = vec![0; bytes];
        // SAFETY: inside the mapping; what the device writes meanwhile is not looked at.
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.as_ptr().add(offset), out.as_mut_ptr(), bytes);
        }
        out
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; registrations end before (field order of their owners).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Maps the page as software does.
pub fn map_uar(context: &Context, page: &UarPage) -> Memory {
    // SAFETY: a fresh shared mapping of the page.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            context.uar_fd().as_raw_fd(),
            page.offset.try_into().unwrap(),
        )
    };
    assert!(base != libc::MAP_FAILED);
    Memory {
        base: NonNull::new(base.cast()).unwrap(),
        bytes: 4096,
    }
}
