//! The pages behind addresses and descriptors that a program registers, and their rights.
//!
//! The kernel pins the pages of a region. Here they are checked only at the moment of registration. A program that unmaps its memory later,
//! and lets the device use it, ends in a fault. A program whose file is truncated does not: see [`Region::may_shrink`]. A program that maps
//! a file in the place of registered memory has unmapped that memory.

// UNSAFETY: mmap and munmap of descriptors, and a descriptor that the caller names by its number.
#![expect(unsafe_code, reason = "mappings of registered descriptors")]

use super::region::{Region, is_mapped};
use crate::device::DeviceError;
use file_memory::MapLine;
use rustix::fs::{SealFlags, SeekFrom, fcntl_get_seals, fstat, fstatfs, seek};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};

const PAGE: u64 = 4096;

/// The memory of a key or UMEM, with the mapping that it lies in if the device made that mapping.
#[derive(Debug)]
pub(crate) struct Backed {
    pub(crate) region: Region,
    pub(crate) mapping: Option<Mapping>,
}

/// A mapping that the device made. Its drop unmaps it.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<libc::c_void>,
    bytes: usize,
}

// SAFETY: the mapping is accessed through `Region` only, which is about shared memory, and unmapped once, by its owner.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`; regions in it end with the key or UMEM that owns this.
        unsafe { libc::munmap(self.base.as_ptr(), self.bytes) };
    }
}

/// Maps `bytes` bytes at `offset` of a DMA-BUF, or of a memfd, which stands in for a DMA-BUF.
///
/// # Errors
///
/// The errors of the kernel: `EBADF` if `fd` is no descriptor, `EINVAL` if it is a descriptor of something else, or the buffer is shorter.
pub(crate) fn map(
    fd: RawFd,
    offset: u64,
    bytes: u64,
    writable: bool,
) -> Result<Backed, DeviceError> {
    let (length, may_shrink) = buffer(fd)?;
    let refused = DeviceError::Os {
        call: "mmap of a DMA-BUF",
        errno: libc::EINVAL,
    };
    let end = offset.checked_add(bytes).ok_or(refused)?;
    if end > length || bytes == 0 {
        return Err(DeviceError::Range {
            what: "end of a region of a DMA-BUF",
            value: end,
            limit: length,
        });
    }
    let start = offset & !(PAGE - 1);
    let in_page = offset - start;
    let (Ok(mapped), Ok(file_offset)) = (
        usize::try_from(in_page + bytes),
        libc::off_t::try_from(start),
    ) else {
        return Err(refused);
    };
    let rights = if writable {
        libc::PROT_READ | libc::PROT_WRITE
    } else {
        libc::PROT_READ
    };
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            mapped,
            rights,
            libc::MAP_SHARED,
            fd,
            file_offset,
        )
    };
    let Some(base) = NonNull::new(base).filter(|_| base != libc::MAP_FAILED) else {
        return Err(refused);
    };
    let mapping = Mapping {
        base,
        bytes: mapped,
    };
    let address = base.as_ptr().expose_provenance() as u64;
    // SAFETY: inside the mapping, which lives as long as the key or UMEM that gets both.
    let region = unsafe { Region::new(address + in_page, bytes) }.ok_or(refused)?;
    Ok(Backed {
        region: region.with_may_shrink(may_shrink),
        mapping: Some(mapping),
    })
}

