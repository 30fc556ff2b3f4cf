//! Pages of doorbell registers, mapped into the GPU's address space.
//!
//! A page is registered once for the whole process: the driver refuses a second registration, by whichever device. The kind of a page
//! decides how it is registered. The registers of a NIC are I/O memory, which the driver maps uncached across PCIe. The registers of a
//! software HCA are memory, which the CPU exchanges while kernels store to it. If the driver mapped that as I/O memory, the GPU's stores
//! would bypass the CPU's caches. So neither kind is tried in place of the other.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use super::device::Device;
use super::driver::{check, device_address, log};
use crate::gpu::memory::{Hold, MappedMmio};
use crate::gpu::{GpuError, RegisterKind as Kind, register_page};

/// Pages of the machine with registers, by address. A page stays in the table after its registration has ended.
static PAGES: Mutex<BTreeMap<usize, Arc<Page>>> = Mutex::new(BTreeMap::new());

/// Maps the registers at `host` for kernels of `device`. The first user registers their page of the machine with the driver, as `kind` or
/// as the kind that the page has. Later users share that registration.
pub(super) fn map(
    device: &Arc<Device>,
    host: *mut u8,
    bytes: usize,
    kind: Option<Kind>,
) -> Result<MappedMmio, GpuError> {
    let (start, offset) = register_page::of(host, bytes)?;
    let mut pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let page = Arc::clone(pages.entry(start.addr()).or_default());
    drop(pages);
    let (addr, user) = User::of(page, device, start, kind)?;
    Ok(MappedMmio::new(addr + offset as u64, Box::new(user)))
}

/// A page of the machine with registers of devices.
#[derive(Debug, Default)]
struct Page(Mutex<Users>);

/// The users of a page. The lock is held during registration and its end, so that no user finds the page half registered.
#[derive(Debug, Default)]
struct Users {
    count: usize,
    registration: Option<Registration>,
}

/// One user of a page.
#[derive(Debug)]
struct User(Arc<Page>);

impl Hold for User {}

impl User {
    /// Adds a user of the page that begins at `start`. Returns that user and the page's address for kernels of `device`.
    fn of(
        page: Arc<Page>,
        device: &Arc<Device>,
        start: *mut u8,
        kind: Option<Kind>,
    ) -> Result<(u64, Self), GpuError> {
        let mut users = page.users();
        if users.registration.is_none() {
            users.registration = Some(Registration::new(device, start, kind)?);
        }
        users.count += 1;
        drop(users);
        let user = Self(page);
        device.bind()?;
        Ok((device_address(start)?, user))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut users = self.0.users();
        users.count -= 1;
        if users.count == 0 {
            users.registration = None;
        }
    }
}

impl Page {
    fn users(&self) -> MutexGuard<'_, Users> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registration of a page with the driver, for all devices.
#[derive(Debug)]
struct Registration {
    device: Arc<Device>,
    start: *mut u8,
}

// SAFETY: the pointer only names the registration.
unsafe impl Send for Registration {}
// SAFETY: as for Send.
unsafe impl Sync for Registration {}

impl Registration {
    fn new(device: &Arc<Device>, start: *mut u8, kind: Option<Kind>) -> Result<Self, GpuError> {
        let kind = kind.unwrap_or_else(|| Kind::of(start.addr()));
        let flags = sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE;
        let flags = match kind {
            Kind::Io => flags | sys::CU_MEMHOSTREGISTER_IOMEMORY,
            Kind::Memory => flags,
        };
        device.bind()?;
        // SAFETY: the page is mapped, by the promise of `Gpu::map_mmio`'s caller, until the result is dropped.
        let registered =
            unsafe { sys::cuMemHostRegister_v2(start.cast(), register_page::bytes(), flags) };
        check("cuMemHostRegister", registered).map_err(|refusal| kind.refused(&refusal))?;
        Ok(Self {
            device: Arc::clone(device),
            start,
        })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        log(self.device.bind());
        // SAFETY: registered in `new`, taken back once.
        log(check("cuMemHostUnregister", unsafe {
            sys::cuMemHostUnregister(self.start.cast())
        }));
    }
}

impl Kind {
    /// Returns the kind of the page at `addr`, as /proc/self/smaps reports it. A system that reports no flags (gVisor) maps no devices.
    fn of(addr: usize) -> Self {
        let Ok(maps) = File::open("/proc/self/smaps") else {
            return Self::Memory;
        };
        Self::by(BufReader::new(maps), addr)
    }

