//! UAR pages: doorbell registers in a memfd that the opener maps.
//!
//! A register holds one value and cannot queue stores. The engine takes a doorbell by exchanging the register with 0. No doorbell is 0,
//! since a doorbell holds a QP number.

// UNSAFETY: mmap, munmap, and atomics in the mapped pages.
#![expect(unsafe_code, reason = "shared doorbell pages")]

use crate::device::DeviceError;
use gpuhca_abi::TWIN;
use mlx5_prm::doorbell::uar;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, ptr};

/// Offset in a page of the word by which CQs are armed. It holds the arm word and the CQ number, both big-endian.
const ARM_PLACE: usize = uar::CQ_ARM;

/// Offsets in a page at which the engine looks for doorbells, each with the number of its register. They are both halves of both registers,
/// and the register of send queues without a doorbell record.
const PLACES: [(usize, usize); 5] = [
    (uar::register(0), 0),
    (uar::register(0) + uar::HALF, 0),
    (uar::register(1), 1),
    (uar::register(1) + uar::HALF, 1),
    (uar::NO_RECORD, 2),
];

/// The memfd of a context: all its UAR pages, one after the other.
#[derive(Debug)]
pub(crate) struct UarSpace {
    fd: OwnedFd,
}

impl UarSpace {
    /// Offset of page 0 in the memfd.
    pub(crate) const FIRST_OFFSET: u64 = 0x10000 * uar::PAGE_BYTES as u64;
    /// Number of pages of a context.
    pub(crate) const PAGES: usize = 0x2000;

    pub(crate) fn new() -> Result<Self, DeviceError> {
        let fd = memfd_create(c"softhca-uar", MemfdFlags::CLOEXEC)
            .map_err(|error| os_error("memfd_create", error))?;
        // The file is sparse: each page is allocated at its first use.
        let bytes = Self::FIRST_OFFSET + (Self::PAGES * uar::PAGE_BYTES) as u64;
        ftruncate(&fd, bytes).map_err(|error| os_error("ftruncate", error))?;
        Ok(Self { fd })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Writes bytes that programs may read at `offset`, before the UAR pages.
    pub(crate) fn publish(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > Self::FIRST_OFFSET {
            return Err(DeviceError::Range {
                what: "end of what is below the UAR pages",
                value: end,
                limit: Self::FIRST_OFFSET,
            });
        }
        match pwrite(&self.fd, bytes, offset) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) => Err(os_error("pwrite", Errno::IO)),
            Err(error) => Err(os_error("pwrite", error)),
        }
    }

    /// Returns the offset of page `index` in the memfd.
    pub(crate) fn offset(index: usize) -> u64 {
        Self::FIRST_OFFSET + (index * uar::PAGE_BYTES) as u64
    }

    /// Maps page `index` for the engine and clears its registers.
    pub(crate) fn map(&self, index: usize) -> Result<MappedPage, DeviceError> {
        let Ok(offset) = libc::off_t::try_from(Self::offset(index)) else {
            return Err(DeviceError::Full {
                what: "UAR page",
                limit: Self::PAGES,
            });
        };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                uar::PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.fd.as_raw_fd(),
                offset,
            )
        };
        let Some(base) = NonNull::new(base).filter(|_| base != libc::MAP_FAILED) else {
            let error = Errno::from_io_error(&io::Error::last_os_error());
            return Err(os_error("mmap", error.unwrap_or(Errno::IO)));
        };
        let page = MappedPage { base: base.cast() };
        for (place, _) in PLACES {
            page.register(place).store(0, Ordering::Relaxed);
        }
        page.register(ARM_PLACE).store(0, Ordering::Relaxed);
        page.register(TWIN as usize).store(0, Ordering::Relaxed);
        Ok(page)
    }
}

/// A UAR page as the engine has mapped it.
#[derive(Debug)]
pub(crate) struct MappedPage {
    base: NonNull<u8>,
}

// SAFETY: the page is accessed by atomics only, and unmapped once, by its owner.
unsafe impl Send for MappedPage {}

impl MappedPage {
    /// Takes the doorbells that were stored since the last call. Calls `rung` with each: (register, value).
    pub(crate) fn take(&self, mut rung: impl FnMut(usize, u64)) {
        self.take_places(|_, register, value| rung(register, value));
    }

    /// Takes doorbells as [`Self::take`] does, and passes also the offset of the store: (offset, register, value).
    pub(crate) fn take_places(&self, mut rung: impl FnMut(usize, usize, u64)) {
        for (place, register) in PLACES {
            let word = self.register(place);
            // Relaxed load first: an exchange would take the cache line from the ringer each time.
            if word.load(Ordering::Relaxed) != 0 {
                // Acquire: pairs with the ringer's release, so that the doorbell record and WQEs are seen.
                let value = word.swap(0, Ordering::Acquire);
                if value != 0 {
                    rung(place, register, value);
                }
            }
        }
    }

    /// Takes the arming that was stored since the last call. Returns the CQ that it names.
    pub(crate) fn take_arm(&self) -> Option<u32> {
        let word = self.register(ARM_PLACE);
        if word.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Acquire: pairs with the store's release, so that the arm word in the doorbell record is seen.
        let value = word.swap(0, Ordering::Acquire);
        let [.., a, b, c, d] = value.to_le_bytes();
        (value != 0).then(|| u32::from_be_bytes([a, b, c, d]) & 0x00ff_ffff)
    }

    /// Stores the address of the page's twin in the page; 0 means that it has none.
    pub(crate) fn set_twin(&self, address: u64) {
        self.register(TWIN as usize)
            .store(address, Ordering::Release);
    }

    fn register(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: ARM_PLACE, TWIN and the offsets of PLACES are inside the page and aligned. The page is mapped while `self` lives.
        // All agents store whole words.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

impl Drop for MappedPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), uar::PAGE_BYTES) };
    }
}

fn os_error(call: &'static str, error: Errno) -> DeviceError {
    DeviceError::Os {
        call,
        errno: error.raw_os_error(),
    }
}

/// A UAR page.
#[derive(Debug)]
pub(crate) struct Uar {
    pub(crate) context: u32,
    /// The index of the page in the context's space.
    pub(crate) index: u32,
    pub(crate) page: MappedPage,
    /// CQs that are armed through the page. `qps` are the QPs that are rung through it.
    pub(crate) cqs: Vec<u32>,
    pub(crate) qps: Vec<UarUser>,
}

/// A QP that is rung through a UAR page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UarUser {
    pub(crate) qpn: u32,
    /// The register through which the QP was last rung; `None` before its first doorbell.
    pub(crate) register: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doorbell_is_taken_once_from_either_half() {
        let space = UarSpace::new().unwrap();
        let (device, software) = (space.map(3).unwrap(), space.map(3).unwrap());
        let take = || {
            let mut seen = Vec::new();
            device.take(|register, value| seen.push((register, value)));
            seen
        };
        assert_eq!(take(), []);
        software.register(0xb00).store(7, Ordering::Release);
        software.register(0x800).store(9, Ordering::Release);
        assert_eq!(take(), [(0, 9), (1, 7)]);
        assert_eq!(take(), []);
    }

    #[test]
    fn an_arming_names_its_queue() {
        let space = UarSpace::new().unwrap();
        let (device, software) = (space.map(0).unwrap(), space.map(0).unwrap());
        assert_eq!(device.take_arm(), None);
        let stored = (1u64 << 60 | 5 << 32 | 0x456).to_be();
        software.register(0x20).store(stored, Ordering::Release);
        assert_eq!(device.take_arm(), Some(0x456));
        assert_eq!(device.take_arm(), None);
    }
}
