//! Registered memory.

use std::ffi::c_void;
use std::ptr::null_mut;

use libfabric_abi::bindings::*;
use libfabric_abi::calls;

use super::{Fabric, Remote};

/// Bytes with a registration. Dropping closes it.
pub(crate) struct Memory<'a> {
    fabric: &'a Fabric,
    /// Words, so that it is aligned.
    words: Box<[u64]>,
    bytes: usize,
    mr: *mut fid_mr,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(fabric: &'a Fabric, bytes: usize) -> Self {
        let all = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        Self::with_access(fabric, bytes, all)
    }

    pub(crate) fn with_access(fabric: &'a Fabric, bytes: usize, access: u64) -> Self {
        let mut words = vec![0u64; bytes.div_ceil(8).max(1)].into_boxed_slice();
        let mut mr = null_mut();
        let key = fabric.next_key();
        let first: *mut c_void = words.as_mut_ptr().cast();
        first.expose_provenance();
        // SAFETY: memory that lives as long as the registration.
        let registered = unsafe {
            calls::fi_mr_reg(
                fabric.domain,
                first,
                bytes,
                access,
                0,
                key,
                0,
                &raw mut mr,
                null_mut(),
            )
        };
        assert_eq!(registered, 0, "fi_mr_reg");
        Self {
            fabric,
            words,
            bytes,
            mr,
        }
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.words.as_ptr().cast_mut().cast()
    }

    pub(crate) fn at(&self, offset: usize) -> *mut c_void {
        self.address().cast::<u8>().wrapping_add(offset).cast()
    }

    pub(crate) fn descriptor(&self) -> *mut c_void {
        // SAFETY: open until this is dropped.
        unsafe { calls::fi_mr_desc(self.mr) }
    }

    pub(crate) fn key(&self) -> u64 {
        // SAFETY: as above.
        unsafe { calls::fi_mr_key(self.mr) }
    }

    pub(crate) fn fid(&self) -> *mut fid {
        // SAFETY: as above.
        unsafe { &raw mut (*self.mr).fid }
    }

    /// What a peer names for a place in it.
    pub(crate) fn remote(&self, offset: usize) -> Remote {
        let is_virtual = self.fabric.has_mr_mode(FI_MR_VIRT_ADDR);
        let start = if is_virtual {
            self.address().expose_provenance() as u64
        } else {
            0
        };
        Remote {
            address: start + offset as u64,
            key: self.key(),
        }
    }

    /// What is in it now. Others write it by address, so each byte is read as it is.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let first = self.address().cast::<u8>();
        // SAFETY: inside.
        (0..self.bytes)
            .map(|at| unsafe { first.add(at).read_volatile() })
            .collect()
    }

    pub(crate) fn set(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.bytes);
        // SAFETY: inside, and nothing of the tests refers to it.
        unsafe { bytes.as_ptr().copy_to(self.address().cast(), bytes.len()) };
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: opened here, and closed once.
        let closed = unsafe { calls::fi_close(self.fid()) };
        if !std::thread::panicking() {
            assert_eq!(closed, 0, "a registration closes");
        }
    }
}
