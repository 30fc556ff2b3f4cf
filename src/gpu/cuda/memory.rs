//! Device memory and pinned host memory of a CUDA device.

// UNSAFETY: calls of the driver API, and copies through a pinned buffer.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUdeviceptr, CUpointer_attribute, CUresult};

use super::device::Device;
use super::driver::{check, device_address};
use super::options::MemoryLocation;
use super::rdma;
use super::register;
use super::share::{self, HostFile};
use super::stream::CudaStream;
use super::waiting::Waiting;
use crate::gpu::arena::Arena;
use crate::gpu::file::page_bytes;
use crate::gpu::memory::{DeviceMemory, Hold, HostMapped, MappedMmio, MemoryDmabuf};
use crate::gpu::ranges::{Ranges, check_request};
use crate::gpu::share::Name;
use crate::gpu::{CopyPiece, GpuError, RegisterKind};

/// The bytes of the pinned buffer through which copies go, so that the driver never copies synchronously.
const BOUNCE_BYTES: usize = 1 << 20;

/// The page size of an HCA. An allocation that begins at a page of the machine, of this size or larger, can be exported.
const PAGE: usize = 4096;

/// The memory of one device that kernels can address.
#[derive(Debug)]
pub(super) struct CudaArena {
    device: Arc<Device>,
    /// The location of allocations of device memory.
    location: MemoryLocation,
    live: Mutex<Ranges>,
    copies: Mutex<Copies>,
    /// The stream of copies between addresses, from the first such copy on.
    pieces: Mutex<Option<CudaStream>>,
}

/// The copy engine's stream and its pinned buffer.
#[derive(Debug)]
struct Copies {
    stream: CudaStream,
    bounce: Pinned,
}

impl CudaArena {
    pub(super) fn new(
        device: &Arc<Device>,
        location: MemoryLocation,
    ) -> Result<Arc<Self>, GpuError> {
        let copies = Copies {
            stream: CudaStream::for_copies(device)?,
            bounce: Pinned::new(device, BOUNCE_BYTES, PAGE)?,
        };
        Ok(Arc::new(Self {
            device: Arc::clone(device),
            location,
            live: Mutex::default(),
            copies: Mutex::new(copies),
            pieces: Mutex::default(),
        }))
    }

    fn alloc_device(
        self: &Arc<Self>,
        bytes: usize,
        align: usize,
    ) -> Result<DeviceMemory, GpuError> {
        check_request(bytes, align)?;
        // The driver aligns to 256 bytes. An allocation that begins at a page consists of whole pages, since it is exported in pages.
        let whole = align >= PAGE;
        let page = if whole { page_bytes() } else { 1 };
        let align = align.max(page);
        let slack = if align > 256 { align } else { 0 };
        let length = bytes.checked_next_multiple_of(page);
        let total = length
            .and_then(|length| length.checked_add(slack))
            .ok_or_else(|| no_memory("device", bytes, "too long"))?;
        self.device.bind()?;
        let mut base = 0;
        // SAFETY: `base` is written during the call; freed when the allocation is dropped.
        check("cuMemAlloc", unsafe {
            sys::cuMemAlloc_v2(&raw mut base, total)
        })
        .map_err(|error| self.no_device_memory(bytes, &error))?;
        let addr = base.next_multiple_of(align as u64);
        let allocation = Allocation {
            arena: Arc::clone(self),
            base,
            addr,
            exported: length.filter(|_| whole).unwrap_or(0),
        };
        self.prepare(base, total)?;
        lock(&self.live).insert(addr, bytes);
        Ok(DeviceMemory::new(addr, bytes, Box::new(allocation)))
    }

