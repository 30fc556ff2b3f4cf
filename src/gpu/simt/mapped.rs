//! Memory and registers of this process for which kernels have another address, and the table of all ranges in which kernels may ring.
//!
//! On a GPU, kernels may have another address than the process for a register or for memory of the host. On the CPU one address would do
//! for both, so a kernel that got the process's address would pass every test. So each page of registers is mapped a second time, and a
//! kernel that rings at the process's address fails ([`reaches`]). Host memory is mapped twice as well (`Arena::map_host`); only a build
//! with the checker of `simt` sees every other access to it.

// UNSAFETY: maps pages a second time.
#![expect(unsafe_code, reason = "mremap and munmap")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use crate::gpu::memory::{Hold, MappedMmio};
use crate::gpu::{GpuError, register_page};

/// The ranges in which kernels of this process may ring, on any device: start to end.
static REACHED: RwLock<BTreeMap<u64, u64>> = RwLock::new(BTreeMap::new());

/// Number of ranges that have been taken out of the table so far.
static REMOVED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The range that this thread found last, and the value of [`REMOVED`] before it looked.
    static LAST: Cell<(u64, u64, u64)> = const { Cell::new((0, 0, 0)) };
}

/// Returns whether kernels may store to a register at `addr`. They may in memory of a device, in host-mapped or opened memory, and in a
/// page that [`map`] has mapped.
pub(super) fn reaches(addr: u64) -> bool {
    // Acquire: pairs with the release in `Reached::drop`. This reads before it looks at the table, so a range that is removed meanwhile is
    // looked up again.
    let removed = REMOVED.load(Ordering::Acquire);
    let (start, end, at) = LAST.get();
    if at == removed && (start..end).contains(&addr) {
        return true;
    }
    let table = REACHED.read().unwrap_or_else(PoisonError::into_inner);
    let below = table.range(..=addr).next_back();
    let Some((start, end)) = below.filter(|(_, end)| addr < **end) else {
        return false;
    };
    LAST.set((*start, *end, removed));
    true
}

/// An entry of the table, as long as this value lives. Its owner drops it before it unmaps the range. Otherwise another thread could map
/// something else at the same address, and this drop would remove that thread's entry.
#[derive(Debug)]
pub(super) struct Reached(u64);

impl Reached {
    pub(super) fn new(start: u64, bytes: usize) -> Self {
        let mut table = REACHED.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(start, start + bytes as u64);
        Self(start)
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        let mut table = REACHED.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&self.0);
        // Release: pairs with the acquire in `reaches`, after which a thread forgets the range.
        REMOVED.fetch_add(1, Ordering::Release);
    }
}

/// Pages of the machine for which kernels have an address, by their address in this process.
static ALIASES: Mutex<BTreeMap<usize, Weak<Alias>>> = Mutex::new(BTreeMap::new());

/// A second mapping of a page of the machine.
#[derive(Debug)]
struct Alias {
    host: usize,
    /// The second mapping. None if Linux maps these pages only once.
    second: Option<NonNull<u8>>,
    bytes: usize,
    /// The entry of the table. None once this is being dropped.
    reached: Option<Reached>,
}

// SAFETY: the pointer is only used to unmap; access is by kernels.
unsafe impl Send for Alias {}
// SAFETY: as for Send.
unsafe impl Sync for Alias {}

/// One user of an alias.
#[derive(Debug)]
struct User {
    _alias: Arc<Alias>,
}

impl Hold for User {}

/// Maps the registers at `host` for kernels: maps their page of the machine a second time, or takes another reference to that mapping.
pub(super) fn map(host: *mut u8, bytes: usize) -> Result<MappedMmio, GpuError> {
    let (page, offset) = register_page::of(host, bytes)?;
    let mut aliases = ALIASES.lock().unwrap_or_else(PoisonError::into_inner);
    let alias = match aliases.get(&page.addr()).and_then(Weak::upgrade) {
        Some(alias) => alias,
        None => {
            let alias = Arc::new(Alias::new(page)?);
            aliases.insert(page.addr(), Arc::downgrade(&alias));
            alias
        }
    };
    drop(aliases);
    let addr = alias.addr() + offset as u64;
    Ok(MappedMmio::new(addr, Box::new(User { _alias: alias })))
}

impl Alias {
    fn new(page: *mut u8) -> Result<Self, GpuError> {
        let bytes = register_page::bytes();
        let second = second_mapping(page, bytes).map_err(|error| GpuError::BadArgument {
            what: "register page",
            value: format!("the one at {page:p}: {error}"),
            limit: "pages that can be mapped twice (MAP_SHARED), as those of an HCA".to_owned(),
        })?;
        let seen = second.map_or(page, NonNull::as_ptr);
        let start = seen.expose_provenance() as u64;
        let host = page.expose_provenance();
        ::simt::check::map_host_memory(start, host as u64, bytes as u64);
        Ok(Self {
            host,
            second,
            bytes,
            reached: Some(Reached::new(start, bytes)),
        })
    }

