//! What a CUDA device says about peers that read and write its memory (GPUDirect RDMA).

// UNSAFETY: calls of the driver API; takes over a file descriptor.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::os::fd::{FromRawFd, OwnedFd};

use cudarc::driver::sys::{
    self, CUdevice, CUdevice_attribute as Attribute, CUflushGPUDirectRDMAWritesScope as FlushScope,
    CUflushGPUDirectRDMAWritesTarget as FlushTarget, CUmemRangeHandleType,
};

use super::device::Device;
use super::driver::{attribute, check};
use crate::gpu::{GpuError, MemoryDmabuf, RdmaSupport, WriteOrdering};

/// `CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`.
const ACROSS_PCIE: u64 = 1;

/// Returns how HCAs reach the device's memory, by the device's attributes.
pub(super) fn support(device: CUdevice) -> Result<RdmaSupport, GpuError> {
    let number = |which| attribute(device, which);
    let flush = number(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)?;
    let ordering = number(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)?;
    Ok(RdmaSupport {
        registration: number(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)? != 0,
        dmabuf: number(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)? != 0,
        write_ordering: write_ordering(ordering),
        // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST and _MEMOPS.
        flush_by_host: flush & 1 != 0,
        flush_by_stream: flush & 2 != 0,
    })
}

/// Returns the ordering of a code of `CUGPUDirectRDMAWritesOrdering`: 0 none, 100 owner, 200 all devices.
fn write_ordering(code: u32) -> WriteOrdering {
    match code {
        0..100 => WriteOrdering::None,
        100..200 => WriteOrdering::Owner,
        _ => WriteOrdering::AllDevices,
    }
}

/// Exports `bytes` bytes at `addr`, whole pages of one live allocation, as a DMA-BUF. `None` for no pages, or if the device or its driver
/// has no DMA-BUFs. Drivers before 12.8 know no DMA-BUFs made for access across PCIe, and devices that have only PCIe may refuse them.
pub(super) fn dmabuf(
    device: &Device,
    addr: u64,
    bytes: usize,
    pcie: bool,
) -> Result<Option<MemoryDmabuf>, GpuError> {
    let supported = || device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
    if bytes == 0 || supported()? == 0 {
        return Ok(None);
    }
    device.bind()?;
    let fd = export(addr, bytes, if pcie { ACROSS_PCIE } else { 0 })?;
    Ok(Some(MemoryDmabuf {
        fd,
        offset: 0,
        pcie,
    }))
}

/// Waits until the device sees all writes of peers that have completed.
pub(super) fn flush(device: &Device) -> Result<(), GpuError> {
    device.bind()?;
    // SAFETY: a context of the device is current; the call takes two numbers.
    check("cuFlushGPUDirectRDMAWrites", unsafe {
        sys::cuFlushGPUDirectRDMAWrites(
            FlushTarget::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
            FlushScope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER,
        )
    })
}

fn export(addr: u64, bytes: usize, flags: u64) -> Result<OwnedFd, GpuError> {
    let mut fd = -1i32;
    let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    // SAFETY: `fd` is an int, which is what this kind of handle is; the range lies in a live allocation.
    let exported = unsafe {
        sys::cuMemGetHandleForAddressRange((&raw mut fd).cast(), addr, bytes, kind, flags)
    };
    check("cuMemGetHandleForAddressRange", exported)?;
    // SAFETY: the driver has just opened it, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orderings_are_read_by_rank_and_not_by_name() {
        assert_eq!(write_ordering(0), WriteOrdering::None);
        assert_eq!(write_ordering(100), WriteOrdering::Owner);
        assert_eq!(write_ordering(200), WriteOrdering::AllDevices);
        assert!(WriteOrdering::AllDevices > WriteOrdering::Owner);
    }
}
