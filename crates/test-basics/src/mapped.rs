//! A file that this process has mapped, and that a test can make shorter.

// UNSAFETY: maps files.
#![expect(unsafe_code, reason = "mmap")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;

/// A mapping of a whole file, for reads and writes. It lasts until this is dropped.
#[derive(Debug)]
pub struct MappedFile {
    /// The file. Its length may be set to less than what is mapped.
    pub file: File,
    first: *mut u8,
    bytes: usize,
}

// SAFETY: the address is used to unmap alone; who uses the memory promises that all is well.
unsafe impl Send for MappedFile {}
// SAFETY: as for Send.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps the whole of `file`. `how` is `MAP_SHARED` or `MAP_PRIVATE`.
    pub fn new(file: File, how: i32) -> Self {
        let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let first = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, how, file.as_raw_fd(), 0) };
        assert_ne!(first, libc::MAP_FAILED);
        Self {
            file,
            first: first.cast(),
            bytes,
        }
    }

    /// Returns the address of the first byte.
    pub fn first(&self) -> *mut u8 {
        self.first
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: its own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.first.cast(), self.bytes) };
    }
}