    /// Returns the kind by the flags of the mapping of `addr` in the text of /proc/PID/smaps: `io`, or `pf` for pages without memory.
    fn by(mut maps: impl BufRead, addr: usize) -> Self {
        let (mut line, mut inside) = (Vec::new(), false);
        loop {
            line.clear();
            match maps.read_until(b'\n', &mut line) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Self::Memory,
            }
            // The name of a file may be no Unicode.
            let text = String::from_utf8_lossy(&line);
            if let Some((begin, end)) = range_of(&text) {
                // Mappings come in the order of addresses. If the next one follows before any flags, the search ends.
                if inside {
                    return Self::Memory;
                }
                inside = (begin..end).contains(&addr);
            } else if let Some(flags) = text.strip_prefix("VmFlags:").filter(|_| inside) {
                let mut flags = flags.split_whitespace();
                return if flags.any(|flag| flag == "io" || flag == "pf") {
                    Self::Io
                } else {
                    Self::Memory
                };
            }
        }
    }

    fn refused(self, refusal: &GpuError) -> GpuError {
        let (kind, advice) = match self {
            Self::Io => (
                "I/O memory",
                "The registers of a NIC can be mapped by root, or by all if nvidia.ko has been loaded with \
                 NVreg_RegistryDwords=\"PeerMappingOverride=1;\"; on kernels from 6.12 on it takes a release of the driver that \
                 finds the page frames (PFNs) behind them there.",
            ),
            Self::Memory => (
                "memory",
                "That is what the registers of a software HCA are; those of a NIC are taken for it only where the kernel's \
                 /proc/self/smaps has no flags.",
            ),
        };
        GpuError::Doorbell {
            kind,
            refusal: refusal.to_string(),
            advice,
        }
    }
}

/// Returns the addresses at which a mapping begins and ends, if the line begins with them.
fn range_of(line: &str) -> Option<(usize, usize)> {
    let (range, _) = line.split_once(' ')?;
    let (begin, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(begin)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
00400000-00401000 r-xp 00000000 00:01 7                          /bin/\xff io
Size:                  4 kB
VmFlags: rd ex mr mw me
7f0000000000-7f0000001000 -w-s 00000000 00:05 9                  /dev/infiniband/uverbs0
Rss:                   0 kB
VmFlags: wr sh mw ms io pf dc dd
7f0000001000-7f0000002000 -w-s 00000000 00:05 9                  /dev/infiniband/uverbs0
VmFlags: wr sh mw ms pf
7f0000003000-7f0000004000 rw-s 00000000 00:01 8                  /memfd:io pf (deleted)
VmFlags: rd wr sh mr mw me ms
7f0000004000-7f0000005000 rw-s 00000000 00:01 8                  without flags
7f0000005000-7f0000006000 rw-s 00000000 00:01 8                  behind it
VmFlags: io";

    #[test]
    fn a_page_is_what_the_flags_of_its_mapping_say() {
        for (addr, kind) in [
            (0, Kind::Memory),
            (0x40_0fff, Kind::Memory),
            (0x7f00_0000_0000, Kind::Io),
            (0x7f00_0000_0fff, Kind::Io),
            (0x7f00_0000_1000, Kind::Io),
            (0x7f00_0000_2000, Kind::Memory),
            (0x7f00_0000_3000, Kind::Memory),
            (0x7f00_0000_4000, Kind::Memory),
            (0x7f00_0000_5000, Kind::Io),
            (usize::MAX, Kind::Memory),
        ] {
            assert_eq!(Kind::by(MAPS, addr), kind, "{addr:#x}");
        }
        assert_eq!(Kind::by(&b""[..], 0x40_0000), Kind::Memory);
    }

    #[test]
    fn memory_of_this_process_is_memory() {
        let word = Box::new(0u64);
        assert_eq!(Kind::of((&raw const *word).addr()), Kind::Memory);
    }
}