    /// Returns the number of the driver's allocation that has `addr`. None if the driver does not know the address.
    pub(super) fn buffer_id(&self, addr: u64) -> Result<Option<u64>, GpuError> {
        self.device.bind()?;
        let mut number = 0u64;
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID;
        // SAFETY: any address may be asked about; `number` is an unsigned long long, which is what the attribute is.
        let asked =
            unsafe { sys::cuPointerGetAttribute((&raw mut number).cast(), attribute, addr) };
        match asked {
            CUresult::CUDA_ERROR_INVALID_VALUE => Ok(None),
            asked => {
                check("cuPointerGetAttribute(BUFFER_ID)", asked)?;
                Ok(Some(number))
            }
        }
    }

    /// Returns begin and length of the driver's allocation that has this memory. Refuses memory of another device.
    fn own(&self, addr: u64, bytes: usize) -> Result<(u64, u64), GpuError> {
        let refused = |value: String, limit: String| {
            let what = "memory of the caller";
            GpuError::BadArgument { what, value, limit }
        };
        self.device.bind()?;
        let device = device_of(addr)?;
        if device != self.device.slot().ordinal {
            let limit = format!("memory of CUDA device {}", self.device.slot().ordinal);
            return Err(refused(format!("of CUDA device {device}"), limit));
        }
        let (base, length) = allocation_of(addr)?;
        let room = length - (addr - base).min(length);
        if bytes as u64 > room {
            let limit = format!("at most the {room} bytes of the allocation that are left there");
            return Err(refused(format!("{bytes} bytes at {addr:#x}"), limit));
        }
        Ok((base, length))
    }

    /// Returns the error for device memory, with the bytes asked for and the bytes that the device has.
    fn no_device_memory(&self, bytes: usize, error: &GpuError) -> GpuError {
        let name = self.device.name();
        let detail = match self.device.memory() {
            Ok((free, total)) => format!("{free} of {total} bytes are free on {name} ({error})"),
            Err(_) => format!("{error} on {name}"),
        };
        no_memory("device", bytes, &detail)
    }

    /// Fills an allocation with zeros, and makes copies of it synchronous, so that they are ordered with the HCA's writes.
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

    /// # Safety
    ///
    /// As [`Gpu::copy`](crate::gpu::Gpu::copy).
    pub(super) unsafe fn copy(&self, pieces: &[CopyPiece]) -> Result<(), GpuError> {
        let mut stream = lock(&self.pieces);
        self.device.relaxed(|| {
            let stream = match &mut *stream {
                Some(stream) => stream,
                none => none.insert(CudaStream::for_copies(&self.device)?),
            };
            let begun = pieces.iter().try_for_each(|piece| {
                let bytes = usize::try_from(piece.bytes).unwrap_or(usize::MAX);
                // SAFETY: the caller's promise; no copy runs after `synchronize`.
                check("cuMemcpyAsync", unsafe {
                    sys::cuMemcpyAsync(piece.to, piece.from, bytes, stream.raw())
                })
            });
            // This also waits after an error: the copies before it may still run.
            let ended = stream.synchronize();
            begun.and(ended)
        })
    }

    pub(super) fn map_mmio(
        &self,
        host: *mut u8,
        bytes: usize,
        kind: Option<RegisterKind>,
    ) -> Result<MappedMmio, GpuError> {
        register::map(&self.device, host, bytes, kind)
    }

    /// Allocates host memory that has the same address for kernels and this process, and so for a software HCA in the process.
    pub(super) fn alloc_host(
        self: &Arc<Self>,
        bytes: usize,
        align: usize,
    ) -> Result<DeviceMemory, GpuError> {
        let pinned = Pinned::new(&self.device, bytes, align)?;
        let host = pinned.host.as_ptr().expose_provenance() as u64;
        self.one_address(host, pinned.addr, bytes, Box::new(pinned))
    }

