//! What `warpverbs.bench` measures the host's part of a call with: a CPU device on which nothing runs.
//!
//! A team that does work never gets such a device. No variable and no argument names it, and no function but the one here makes
//! it.

// UNSAFETY: implements `Gpu`, two of whose functions are unsafe to call.
#![expect(
    unsafe_code,
    reason = "the trait `Gpu` declares unsafe functions; none of them does anything unsafe here"
)]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use warpverbs::gpu::simt::SimtGpu;
use warpverbs::gpu::{
    DeviceFacts, DeviceMemory, Event, Gpu, GpuError, HostMapped, KernelSet, Launch, MappedMmio,
    MemoryHandle, OpenedMemory, RegisterKind, Stream,
};
use warpverbs::team::{MemoryStore, Store, TeamConfig, TeamError};
use warpverbs::verbs::{Context, DeviceSelector};

use crate::call::SendArguments;
use crate::error::Raise;
use crate::team::Team;

/// Longest wait for the event that stands for every launch.
const LONG: Duration = Duration::from_secs(10);

/// The memory and streams of [`SimtGpu`], and launches that have ended when they are made: their kernels do not run.
#[derive(Debug)]
struct Stubs {
    simt: Arc<SimtGpu>,
    ended: Event,
}

impl Stubs {
    fn open() -> Result<Self, GpuError> {
        let simt = SimtGpu::open()?;
        let ended = simt.default_stream().record()?;
        ended.wait(LONG)?;
        Ok(Self { simt, ended })
    }
}

/// A team of one rank whose kernels are stubs.
#[pyfunction]
pub(crate) fn team_of_stubs(py: Python<'_>) -> PyResult<Team> {
    let made = py.detach(|| {
        let device = Context::open(&DeviceSelector::Auto).map_err(TeamError::from)?;
        let gpu: Arc<dyn Gpu> = Arc::new(Stubs::open().map_err(TeamError::from)?);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        warpverbs::team::Team::join(TeamConfig::new(0, 1), &device, &gpu, store)
    });
    Ok(Team::of(made.map_err(|error| error.raise(py))?))
}

/// Takes what a dispatch takes, and gives the GIL back and takes it again, as a dispatch does. It does nothing else.
#[pyfunction]
pub(crate) fn cross(py: Python<'_>, input: SendArguments, stream: usize, used: Py<PyAny>) -> u64 {
    drop(used);
    py.detach(|| std::hint::black_box((input, stream)).0.0)
}

impl Gpu for Stubs {
    fn label(&self) -> String {
        "simt, kernels stubbed".to_owned()
    }

    fn device_id(&self) -> String {
        self.simt.device_id()
    }

    fn alloc(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.simt.alloc(bytes, align)
    }

    fn alloc_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.simt.alloc_shared(bytes, align)
    }

    fn open_memory(&self, handle: &MemoryHandle) -> Result<OpenedMemory, GpuError> {
        self.simt.open_memory(handle)
    }

    fn allocated(&self) -> u64 {
        self.simt.allocated()
    }

    fn check_range(&self, addr: u64, bytes: usize) -> Result<(), GpuError> {
        self.simt.check_range(addr, bytes)
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.simt.write(addr, bytes)
    }

    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), GpuError> {
        self.simt.read(addr, out)
    }

    fn map_mmio(&self, host: *mut u8, bytes: usize) -> Result<MappedMmio, GpuError> {
        self.simt.map_mmio(host, bytes)
    }

    fn map_mmio_as(
        &self,
        host: *mut u8,
        bytes: usize,
        kind: RegisterKind,
    ) -> Result<MappedMmio, GpuError> {
        self.simt.map_mmio_as(host, bytes, kind)
    }

    fn facts(&self) -> Result<DeviceFacts, GpuError> {
        self.simt.facts()
    }

    fn map_host(&self, bytes: usize) -> Result<HostMapped, GpuError> {
        self.simt.map_host(bytes)
    }

    fn resident_blocks(
        &self,
        kernel: &str,
        threads: u32,
        shared_bytes: usize,
    ) -> Result<Option<u32>, GpuError> {
        self.simt.resident_blocks(kernel, threads, shared_bytes)
    }

    fn default_stream(&self) -> Stream {
        self.simt.default_stream()
    }

    fn stream(&self) -> Result<Stream, GpuError> {
        self.simt.stream()
    }

    unsafe fn wrap_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.simt.wrap_memory(addr, bytes) }
    }

    unsafe fn lend_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.simt.lend_memory(addr, bytes) }
    }

    fn buffer_id(&self, addr: u64) -> Result<Option<u64>, GpuError> {
        self.simt.buffer_id(addr)
    }

    unsafe fn wrap_stream(&self, raw: *mut c_void) -> Result<Stream, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.simt.wrap_stream(raw) }
    }

    fn add_kernels(&self, set: &'static KernelSet) -> Result<(), GpuError> {
        self.simt.add_kernels(set)
    }

    unsafe fn launch(&self, _: &Launch<'_>, _: &[u8]) -> Result<Event, GpuError> {
        Ok(self.ended.clone())
    }
}
