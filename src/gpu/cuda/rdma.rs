//! What a CUDA device says of peers that read and write its memory (GPUDirect RDMA).

// UNSAFETY: calls of the driver API; takes over a file descriptor.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUmemRangeHandleType};

use super::driver::{Device, check};
use crate::gpu::{GpuError, RdmaSupport, WriteOrdering};

/// Page of the host, in which ranges are exported.
const PAGE: u64 = 4096;

/// The device's attributes.
pub(super) fn support(device: &Device) -> Result<RdmaSupport, GpuError> {
    let flush =
        device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)?;
    let ordering =
        device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)?;
    Ok(RdmaSupport {
        registration: device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)?
            != 0,
        dmabuf: device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)? != 0,
        write_ordering: write_ordering(ordering),
        // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST and _MEMOPS.
        flush_by_host: flush & 1 != 0,
        flush_by_stream: flush & 2 != 0,
    })
}

/// `CUGPUDirectRDMAWritesOrdering`: 0 none, 100 owner, 200 all devices.
fn write_ordering(code: u32) -> WriteOrdering {
    match code {
        0..100 => WriteOrdering::None,
        100..200 => WriteOrdering::Owner,
        _ => WriteOrdering::AllDevices,
    }
}

/// A descriptor of `bytes` bytes at `addr`, which lie in one allocation; none if the device or its driver has no DMA-BUFs.
pub(super) fn dmabuf(
    device: &Arc<Device>,
    addr: u64,
    bytes: usize,
) -> Result<Option<OwnedFd>, GpuError> {
    if !addr.is_multiple_of(PAGE) || !(bytes as u64).is_multiple_of(PAGE) || bytes == 0 {
        return Err(GpuError::BadArgument {
            what: "DMA-BUF",
            value: format!("{bytes} bytes at {addr:#x}"),
            limit: format!("whole pages of {PAGE}"),
        });
    }
    if device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)? == 0 {
        return Ok(None);
    }
    device.bind()?;
    let mut fd = -1i32;
    let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    // SAFETY: `fd` is an int, which is what this kind of handle is; the range lies in a live allocation.
    let exported =
        unsafe { sys::cuMemGetHandleForAddressRange((&raw mut fd).cast(), addr, bytes, kind, 0) };
    check("cuMemGetHandleForAddressRange", exported)?;
    // SAFETY: the driver has just opened it, for us.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
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
