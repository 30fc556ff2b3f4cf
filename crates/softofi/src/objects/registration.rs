//! Registered memory, and what `FI_MR_DMABUF` was given.

// UNSAFETY: a DMA-BUF is mapped.
#![expect(unsafe_code, reason = "mmap and munmap")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use libfabric_abi::errors::FI_EINVAL;
use libfabric_abi::later::fi_mr_dmabuf;

use super::{Domain, Users};
use crate::rules::Rule;

/// What is registered.
pub(crate) struct Registration {
    pub(crate) domain: Arc<Domain>,
    pub(crate) key: u32,
    pub(crate) access: u64,
    /// What peers and descriptors call its first byte.
    pub(crate) start: u64,
    pub(crate) bytes: usize,
    /// Where that is in this process; not the same for a DMA-BUF.
    base: usize,
    /// Operations of this process.
    pub(crate) users: Users,
    is_open: AtomicBool,
    /// Holds the mapping of a DMA-BUF.
    _mapping: Option<Mapping>,
}

impl Registration {
    /// Memory by address.
    pub(crate) fn of_memory(
        domain: Arc<Domain>,
        key: u32,
        access: u64,
        start: usize,
        bytes: usize,
    ) -> Self {
        Self {
            domain,
            key,
            access,
            start: start as u64,
            bytes,
            base: start,
            users: Users::default(),
            is_open: AtomicBool::new(true),
            _mapping: None,
        }
    }

    /// Memory of a file.
    pub(crate) fn of_dmabuf(
        domain: Arc<Domain>,
        key: u32,
        access: u64,
        start: u64,
        mapping: Mapping,
    ) -> Self {
        Self {
            domain,
            key,
            access,
            start,
            bytes: mapping.wanted,
            base: mapping.first + mapping.skipped,
            users: Users::default(),
            is_open: AtomicBool::new(true),
            _mapping: Some(mapping),
        }
    }

    /// Where a range is in this process, if it is inside.
    pub(crate) fn place(&self, address: u64, bytes: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then_some(self.base + offset)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Closes it: when this has returned nothing of peers lands in it.
    pub(crate) fn close(&self) -> Result<(), c_int> {
        self.users
            .none(format_args!("the registration with key {:#x}", self.key))?;
        if !self.is_open.swap(false, Ordering::AcqRel) {
            return Err(Rule::ClosedHandle.broken("(registration, closed by another thread)"));
        }
        self.domain.keys.close(self.key);
        self.domain.users.remove();
        Ok(())
    }
}

/// A file in the memory of this process.
#[derive(Debug)]
pub(crate) struct Mapping {
    first: usize,
    mapped: usize,
    skipped: usize,
    wanted: usize,
}

impl Mapping {
    pub(crate) fn new(dmabuf: &fi_mr_dmabuf) -> Result<Self, c_int> {
        const PAGE: u64 = 4096;
        let start = dmabuf.offset / PAGE * PAGE;
        let skipped = usize::try_from(dmabuf.offset - start).map_err(|_| FI_EINVAL)?;
        let mapped = dmabuf.len.checked_add(skipped).ok_or(FI_EINVAL)?;
        let offset = libc::off_t::try_from(start).map_err(|_| FI_EINVAL)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place, and checks descriptor, offset and length.
        let first = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                rights,
                libc::MAP_SHARED,
                dmabuf.fd,
                offset,
            )
        };
        if first == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(FI_EINVAL));
        }
        Ok(Self {
            first: first.expose_provenance(),
            mapped,
            skipped,
            wanted: dmabuf.len,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let first = std::ptr::with_exposed_provenance_mut(self.first);
        // SAFETY: mapped by `new`, and the registration that named it is gone.
        unsafe { libc::munmap(first, self.mapped) };
    }
}

/// What a program registered by `FI_MR_DMABUF`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DmaBuf {
    /// The descriptor, which may be another file by now.
    pub fd: c_int,
    /// In the file.
    pub offset: u64,
    /// In bytes.
    pub len: u64,
    /// Address of the file's first byte, as peers name it.
    pub base: u64,
    /// Rights of the registration.
    pub access: u64,
    /// `fi_hmem_iface`: whose memory it is.
    pub iface: u32,
    /// 0, or the error with which the file could not be used.
    pub error: c_int,
}

static DMABUFS: Mutex<Vec<DmaBuf>> = Mutex::new(Vec::new());

/// Keeps what was given, for tests.
pub(crate) fn record(dmabuf: DmaBuf) {
    let mut all = DMABUFS.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(dmabuf);
}

/// What was given, by its number from the start of the process.
pub(crate) fn dmabuf(number: usize) -> Option<DmaBuf> {
    let all = DMABUFS.lock().unwrap_or_else(PoisonError::into_inner);
    all.get(number).copied()
}

/// A registration that an operation holds on to.
pub(crate) struct InUse(Arc<Registration>);

impl InUse {
    pub(crate) fn new(registration: Arc<Registration>) -> Self {
        registration.users.add();
        Self(registration)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.users.remove();
    }
}
