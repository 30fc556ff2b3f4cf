//! The device of a rank: its GPU, with twins in place of UAR pages.

// UNSAFETY: reads a word of a UAR page by its address; passes launches and streams on.
#![expect(
    unsafe_code,
    reason = "a word of a UAR page; declarations of the trait"
)]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::abi::TWIN;
use warpverbs::gpu::{
    DeviceFacts, DeviceMemory, Event, Gpu, GpuError, GpuSlot, HostMapped, KernelSet, Launch,
    MappedMmio, MemoryHandle, OpenedMemory, Persistent, RdmaSupport, RegisterKind, Stream,
};

/// A GPU whose kernels ring `gpuhca`.
#[derive(Debug)]
pub(super) struct RankGpu {
    gpu: Arc<dyn Gpu>,
    /// Blocks of the HCA's kernel and multiprocessors of the GPU. None: the device has no such.
    taken: Option<(u32, u32)>,
}

impl RankGpu {
    pub(super) fn new(gpu: Arc<dyn Gpu>, taken: Option<(u32, u32)>) -> Self {
        Self { gpu, taken }
    }
}

/// Of `resident` blocks of all `multiprocessors`: those that fit where none of `blocks` blocks of another kernel runs.
fn beside(resident: u32, (blocks, multiprocessors): (u32, u32)) -> u32 {
    let each = resident / multiprocessors.max(1);
    each * multiprocessors.saturating_sub(blocks)
}

impl Gpu for RankGpu {
    fn label(&self) -> String {
        self.gpu.label()
    }

    fn device_id(&self) -> String {
        self.gpu.device_id()
    }

    fn slot(&self) -> Option<GpuSlot> {
        self.gpu.slot()
    }

    fn alloc(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.gpu.alloc(bytes, align)
    }

    fn alloc_host_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.gpu.alloc_host_shared(bytes, align)
    }

    fn alloc_host(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.gpu.alloc_host(bytes, align)
    }

    fn alloc_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.gpu.alloc_shared(bytes, align)
    }

    fn open_memory(&self, handle: &MemoryHandle) -> Result<OpenedMemory, GpuError> {
        self.gpu.open_memory(handle)
    }

    /// The HCA is a kernel of the same GPU: it takes memory by its address, and what it writes is in order.
    fn rdma(&self) -> Result<RdmaSupport, GpuError> {
        Ok(RdmaSupport::HOST)
    }

    fn allocated(&self) -> u64 {
        self.gpu.allocated()
    }

    fn check_range(&self, addr: u64, bytes: usize) -> Result<(), GpuError> {
        self.gpu.check_range(addr, bytes)
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.gpu.write(addr, bytes)
    }

    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), GpuError> {
        self.gpu.read(addr, out)
    }

    fn map_mmio(&self, host: *mut u8, bytes: usize) -> Result<MappedMmio, GpuError> {
        let refuse = |value: String| GpuError::BadArgument {
            what: "register page",
            value,
            limit: "a page of 4096 bytes of an external HCA of softhca, whose executor is attached"
                .to_owned(),
        };
        if host.is_null() || !host.addr().is_multiple_of(4096) || bytes != 4096 {
            return Err(refuse(format!("{bytes} bytes at {host:p}")));
        }
        // SAFETY: a whole page that the caller has mapped and keeps mapped; softhca stores to this word atomically.
        let twin = unsafe { AtomicU64::from_ptr(host.add(TWIN as usize).cast()) };
        // Acquire: pairs with softhca's release when it gave the page its twin.
        match twin.load(Ordering::Acquire) {
            0 => Err(refuse(format!("{host:p} without a twin"))),
            twin => Ok(MappedMmio::elsewhere(twin)),
        }
    }

    /// A twin is memory of the GPU, whatever its page is.
    fn map_mmio_as(
        &self,
        host: *mut u8,
        bytes: usize,
        _kind: RegisterKind,
    ) -> Result<MappedMmio, GpuError> {
        self.map_mmio(host, bytes)
    }

    fn facts(&self) -> Result<DeviceFacts, GpuError> {
        self.gpu.facts()
    }

    fn resident_blocks(
        &self,
        kernel: &str,
        threads: u32,
        shared_bytes: usize,
    ) -> Result<Option<u32>, GpuError> {
        let resident = self.gpu.resident_blocks(kernel, threads, shared_bytes)?;
        Ok(match (resident, self.taken) {
            (Some(resident), Some(taken)) => Some(beside(resident, taken)),
            (resident, _) => resident,
        })
    }

    fn persistent(&self) -> Result<Persistent, GpuError> {
        self.gpu.persistent()
    }

    fn map_host(&self, bytes: usize) -> Result<HostMapped, GpuError> {
        self.gpu.map_host(bytes)
    }

    fn default_stream(&self) -> Stream {
        self.gpu.default_stream()
    }

    fn stream(&self) -> Result<Stream, GpuError> {
        self.gpu.stream()
    }

    unsafe fn wrap_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.gpu.wrap_memory(addr, bytes) }
    }

    unsafe fn lend_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.gpu.lend_memory(addr, bytes) }
    }

    fn buffer_id(&self, addr: u64) -> Result<Option<u64>, GpuError> {
        self.gpu.buffer_id(addr)
    }

    unsafe fn wrap_stream(&self, raw: *mut c_void) -> Result<Stream, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.gpu.wrap_stream(raw) }
    }

    fn add_kernels(&self, set: &'static KernelSet) -> Result<(), GpuError> {
        self.gpu.add_kernels(set)
    }

    unsafe fn launch(&self, spec: &Launch<'_>, params: &[u8]) -> Result<Event, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.gpu.launch(spec, params) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_the_multiprocessors_that_the_hca_leaves() {
        assert_eq!(beside(132, (16, 132)), 116);
        assert_eq!(beside(264, (16, 132)), 232);
        assert_eq!(beside(264, (132, 132)), 0);
        assert_eq!(beside(264, (200, 132)), 0);
        assert_eq!(beside(0, (1, 0)), 0);
    }
}