    /// Allocates as `alloc_host` does, in a file that other processes can map.
    pub(super) fn alloc_file(
        self: &Arc<Self>,
        bytes: usize,
        align: usize,
    ) -> Result<DeviceMemory, GpuError> {
        check_request(bytes, align)?;
        let page = page_bytes();
        if align > page {
            // The file's name stands for its begin, and the kernel chooses where to map it.
            let detail = format!("files lie at pages of {page} bytes, not of {align}");
            return Err(no_memory(SHARED, bytes, &detail));
        }
        let total = bytes
            .checked_next_multiple_of(page)
            .ok_or_else(|| no_memory(SHARED, bytes, "too long"))?;
        let file = HostFile::new(&self.device, total)?;
        let (host, addr) = (file.host(), file.addr());
        self.one_address(host, addr, bytes, Box::new(file))
    }

    /// Makes host memory at `host` in this process and at `addr` in kernels device memory. Both addresses must be the same.
    fn one_address(
        self: &Arc<Self>,
        host: u64,
        addr: u64,
        bytes: usize,
        hold: Box<dyn Hold>,
    ) -> Result<DeviceMemory, GpuError> {
        if addr != host {
            let detail = format!("no unified addressing: {addr:#x} here, {host:#x} there");
            return Err(no_memory(PINNED, bytes, &detail));
        }
        lock(&self.live).insert(addr, bytes);
        let allocation = HostAllocation {
            arena: Arc::clone(self),
            addr,
            hold,
        };
        Ok(DeviceMemory::new(addr, bytes, Box::new(allocation)))
    }
}

/// Gives out the device's own memory, or pinned host memory in its place.
impl Arena for Arc<CudaArena> {
    fn alloc(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        match self.location {
            MemoryLocation::Device => self.alloc_device(bytes, align),
            MemoryLocation::Host => self.alloc_host(bytes, align),
        }
    }

    fn alloc_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        match self.location {
            MemoryLocation::Device => self.alloc_device(bytes, align),
            MemoryLocation::Host => self.alloc_file(bytes, align),
        }
    }

    unsafe fn wrap_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        let (base, length) = self.own(addr, bytes)?;
        lock(&self.live).lend(addr, bytes)?;
        let page = page_bytes();
        let whole = bytes.next_multiple_of(page);
        let is_exported =
            addr.is_multiple_of(page as u64) && whole as u64 <= length - (addr - base);
        let lent = Lent {
            arena: Arc::clone(self),
            addr,
            exported: if is_exported { whole } else { 0 },
        };
        Ok(DeviceMemory::new(addr, bytes, Box::new(lent)))
    }

    unsafe fn lend_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // Refuses a range that wraps around or is empty.
        Ranges::default().lend(addr, bytes)?;
        let (base, length) = self.own(addr, bytes)?;
        let page = page_bytes() as u64;
        let first = addr - addr % page;
        let end = (addr + bytes as u64).next_multiple_of(page);
        let is_exported = first >= base && end <= base + length;
        let lent = ForHcas {
            arena: Arc::clone(self),
            base,
            first,
            exported: if is_exported { end - first } else { 0 },
            offset: addr - first,
        };
        Ok(DeviceMemory::new(addr, bytes, Box::new(lent)))
    }

    fn map_host(&self, bytes: usize) -> Result<HostMapped, GpuError> {
        let pinned = Pinned::new(&self.device, bytes, PAGE)?;
        lock(&self.live).count(bytes);
        let (host, addr) = (pinned.host, pinned.addr);
        // SAFETY: `Pinned` holds `bytes` zeroed bytes from the begin of a page on, which the result keeps.
        Ok(unsafe { HostMapped::new(host, addr, bytes, Box::new(pinned)) })
    }

    fn allocated(&self) -> u64 {
        lock(&self.live).taken()
    }

    fn check_range(&self, addr: u64, bytes: usize) -> Result<(), GpuError> {
        lock(&self.live).check(addr, bytes)
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), GpuError> {
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
                check("cuMemcpyAsync", unsafe {
                    let stream = copies.stream.raw();
                    sys::cuMemcpyAsync(to, copies.bounce.addr, part.len(), stream)
                })?;
                copies.stream.synchronize()?;
            }
            Ok(())
        })
    }

    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), GpuError> {
        let live = lock(&self.live);
        live.check(addr, out.len())?;
        let copies = lock(&self.copies);
        self.device.relaxed(|| {
            for (nth, part) in out.chunks_mut(BOUNCE_BYTES).enumerate() {
                let from = addr + (nth * BOUNCE_BYTES) as u64;
                let bounce = copies.bounce.host.as_ptr();
                // SAFETY: as in `write`.
                check("cuMemcpyAsync", unsafe {
                    let stream = copies.stream.raw();
                    sys::cuMemcpyAsync(copies.bounce.addr, from, part.len(), stream)
                })?;
                copies.stream.synchronize()?;
                // SAFETY: the copy has ended; the buffer is used under its lock only.
                unsafe { ptr::copy_nonoverlapping(bounce, part.as_mut_ptr(), part.len()) };
            }
            Ok(())
        })
    }
}

