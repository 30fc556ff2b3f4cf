//! Device memory, register pages and pinned host memory of a CUDA device.

// UNSAFETY: calls of the driver API, and copies through a pinned buffer.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::sys::{self, CUdeviceptr, CUpointer_attribute};

use super::driver::{CudaStream, Device, check, log};
use crate::gpu::GpuError;
use crate::gpu::memory::{DeviceMemory, Hold, HostMapped, MappedMmio};
use crate::gpu::ranges::{Ranges, check_request};

/// Bytes of the pinned buffer that copies go through, so that they never fall back to a synchronous path.
const BOUNCE_BYTES: usize = 1 << 20;

/// Page of a register mapping.
const PAGE: usize = 4096;

/// Everything of one device that kernels can address.
#[derive(Debug)]
pub(super) struct Arena {
    device: Arc<Device>,
    live: Mutex<Ranges>,
    /// Registered register pages, by host address: registering one twice is an error of the driver.
    pages: Mutex<BTreeMap<usize, Weak<Page>>>,
    copies: Mutex<Copies>,
}

/// The copy engine's stream and its pinned buffer.
#[derive(Debug)]
struct Copies {
    stream: CudaStream,
    bounce: Pinned,
}

impl Arena {
    pub(super) fn new(device: &Arc<Device>) -> Result<Arc<Self>, GpuError> {
        let copies = Copies {
            stream: CudaStream::new(device)?,
            bounce: Pinned::new(device, BOUNCE_BYTES)?,
        };
        Ok(Arc::new(Self {
            device: Arc::clone(device),
            live: Mutex::default(),
            pages: Mutex::default(),
            copies: Mutex::new(copies),
        }))
    }

    pub(super) fn alloc(
        self: &Arc<Self>,
        bytes: usize,
        align: usize,
    ) -> Result<DeviceMemory, GpuError> {
        check_request(bytes, align)?;
        // The driver aligns to 256 bytes.
        let slack = if align > 256 { align } else { 0 };
        let total = bytes
            .checked_add(slack)
            .ok_or_else(|| no_memory(bytes, "too long"))?;
        self.device.bind()?;
        let mut base = 0;
        // SAFETY: `base` is written during the call; freed when the allocation is dropped.
        check("cuMemAlloc", unsafe {
            sys::cuMemAlloc_v2(&raw mut base, total)
        })
        .map_err(|error| no_memory(bytes, &error.to_string()))?;
        let addr = base.next_multiple_of(align as u64);
        let allocation = Allocation {
            arena: Arc::clone(self),
            base,
            addr,
        };
        self.prepare(base, total)?;
        lock(&self.live).insert(addr, bytes);
        Ok(DeviceMemory::new(addr, bytes, Box::new(allocation)))
    }

    /// Zeros, and copies that are ordered with what the HCA writes.
    fn prepare(&self, base: CUdeviceptr, bytes: usize) -> Result<(), GpuError> {
        let copies = lock(&self.copies);
        self.device.relaxed(|| {
            let stream = copies.stream.raw();
            // SAFETY: the allocation is new and `bytes` long; the stream lives.
            check("cuMemsetD8Async", unsafe {
                sys::cuMemsetD8Async(base, 0, bytes, stream)
            })?;
            copies.stream.synchronize()?;
            let on: u32 = 1;
            let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
            // SAFETY: `on` is a live unsigned int, which is what the attribute takes.
            check("cuPointerSetAttribute(SYNC_MEMOPS)", unsafe {
                sys::cuPointerSetAttribute((&raw const on).cast(), attribute, base)
            })
        })
    }

    pub(super) fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), GpuError> {
        let live = lock(&self.live);
        live.check(addr, bytes.len())?;
        let copies = lock(&self.copies);
        self.device.relaxed(|| {
            for (nth, part) in bytes.chunks(BOUNCE_BYTES).enumerate() {
                let to = addr + (nth * BOUNCE_BYTES) as u64;
                let bounce = copies.bounce.host.as_ptr();
                // SAFETY: the buffer holds BOUNCE_BYTES, is used under its lock only, and no copy from it is in flight.
                unsafe { ptr::copy_nonoverlapping(part.as_ptr(), bounce, part.len()) };
                // SAFETY: the range lies in a live allocation, kept alive by the lock; the buffer outlives the copy.
                check("cuMemcpyHtoDAsync", unsafe {
                    let stream = copies.stream.raw();
                    sys::cuMemcpyHtoDAsync_v2(to, bounce.cast(), part.len(), stream)
                })?;
                copies.stream.synchronize()?;
            }
            Ok(())
        })
    }

    pub(super) fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), GpuError> {
        let live = lock(&self.live);
        live.check(addr, out.len())?;
        let copies = lock(&self.copies);
        self.device.relaxed(|| {
            for (nth, part) in out.chunks_mut(BOUNCE_BYTES).enumerate() {
                let from = addr + (nth * BOUNCE_BYTES) as u64;
                let bounce = copies.bounce.host.as_ptr();
                // SAFETY: as in `write`.
                check("cuMemcpyDtoHAsync", unsafe {
                    let stream = copies.stream.raw();
                    sys::cuMemcpyDtoHAsync_v2(bounce.cast(), from, part.len(), stream)
                })?;
                copies.stream.synchronize()?;
                // SAFETY: the copy has ended; the buffer is used under its lock only.
                unsafe { ptr::copy_nonoverlapping(bounce, part.as_mut_ptr(), part.len()) };
            }
            Ok(())
        })
    }

    pub(super) fn map_host(&self, bytes: usize) -> Result<HostMapped, GpuError> {
        let pinned = Pinned::new(&self.device, bytes)?;
        let (host, addr) = (pinned.host, pinned.addr);
        // SAFETY: `Pinned` holds `bytes` zeroed bytes, page-aligned by the driver, which the result keeps.
        Ok(unsafe { HostMapped::new(host, addr, bytes, Box::new(pinned)) })
    }

    /// Registers the page that holds `host`, or takes another reference to its registration.
    pub(super) fn map_mmio(&self, host: *mut u8, bytes: usize) -> Result<MappedMmio, GpuError> {
        let offset = host.addr() % PAGE;
        if host.is_null() || !host.addr().is_multiple_of(8) || bytes == 0 || bytes > PAGE - offset {
            return Err(GpuError::BadArgument {
                what: "register page",
                value: format!("{bytes} bytes at {host:p}"),
                limit: format!("at least one byte at a multiple of 8, within a page of {PAGE}"),
            });
        }
        let start = host.map_addr(|addr| addr - offset);
        let mut pages = lock(&self.pages);
        let page = match pages.get(&start.addr()).and_then(Weak::upgrade) {
            Some(page) => page,
            None => {
                let page = Arc::new(Page::register(&self.device, start)?);
                pages.insert(start.addr(), Arc::downgrade(&page));
                page
            }
        };
        let addr = page.addr + offset as u64;
        Ok(MappedMmio::new(addr, Box::new(SharedPage { _page: page })))
    }
}

