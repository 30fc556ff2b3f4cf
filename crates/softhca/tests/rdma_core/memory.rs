//! Memory for the HCA.

// UNSAFETY: mmap, and writes to memory that the HCA writes too.
#![expect(unsafe_code, reason = "memory shared with the HCA")]

use std::{io, ptr};

/// Zeroed memory at a page boundary that may be registered with the HCA.
pub(crate) struct Memory {
    address: *mut u8,
    bytes: usize,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        // SAFETY: a new anonymous mapping.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Self {
            address: address.cast(),
            bytes,
        }
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.address.cast(), self.bytes) };
    }
}

impl Memory {
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(out.len() <= self.bytes() && offset <= self.bytes() - out.len());
        // SAFETY: inside the mapping (checked).
        unsafe { ptr::copy(self.address().add(offset), out.as_mut_ptr(), out.len()) };
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.bytes);
        // SAFETY: inside the mapping; no code holds a reference to it.
        unsafe {
            self.address
                .add(offset)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
}