/// Pinned memory in place of device memory.
#[derive(Debug)]
struct HostAllocation {
    arena: Arc<CudaArena>,
    addr: u64,
    /// The owner of the memory, which is freed after `drop`.
    hold: Box<dyn Hold>,
}

impl Hold for HostAllocation {
    fn name(&self) -> Result<Option<Name>, GpuError> {
        self.hold.name()
    }
}

impl Drop for HostAllocation {
    fn drop(&mut self) {
        // No copy is under way: copies hold this lock.
        lock(&self.arena.live).remove(self.addr);
    }
}

/// Memory of the caller, while this device uses it.
#[derive(Debug)]
struct Lent {
    arena: Arc<CudaArena>,
    addr: u64,
    /// Bytes from `addr` on that are whole pages of the caller's allocation. 0 if there is no whole page to export.
    exported: usize,
}

impl Hold for Lent {
    fn dmabuf(&self, pcie: bool) -> Result<Option<MemoryDmabuf>, GpuError> {
        rdma::dmabuf(&self.arena.device, self.addr, self.exported, pcie)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // No copy is under way: copies hold this lock.
        lock(&self.arena.live).remove(self.addr);
    }
}

/// Memory of the caller that HCAs alone reach.
#[derive(Debug)]
struct ForHcas {
    arena: Arc<CudaArena>,
    /// The begin of the caller's allocation.
    base: CUdeviceptr,
    /// The first page that holds some of the memory, and the bytes of all such pages. 0 bytes if not all pages belong to the caller's
    /// allocation.
    first: u64,
    exported: u64,
    /// The offset in the first page at which the caller's memory begins.
    offset: u64,
}

impl Hold for ForHcas {
    fn name(&self) -> Result<Option<Name>, GpuError> {
        let addr = self.first + self.offset;
        share::name(&self.arena.device, self.base, addr).map(Some)
    }

    fn dmabuf(&self, pcie: bool) -> Result<Option<MemoryDmabuf>, GpuError> {
        let bytes = usize::try_from(self.exported).unwrap_or(0);
        let pages = rdma::dmabuf(&self.arena.device, self.first, bytes, pcie)?;
        Ok(pages.map(|pages| MemoryDmabuf {
            offset: pages.offset + self.offset,
            ..pages
        }))
    }
}

/// Returns the device of memory that the driver knows. A context is current.
fn device_of(addr: u64) -> Result<u32, GpuError> {
    let mut ordinal = 0i32;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: any address may be asked about; `ordinal` is an int, which is what the attribute is.
    let asked = unsafe { sys::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, addr) };
    check("cuPointerGetAttribute(DEVICE_ORDINAL)", asked)?;
    Ok(ordinal.cast_unsigned())
}

/// Returns begin and length of the allocation that has `addr`. A context is current.
fn allocation_of(addr: u64) -> Result<(u64, u64), GpuError> {
    let (mut base, mut length) = (0, 0);
    // SAFETY: any address may be asked about; both are written during the call.
    check("cuMemGetAddressRange", unsafe {
        sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut length, addr)
    })?;
    Ok((base, length as u64))
}

