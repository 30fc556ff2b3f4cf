//! Memory and registers that kernels reach, as owned by the host.

// UNSAFETY: host-mapped memory is shared with kernels; it is reached here through atomics only, never by reference.
#![expect(unsafe_code, reason = "atomics in memory that is shared with kernels")]

use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::error::GpuError;
use super::share::{MemoryHandle, Name};

/// What keeps an allocation or a mapping alive; dropping it ends it.
pub(super) trait Hold: Send + Sync + fmt::Debug {
    /// Returns how other processes of this machine name the memory; none if they do not reach it.
    fn name(&self) -> Result<Option<Name>, GpuError> {
        Ok(None)
    }

    /// Returns the memory as a DMA-BUF, made for access across PCIe or not; none if it has no such.
    fn dmabuf(&self, _pcie: bool) -> Result<Option<MemoryDmabuf>, GpuError> {
        Ok(None)
    }
}

/// Device memory as a DMA-BUF, by which an HCA registers it without the driver's peer-memory module.
#[derive(Debug)]
pub struct MemoryDmabuf {
    /// The descriptor; the memory may be registered by it as long as it is allocated.
    pub fd: OwnedFd,
    /// Where in it the memory begins, in bytes.
    pub offset: u64,
    /// Its pages are reached across PCIe (BAR), also where a coherent link would be taken.
    pub pcie: bool,
}

/// An allocation of device memory; dropping it frees it.
///
/// It must outlive every kernel that uses it and every registration of it: see [`Gpu::launch`](super::Gpu::launch).
#[derive(Debug)]
pub struct DeviceMemory {
    addr: u64,
    bytes: usize,
    hold: Box<dyn Hold>,
}

impl DeviceMemory {
    pub(super) fn new(addr: u64, bytes: usize, hold: Box<dyn Hold>) -> Self {
        Self { addr, bytes, hold }
    }

    /// Returns the name by which other processes open it; none for memory that only this one reaches.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn handle(&self) -> Result<Option<MemoryHandle>, GpuError> {
        let named = |name| MemoryHandle::new(self.bytes() as u64, name);
        Ok(self.hold.name()?.map(named))
    }

    /// First byte, as kernels and (registered) the HCA address it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes, as asked for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory as DMA-BUFs, the best first: of a GPU whose driver exports them, from memory that begins at a page of 4,096
    /// bytes. None for other memory, which an HCA reaches by its address. One that is refused is left out while another is had.
    ///
    /// # Errors
    ///
    /// The driver's if it refuses all, or the kernel's where no descriptor is left.
    pub fn dmabufs(&self) -> Result<Vec<MemoryDmabuf>, GpuError> {
        let across = self.dmabuf(true);
        if let Err(error) = &across {
            tracing::debug!("no DMA-BUF of {:#x} across PCIe: {error}", self.addr);
        }
        let across = across.ok().flatten();
        match self.dmabuf(false) {
            Err(error) if across.is_none() => Err(error),
            plain => Ok(across.into_iter().chain(plain.ok().flatten()).collect()),
        }
    }

    /// One of [`DeviceMemory::dmabufs`]: made for access across PCIe or not. None where the memory has no such.
    ///
    /// # Errors
    ///
    /// The driver's, or the kernel's where no descriptor is left.
    pub fn dmabuf(&self, pcie: bool) -> Result<Option<MemoryDmabuf>, GpuError> {
        self.hold.dmabuf(pcie)
    }
}

/// Memory of another process, where kernels of this one reach it. Dropping it closes it: no kernel may use it any more.
#[derive(Debug)]
pub struct OpenedMemory {
    addr: u64,
    bytes: u64,
    /// Bytes of its allocation from `addr` on.
    room: u64,
    _hold: Box<dyn Hold>,
}

impl OpenedMemory {
    pub(super) fn new(addr: u64, bytes: u64, room: u64, hold: Box<dyn Hold>) -> Self {
        Self {
            addr,
            bytes,
            room,
            _hold: hold,
        }
    }

    /// Length of its allocation after its first byte, at least [`OpenedMemory::bytes`]: all of it is open.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    /// First byte, as kernels of this process address it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A page of device registers that kernels can store to; dropping it ends this mapping of it.
#[derive(Debug)]
pub struct MappedMmio {
    addr: u64,
    _hold: Box<dyn Hold>,
}

impl MappedMmio {
    pub(super) fn new(addr: u64, hold: Box<dyn Hold>) -> Self {
        Self { addr, _hold: hold }
    }

    /// For a device of another crate whose registers stand elsewhere than on the mapped page, at `addr` as kernels address it. Such
    /// a device is an HCA that is a kernel itself. Its owner keeps the registers at `addr` for as long as the result lives.
    #[must_use]
    pub fn elsewhere(addr: u64) -> Self {
        Self::new(addr, Box::new(Elsewhere))
    }

    /// Returns the host address given to [`Gpu::map_mmio`](super::Gpu::map_mmio), as kernels address it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }
}

/// Keeps nothing.
#[derive(Debug)]
struct Elsewhere;

impl Hold for Elsewhere {}

/// Host memory that kernels reach; dropping it frees it. The host reads and writes it word by word, atomically.
#[derive(Debug)]
pub struct HostMapped {
    host: NonNull<u8>,
    addr: u64,
    bytes: usize,
    _hold: Box<dyn Hold>,
}

// SAFETY: `host` is only used for atomic access within the allocation that `_hold` (Send and Sync) keeps alive.
unsafe impl Send for HostMapped {}
// SAFETY: as for Send.
unsafe impl Sync for HostMapped {}

impl HostMapped {
    /// First byte in this process; where an HCA reaches it, too.
    #[must_use]
    pub fn host_addr(&self) -> u64 {
        self.host.as_ptr().expose_provenance() as u64
    }

    /// # Safety
    ///
    /// `host` starts `bytes` initialised bytes, aligned to 8, that `hold` keeps allocated.
    pub(super) unsafe fn new(
        host: NonNull<u8>,
        addr: u64,
        bytes: usize,
        hold: Box<dyn Hold>,
    ) -> Self {
        Self {
            host,
            addr,
            bytes,
            _hold: hold,
        }
    }

    /// First byte, as kernels address it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the word at `offset` bytes.
    ///
    /// # Panics
    ///
    /// If `offset` is not a multiple of 4 or the word is outside.
    #[must_use]
    pub fn u32_at(&self, offset: usize) -> &AtomicU32 {
        let at = self.at(offset, 4).cast::<u32>();
        // SAFETY: in bounds and aligned (checked by `at`); valid while `&self` lives; all access is atomic, here and in
        // kernels.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// Returns the 8-byte word at `offset` bytes.
    ///
    /// # Panics
    ///
    /// If `offset` is not a multiple of 8 or the word is outside.
    #[must_use]
    pub fn u64_at(&self, offset: usize) -> &AtomicU64 {
        let at = self.at(offset, 8).cast::<u64>();
        // SAFETY: as in `u32_at`.
        unsafe { AtomicU64::from_ptr(at) }
    }

    fn at(&self, offset: usize, width: usize) -> *mut u8 {
        assert!(
            offset.is_multiple_of(width)
                && offset
                    .checked_add(width)
                    .is_some_and(|end| end <= self.bytes),
            "a word of {width} bytes at {offset} of {} host-mapped bytes",
            self.bytes
        );
        // SAFETY: `offset` is inside the allocation of `bytes` bytes, checked above.
        unsafe { self.host.as_ptr().add(offset) }
    }
}