/// An allocation of the driver.
#[derive(Debug)]
struct Allocation {
    arena: Arc<Arena>,
    base: CUdeviceptr,
    addr: u64,
}

impl Hold for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // No copy can be under way: copies hold this lock.
        let mut live = lock(&self.arena.live);
        live.remove(self.addr);
        log(self.arena.device.bind());
        // SAFETY: allocated in `alloc`, freed once.
        log(check("cuMemFree", unsafe { sys::cuMemFree_v2(self.base) }));
    }
}

/// Pinned host memory, mapped on the device.
#[derive(Debug)]
struct Pinned {
    device: Arc<Device>,
    host: NonNull<u8>,
    addr: u64,
}

// SAFETY: plain memory; users synchronise access by a lock or by atomics.
unsafe impl Send for Pinned {}
// SAFETY: as for Send.
unsafe impl Sync for Pinned {}

impl Hold for Pinned {}

impl Pinned {
    fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, GpuError> {
        check_request(bytes, 1)?;
        device.bind()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let mut host: *mut c_void = ptr::null_mut();
        // SAFETY: `host` is written during the call; freed in `drop`.
        let allocated = check("cuMemHostAlloc", unsafe {
            sys::cuMemHostAlloc(&raw mut host, bytes, flags)
        });
        let host = match (allocated, NonNull::new(host.cast::<u8>())) {
            (Ok(()), Some(host)) => host,
            (Ok(()), None) => return Err(no_memory(bytes, "the driver gave a null pointer")),
            (Err(error), _) => return Err(no_memory(bytes, &error.to_string())),
        };
        // SAFETY: `bytes` bytes have just been allocated.
        unsafe { host.write_bytes(0, bytes) };
        let mut pinned = Self {
            device: Arc::clone(device),
            host,
            addr: 0,
        };
        pinned.addr = device_address(host.as_ptr())?;
        Ok(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        log(self.device.bind());
        // SAFETY: allocated in `new`, freed once.
        log(check("cuMemFreeHost", unsafe {
            sys::cuMemFreeHost(self.host.as_ptr().cast())
        }));
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
    fn register(device: &Arc<Device>, host: *mut u8) -> Result<Self, GpuError> {
        device.bind()?;
        let map = sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE;
        // A register of a NIC is I/O memory; one of the software HCA is an ordinary page, which the driver refuses as such.
        let io = map | sys::CU_MEMHOSTREGISTER_IOMEMORY;
        let register = |flags| {
            // SAFETY: the page is mapped, by the promise of `Gpu::map_mmio`'s caller, until the result is dropped.
            check("cuMemHostRegister", unsafe {
                sys::cuMemHostRegister_v2(host.cast(), PAGE, flags)
            })
        };
        register(io).or_else(|refused| {
            tracing::debug!("register page is no I/O memory ({refused}): mapping it as memory");
            register(map)
        })?;
        let mut page = Self {
            device: Arc::clone(device),
            host,
            addr: 0,
        };
        page.addr = device_address(host)?;
        Ok(page)
    }
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

/// Where kernels find host memory that is mapped on the device.
fn device_address(host: *mut u8) -> Result<u64, GpuError> {
    let mut addr = 0;
    // SAFETY: `addr` is written during the call; `host` is allocated or registered as mapped.
    let asked = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut addr, host.cast(), 0) };
    check("cuMemHostGetDevicePointer", asked)?;
    Ok(addr)
}

fn no_memory(bytes: usize, detail: &str) -> GpuError {
    GpuError::OutOfMemory {
        kind: "device or pinned",
        bytes,
        detail: detail.to_owned(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
