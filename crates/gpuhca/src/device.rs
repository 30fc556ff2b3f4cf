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
    MappedMmio, MemoryHandle, OpenedMemory, RdmaSupport, RegisterKind, Stream,
};

/// A GPU whose kernels ring `gpuhca`.
#[derive(Debug)]
pub(super) struct RankGpu(Arc<dyn Gpu>);

impl RankGpu {
    pub(super) fn new(gpu: Arc<dyn Gpu>) -> Self {
        Self(gpu)
    }
}

impl Gpu for RankGpu {
    fn label(&self) -> String {
        self.0.label()
    }

    fn device_id(&self) -> String {
        self.0.device_id()
    }

    fn slot(&self) -> Option<GpuSlot> {
        self.0.slot()
    }

    fn alloc(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.0.alloc(bytes, align)
    }

    fn alloc_host_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.0.alloc_host_shared(bytes, align)
    }

    fn alloc_host(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.0.alloc_host(bytes, align)
    }

    fn alloc_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.0.alloc_shared(bytes, align)
    }

    fn open_memory(&self, handle: &MemoryHandle) -> Result<OpenedMemory, GpuError> {
        self.0.open_memory(handle)
    }

    /// The HCA is a kernel of the same GPU: it takes memory by its address, and what it writes is in order.
    fn rdma(&self) -> Result<RdmaSupport, GpuError> {
        Ok(RdmaSupport::HOST)
    }

    fn allocated(&self) -> u64 {
        self.0.allocated()
    }

    fn check_range(&self, addr: u64, bytes: usize) -> Result<(), GpuError> {
        self.0.check_range(addr, bytes)
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.0.write(addr, bytes)
    }

    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), GpuError> {
        self.0.read(addr, out)
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
        self.0.facts()
    }

    fn resident_blocks(
        &self,
        kernel: &str,
        threads: u32,
        shared_bytes: usize,
    ) -> Result<Option<u32>, GpuError> {
        self.0.resident_blocks(kernel, threads, shared_bytes)
    }

    fn map_host(&self, bytes: usize) -> Result<HostMapped, GpuError> {
        self.0.map_host(bytes)
    }

    fn default_stream(&self) -> Stream {
        self.0.default_stream()
    }

    fn stream(&self) -> Result<Stream, GpuError> {
        self.0.stream()
    }

    unsafe fn wrap_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.wrap_memory(addr, bytes) }
    }

    unsafe fn wrap_stream(&self, raw: *mut c_void) -> Result<Stream, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.wrap_stream(raw) }
    }

    fn add_kernels(&self, set: &'static KernelSet) -> Result<(), GpuError> {
        self.0.add_kernels(set)
    }

    unsafe fn launch(&self, spec: &Launch<'_>, params: &[u8]) -> Result<Event, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.launch(spec, params) }
    }
}