    /// Returns the page's address for kernels.
    fn addr(&self) -> u64 {
        let second = self.second.map(|second| second.addr().get());
        second.unwrap_or(self.host) as u64
    }
}

impl Drop for Alias {
    fn drop(&mut self) {
        let mut aliases = ALIASES.lock().unwrap_or_else(PoisonError::into_inner);
        // If another user has mapped the page anew since this mapping's last user went, the entry is that user's.
        if aliases
            .get(&self.host)
            .is_some_and(|of| of.strong_count() == 0)
        {
            aliases.remove(&self.host);
        }
        ::simt::check::unmap_memory(self.addr(), self.bytes as u64);
        drop(self.reached.take());
        if let Some(second) = self.second {
            // SAFETY: this alias's own mapping, unmapped once; code that still uses it breaks the contract of `Gpu::launch`.
            unsafe { libc::munmap(second.as_ptr().cast(), self.bytes) };
        }
    }
}

/// Maps the pages at `page` at a second address. None for pages of a NIC, since only the NIC's driver can map device memory. Kernels on the
/// CPU then ring at the address of the process.
fn second_mapping(page: *mut u8, bytes: usize) -> io::Result<Option<NonNull<u8>>> {
    // SAFETY: an old length of 0 leaves the old mapping as it is (mremap(2)). The new one is at an address of the kernel's choice.
    let second = unsafe { libc::mremap(page.cast(), 0, bytes, libc::MREMAP_MAYMOVE) };
    match NonNull::new(second.cast::<u8>()) {
        Some(second) if second.as_ptr().cast() != libc::MAP_FAILED => Ok(Some(second)),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EFAULT) => {
                tracing::debug!("the register page at {page:p} is not mapped twice: {error}");
                Ok(None)
            }
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::file::{Mapping, SharedFile};
    use crate::gpu::register_page::REGISTERS;

    fn page() -> Mapping {
        let file = SharedFile::new(2 * REGISTERS).unwrap();
        Mapping::new(file.fd(), 2 * REGISTERS).unwrap()
    }

    #[test]
    fn kernels_have_an_address_of_their_own_for_a_page_while_it_has_a_user() {
        let page = page();
        let host = page.start().as_ptr();
        let first = map(host.wrapping_add(0x800), 8).unwrap();
        let second = map(host.wrapping_add(0xa00), 8).unwrap();
        assert_eq!(second.addr() - first.addr(), 0x200);
        assert_ne!(first.addr(), host.addr() as u64 + 0x800);
        assert!(reaches(first.addr()) && reaches(second.addr()));
        assert!(!reaches(host.addr() as u64 + 0x800));
        let word = usize::try_from(first.addr()).unwrap();
        let word = std::ptr::with_exposed_provenance_mut::<u64>(word);
        // SAFETY: both are words of pages that are mapped here; no other code uses them.
        unsafe {
            word.write_volatile(7);
            assert_eq!(host.add(0x800).cast::<u64>().read_volatile(), 7);
        }
        let addr = second.addr();
        drop(first);
        assert!(reaches(addr));
        drop(second);
        assert!(!reaches(addr));
        map(host, REGISTERS).unwrap();
    }

    #[test]
    fn a_page_that_another_thread_unmaps_takes_no_entry_of_a_new_page_with_it() {
        let rounds = 2000;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let page = page();
                    for round in 0..rounds {
                        let mapped = map(page.start().as_ptr(), 8).unwrap();
                        assert!(reaches(mapped.addr()), "round {round}");
                    }
                });
            }
        });
    }

    #[test]
    fn registers_out_of_their_page_and_memory_that_is_not_shared_are_refused() {
        let page = page();
        let start = page.start().as_ptr();
        for (host, bytes) in [
            (std::ptr::null_mut(), 8),
            (start.wrapping_add(4), 8),
            (start, 0),
            (start, REGISTERS + 1),
            (start.wrapping_add(8), REGISTERS),
        ] {
            let error = map(host, bytes).unwrap_err().to_string();
            assert!(error.contains("within a page of 4096"), "{error}");
        }
        let mut private = vec![0u64; 2 * REGISTERS / 8];
        let error = map(private.as_mut_ptr().cast(), 8).unwrap_err().to_string();
        assert!(error.contains("mapped twice"), "{error}");
    }
}
