//! Memory and registers that kernels reach, as the host owns them.

// UNSAFETY: host-mapped memory is shared with kernels; it is reached here through atomics only, never by reference.
#![expect(unsafe_code, reason = "atomics in memory that is shared with kernels")]

use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::error::GpuError;
use super::share::{MemoryHandle, Name};

/// The owner of an allocation or a mapping. Its drop ends them.
pub(super) trait Hold: Send + Sync + fmt::Debug {
    /// Returns the name by which other processes of this machine open the memory. None if they cannot reach it.
    fn name(&self) -> Result<Option<Name>, GpuError> {
        Ok(None)
    }

    /// Returns the memory as a DMA-BUF, made for access across PCIe or not. None if the memory has no such DMA-BUF.
    fn dmabuf(&self, _pcie: bool) -> Result<Option<MemoryDmabuf>, GpuError> {
        Ok(None)
    }
}

/// Device memory as a DMA-BUF, by which an HCA registers it without the driver's peer-memory module.
#[derive(Debug)]
pub struct MemoryDmabuf {
    /// The descriptor. An HCA may register the memory by it as long as the memory is allocated.
    pub fd: OwnedFd,
    /// The offset in the DMA-BUF at which the memory begins, in bytes.
    pub offset: u64,
    /// True if an HCA reaches its pages across PCIe (BAR) even if a coherent link exists.
    pub pcie: bool,
}

/// An allocation of device memory. Its drop frees it.
///
/// The allocation must outlive every kernel that uses it and every registration of it: see [`Gpu::launch`](super::Gpu::launch).
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

    /// Returns the name by which other processes open the memory. None for memory that only this process can reach.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn handle(&self) -> Result<Option<MemoryHandle>, GpuError> {
        let named = |name| MemoryHandle::new(self.bytes() as u64, name);
        Ok(self.hold.name()?.map(named))
    }

    /// Returns the address of the first byte, for kernels and, if registered, for the HCA.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the length in bytes that the caller asked for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory as DMA-BUFs, the best first. A GPU whose driver exports DMA-BUFs has them for memory that begins at a page of
    /// 4,096 bytes. Other memory has none, and an HCA reaches it by its address. If the driver refuses one DMA-BUF but gives another, the
    /// result leaves out the refused one.
    ///
    /// # Errors
    ///
    /// The driver's error if it refuses all DMA-BUFs, or the kernel's if no descriptor is left.
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

    /// Returns one of [`DeviceMemory::dmabufs`]: the one made for access across PCIe, or the other. None if the memory has no such DMA-BUF.
    ///
    /// # Errors
    ///
    /// The driver's errors, or the kernel's if no descriptor is left.
    pub fn dmabuf(&self, pcie: bool) -> Result<Option<MemoryDmabuf>, GpuError> {
        self.hold.dmabuf(pcie)
    }
}

/// Memory of another process, at an address for kernels of this process. Its drop closes it: after that no kernel may use it.
#[derive(Debug)]
pub struct OpenedMemory {
    addr: u64,
    bytes: u64,
    /// Bytes from `addr` to the end of the allocation.
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

    /// Returns the bytes from the memory's first byte to the end of its allocation, at least [`OpenedMemory::bytes`]. All of them are open.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    /// Returns the address of the first byte, for kernels of this process.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A page of device registers to which kernels can store. Its drop ends this mapping.
#[derive(Debug)]
pub struct MappedMmio {
    addr: u64,
    _hold: Box<dyn Hold>,
}

impl MappedMmio {
    pub(super) fn new(addr: u64, hold: Box<dyn Hold>) -> Self {
        Self { addr, _hold: hold }
    }

    /// Returns registers that are not on the mapped page but at `addr`, as kernels address them. It is for a device of another crate, such
    /// as an HCA that is a kernel itself. The device keeps the registers at `addr` as long as the result lives.
    #[must_use]
    pub fn elsewhere(addr: u64) -> Self {
        Self::new(addr, Box::new(Elsewhere))
    }

    /// Returns the address for kernels of the host address given to [`Gpu::map_mmio`](super::Gpu::map_mmio).
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }
}

/// An owner of nothing.
#[derive(Debug)]
struct Elsewhere;

impl Hold for Elsewhere {}

/// Host memory that kernels reach. Its drop frees it. The host reads and writes it word by word, atomically.
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
    /// Returns the address of the first byte in this process. An HCA that reaches the memory uses the same address.
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

    /// Returns the address of the first byte for kernels.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the 4-byte word at `offset` bytes.
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