/// Returns the length of the DMA-BUF or memfd that `fd` is, and whether that length may become less.
fn buffer(fd: RawFd) -> Result<(u64, bool), DeviceError> {
    const DMA_BUF_MAGIC: u64 = 0x444d_4142;
    let no_buffer = |errno| DeviceError::Os {
        call: "dma_buf_get",
        errno,
    };
    if fd < 0 {
        return Err(no_buffer(libc::EBADF));
    }
    // SAFETY: the caller named the descriptor and keeps it open during the call; for a number that is none the kernel returns an error.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let stat = fstat(fd).map_err(|_| no_buffer(libc::EBADF))?;
    if fstatfs(fd).is_ok_and(|system| u64::try_from(system.f_type) == Ok(DMA_BUF_MAGIC)) {
        // The end position of a DMA-BUF is its length. The position has no other meaning.
        return Ok((seek(fd, SeekFrom::End(0)).unwrap_or(0), false));
    }
    // Only files in memory have seals.
    let seals = fcntl_get_seals(fd).map_err(|_| no_buffer(libc::EINVAL))?;
    let may_shrink = !seals.contains(SealFlags::SHRINK);
    Ok((u64::try_from(stat.st_size).unwrap_or(0), may_shrink))
}

/// The facts that are known of the pages of a mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// True if some of the pages lie in a file that may be truncated.
    pub(crate) may_shrink: bool,
}

/// Returns the pages of the range, if every byte of it is mapped now, readable, and writable if `write` says so.
pub(crate) fn pages(address: u64, bytes: u64, write: bool) -> Option<Pages> {
    let end = address.checked_add(bytes)?;
    match File::open("/proc/self/maps") {
        Ok(maps) => covered(BufReader::new(maps), address, end, write),
        // Without the list of mappings nothing is known of files.
        Err(_) => is_mapped(address, bytes).then_some(Pages { may_shrink: true }),
    }
}

/// Returns what is known of the pages of `at..end`, if the mappings in `maps`, in ascending order, cover them without a hole.
fn covered(maps: impl BufRead, mut at: u64, end: u64, write: bool) -> Option<Pages> {
    let mut may_shrink = false;
    for line in maps.lines() {
        if at >= end {
            break;
        }
        let line = line.ok()?;
        let mapped = MapLine::parse(&line)?;
        if mapped.end <= at {
            continue;
        }
        if mapped.first > at || !mapped.allows(write) {
            return None;
        }
        may_shrink |= mapped.may_shrink();
        at = mapped.end;
    }
    (at >= end).then_some(Pages { may_shrink })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_covered_by_mappings_without_holes_and_with_the_right_rights() {
        let maps =
            b"1000-3000 rw-p 0 0:0 0 [heap]\n3000-4000 r--p 0 0:0 0\n5000-6000 rw-p 0 0:0 0\n\
            6000-7000 ---p 0 0:0 0\n";
        let reads = |at, end| covered(&maps[..], at, end, false).is_some();
        let writes = |at, end| covered(&maps[..], at, end, true).is_some();
        assert!(reads(0x1000, 0x4000) && reads(0x1fff, 0x3001) && reads(0x5000, 0x6000));
        assert!(!reads(0xfff, 0x1001) && !reads(0x3fff, 0x4001) && !reads(0x3000, 0x6000));
        assert!(!reads(0x6000, 0x6001) && !reads(0x7000, 0x7001));
        assert!(writes(0x1000, 0x3000) && !writes(0x2fff, 0x3001));
        let files = b"1000-3000 rw-p 0 0:0 0\n3000-4000 rw-s 0 8:1 7 /no/such/file\n";
        let shrinks = |at, end| covered(&files[..], at, end, true).unwrap().may_shrink;
        assert!(!shrinks(0x1000, 0x3000) && shrinks(0x2fff, 0x3001));
    }

    #[test]
    fn memory_of_this_process_is_accessible_and_the_zero_page_is_not() {
        let memory = vec![0u8; 10_000];
        let address = memory.as_ptr().expose_provenance() as u64;
        let own = Some(Pages { may_shrink: false });
        assert_eq!(pages(address, 10_000, true), own);
        assert_eq!(pages(0x1000, 1, false), None);
        assert_eq!(pages(u64::MAX, 2, false), None);
        let text = pages as *const () as usize as u64;
        assert!(pages(text, 1, false).is_some());
        assert_eq!(pages(text, 1, true), None);
    }
}
