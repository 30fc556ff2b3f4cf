//! Pages of doorbell registers, mapped into the GPU's address space.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys;

use super::driver::{Device, check, log};
use super::memory::device_address;
use crate::gpu::GpuError;
use crate::gpu::memory::{Hold, MappedMmio};

/// Bytes of a page of registers.
pub(super) const PAGE: usize = 4096;

/// The registered pages, by host address: registering one twice is an error of the driver.
#[derive(Debug, Default)]
pub(super) struct Pages(Mutex<BTreeMap<usize, Weak<Page>>>);

impl Pages {
    /// Registers the page that holds `host`, or takes another reference to its registration.
    pub(super) fn map(
        &self,
        device: &Arc<Device>,
        host: *mut u8,
        bytes: usize,
    ) -> Result<MappedMmio, GpuError> {
        let offset = host.addr() % PAGE;
        if host.is_null() || !host.addr().is_multiple_of(8) || bytes == 0 || bytes > PAGE - offset {
            return Err(GpuError::BadArgument {
                what: "register page",
                value: format!("{bytes} bytes at {host:p}"),
                limit: format!("at least one byte at a multiple of 8, within a page of {PAGE}"),
            });
        }
        let start = host.map_addr(|addr| addr - offset);
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match pages.get(&start.addr()).and_then(Weak::upgrade) {
            Some(page) => page,
            None => {
                let page = Arc::new(Page::register(device, start)?);
                pages.insert(start.addr(), Arc::downgrade(&page));
                page
            }
        };
        let addr = page.addr + offset as u64;
        Ok(MappedMmio::new(addr, Box::new(SharedPage { _page: page })))
    }
}

/// A page of device registers, mapped into the GPU's address space.
#[derive(Debug)]
struct Page {
    device: Arc<Device>,
    host: *mut u8,
    addr: u64,
}

// SAFETY: the pointer only names the registration.
unsafe impl Send for Page {}
// SAFETY: as for Send.
unsafe impl Sync for Page {}

/// One of the users of a page.
#[derive(Debug)]
struct SharedPage {
    _page: Arc<Page>,
}

impl Hold for SharedPage {}

impl Page {
    /// A register of a NIC is I/O memory; one of the software HCA is an ordinary page, which the driver refuses as such and
    /// takes as host memory.
    fn register(device: &Arc<Device>, host: *mut u8) -> Result<Self, GpuError> {
        device.bind()?;
        let map = sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE;
        let register = |flags| {
            // SAFETY: the page is mapped, by the promise of `Gpu::map_mmio`'s caller, until the result is dropped.
            check("cuMemHostRegister", unsafe {
                sys::cuMemHostRegister_v2(host.cast(), PAGE, flags)
            })
        };
        register_as(
            || register(map | sys::CU_MEMHOSTREGISTER_IOMEMORY),
            || register(map),
        )?;
        let mut page = Self {
            device: Arc::clone(device),
            host,
            addr: 0,
        };
        page.addr = device_address(host)?;
        Ok(page)
    }
}

/// First as I/O memory, then as host memory; if neither works, both reasons.
fn register_as(
    io: impl FnOnce() -> Result<(), GpuError>,
    memory: impl FnOnce() -> Result<(), GpuError>,
) -> Result<(), GpuError> {
    let Err(io) = io() else { return Ok(()) };
    tracing::debug!("register page is no I/O memory ({io}): mapping it as memory");
    memory().map_err(|memory| GpuError::Doorbell {
        io: io.to_string(),
        memory: memory.to_string(),
    })
}

impl Drop for Page {
    fn drop(&mut self) {
        log(self.device.bind());
        // SAFETY: registered in `register`, taken back once.
        log(check("cuMemHostUnregister", unsafe {
            sys::cuMemHostUnregister(self.host.cast())
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u32) -> Result<(), GpuError> {
        Err(GpuError::Driver {
            call: "cuMemHostRegister",
            name: "CUDA_ERROR_NOT_PERMITTED".to_owned(),
            code,
        })
    }

    #[test]
    fn a_page_is_tried_as_io_memory_first_and_as_host_memory_then() {
        register_as(|| Ok(()), || panic!("it was I/O memory")).unwrap();
        register_as(|| refused(1), || Ok(())).unwrap();
    }

    #[test]
    fn a_page_that_is_refused_both_ways_is_an_error_that_names_the_ways_out() {
        let error = register_as(|| refused(800), || refused(1))
            .unwrap_err()
            .to_string();
        for part in [
            "NOT_PERMITTED (800)",
            "(1)",
            "PeerMappingOverride=1",
            "root",
            "doorbell = mailbox",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
