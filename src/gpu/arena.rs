//! The memory of a device: allocations, and copies by the host.

// UNSAFETY: declarations only; how long memory stays allocated, no type can check.
#![expect(unsafe_code, reason = "takes memory on trust")]

use super::error::GpuError;
use super::memory::{DeviceMemory, HostMapped};

/// The memory of a device. Each function is that of [`Gpu`](super::Gpu) of the same name.
pub trait Arena {
    /// See [`Gpu::alloc`](super::Gpu::alloc).
    ///
    /// # Errors
    ///
    /// The errors of that function.
    fn alloc(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError>;

    /// See [`Gpu::alloc_shared`](super::Gpu::alloc_shared).
    ///
    /// # Errors
    ///
    /// The errors of that function.
    fn alloc_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError>;

    /// See [`Gpu::wrap_memory`](super::Gpu::wrap_memory).
    ///
    /// # Errors
    ///
    /// The errors of that function.
    ///
    /// # Safety
    ///
    /// The contract of that function.
    unsafe fn wrap_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError>;

    /// See [`Gpu::lend_memory`](super::Gpu::lend_memory).
    ///
    /// # Errors
    ///
    /// The errors of that function.
    ///
    /// # Safety
    ///
    /// The contract of that function.
    unsafe fn lend_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError>;

    /// See [`Gpu::map_host`](super::Gpu::map_host).
    ///
    /// # Errors
    ///
    /// The errors of that function.
    fn map_host(&self, bytes: usize) -> Result<HostMapped, GpuError>;

    /// See [`Gpu::allocated`](super::Gpu::allocated).
    fn allocated(&self) -> u64;

    /// See [`Gpu::check_range`](super::Gpu::check_range).
    ///
    /// # Errors
    ///
    /// The errors of that function.
    fn check_range(&self, addr: u64, bytes: usize) -> Result<(), GpuError>;

    /// See [`Gpu::write`](super::Gpu::write).
    ///
    /// # Errors
    ///
    /// The errors of that function.
    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), GpuError>;

    /// See [`Gpu::read`](super::Gpu::read).
    ///
    /// # Errors
    ///
    /// The errors of that function.
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), GpuError>;
}