/// An allocation of the driver.
#[derive(Debug)]
struct Allocation {
    arena: Arc<CudaArena>,
    base: CUdeviceptr,
    addr: u64,
    /// Bytes from `addr` on that are whole pages. 0 if the allocation need not begin at a page.
    exported: usize,
}

impl Hold for Allocation {
    fn name(&self) -> Result<Option<Name>, GpuError> {
        share::name(&self.arena.device, self.base, self.addr).map(Some)
    }

    fn dmabuf(&self, pcie: bool) -> Result<Option<MemoryDmabuf>, GpuError> {
        rdma::dmabuf(&self.arena.device, self.addr, self.exported, pcie)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // When this returns, no copy of the memory is under way, and none can begin: copies hold this lock. `cuMemFree` waits for all
        // kernels, and the host may have to write a word before one of them ends. So this code does not hold the lock during that call.
        lock(&self.arena.live).remove(self.addr);
        // SAFETY: allocated in `alloc`, freed once.
        unsafe {
            self.arena
                .device
                .context()
                .give_back(Waiting::Free(self.base))
        };
    }
}

/// Pinned host memory, mapped on the device.
#[derive(Debug)]
struct Pinned {
    device: Arc<Device>,
    /// The address that the driver returned.
    base: NonNull<c_void>,
    /// The first of the bytes that the caller asked for.
    host: NonNull<u8>,
    addr: u64,
}

// SAFETY: plain memory; users synchronise access by a lock or by atomics.
unsafe impl Send for Pinned {}
// SAFETY: as for Send.
unsafe impl Sync for Pinned {}

impl Hold for Pinned {}

impl Pinned {
    /// Allocates `bytes` zeroed bytes at a multiple of `align` and of a page. The driver promises neither alignment: it puts several small
    /// allocations into one page.
    fn new(device: &Arc<Device>, bytes: usize, align: usize) -> Result<Self, GpuError> {
        check_request(bytes, align)?;
        let align = align.max(PAGE);
        let total = bytes
            .checked_next_multiple_of(PAGE)
            .and_then(|whole| whole.checked_add(align))
            .ok_or_else(|| no_memory(PINNED, bytes, "too long"))?;
        device.bind()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let mut base: *mut c_void = ptr::null_mut();
        // SAFETY: `base` is written during the call; freed in `drop`.
        let allocated = check("cuMemHostAlloc", unsafe {
            sys::cuMemHostAlloc(&raw mut base, total, flags)
        });
        let base = match (allocated, NonNull::new(base)) {
            (Ok(()), Some(base)) => base,
            (Ok(()), None) => {
                return Err(no_memory(PINNED, bytes, "the driver gave a null pointer"));
            }
            (Err(error), _) => return Err(no_memory(PINNED, bytes, &error.to_string())),
        };
        let first = base.cast::<u8>();
        // SAFETY: the next multiple of `align` is less than `align` bytes away, and `total` bytes are allocated.
        let host = unsafe { first.add(first.align_offset(align)) };
        // SAFETY: `bytes` bytes follow, as `total` is at least `bytes + align`.
        unsafe { host.write_bytes(0, bytes) };
        let mut pinned = Self {
            device: Arc::clone(device),
            base,
            host,
            addr: 0,
        };
        pinned.addr = device_address(host.as_ptr())?;
        Ok(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once.
        unsafe {
            self.device
                .context()
                .give_back(Waiting::FreeHost(self.base))
        };
    }
}

/// Kinds of memory, for messages.
const PINNED: &str = "pinned host";
const SHARED: &str = "shared host";

fn no_memory(kind: &'static str, bytes: usize, detail: &str) -> GpuError {
    GpuError::OutOfMemory {
        kind,
        bytes,
        detail: detail.to_owned(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
