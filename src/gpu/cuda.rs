//! A CUDA GPU by the driver API, opened at run time: without a driver the result is an error, never a panic.
//!
//! Kernels come from the checked-in PTX of the newest architecture that the device can run. The driver compiles it when the
//! device is opened. Where the driver is too old for it, they come from the embedded sources through NVRTC. No stream waits for
//! any other: neither that of copies, nor the default one, nor those that a user makes.
//!
//! ```no_run
//! use warpverbs::gpu::Gpu;
//! use warpverbs::gpu::cuda::{Compile, CudaGpu, CudaOptions};
//!
//! let gpu = CudaGpu::with_options(0, &CudaOptions::default().with_compile(Compile::Ptx))?;
//! println!("{}", gpu.label());
//! # Ok::<(), warpverbs::gpu::GpuError>(())
//! ```

// UNSAFETY: loads and launches kernels by the driver API.
#![expect(
    unsafe_code,
    reason = "CUDA driver API; launching is unsafe, see `Gpu::launch`"
)]

mod cubins;
mod driver;
mod facts;
mod functions;
mod kernels;
mod memory;
mod module;
mod nvrtc;
mod options;
mod ptx;
mod rdma;
mod register;
mod share;
mod sources;
mod stream;
mod survey;
mod waiting;
mod widen;

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, PoisonError, RwLock};

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUresult};

use super::kernel_set::{KernelSet, Known, LIBRARY};
use super::memory::{DeviceMemory, HostMapped, MappedMmio};
use super::{
    CopyPiece, DeviceFacts, Event, Gpu, GpuError, GpuSlot, Launch, MemoryHandle, OpenedMemory,
    Persistent, RdmaSupport, RegisterKind, Stream,
};
pub(super) use driver::visible;
use driver::{Device, check};
use kernels::{Image, KernelLoading, Target};
use memory::Arena;
use module::Module;
pub use options::{Compile, CudaOptions, MemoryLocation};
pub use sources::CudaSource;
use stream::{Code, CudaStream};
pub(super) use survey::survey;
use waiting::PersistentKernel;

/// File and version of the run-time compiler.
pub(super) fn found_nvrtc() -> Result<String, String> {
    nvrtc::Nvrtc::find().map(|nvrtc| nvrtc.to_string())
}

/// Dynamic shared memory that needs no permission.
const SHARED_WITHOUT_ASKING: usize = 48 << 10;

/// A CUDA device.
#[derive(Debug)]
pub struct CudaGpu {
    kernels: RwLock<Known<Kernel>>,
    /// How it gets those of further sets.
    way: KernelLoading,
    arena: Arc<Arena>,
    stream: Arc<CudaStream>,
    /// Keeps the functions of `kernels`.
    code: Arc<Code>,
    device: Arc<Device>,
}

#[derive(Clone, Copy, Debug)]
struct Kernel {
    function: CUfunction,
    /// Bytes of its parameter struct, as the PTX has it.
    param_bytes: usize,
}

// SAFETY: a function handle may be launched from any thread; its module is kept by the same `CudaGpu`.
unsafe impl Send for Kernel {}
// SAFETY: as for Send.
unsafe impl Sync for Kernel {}

impl CudaGpu {
    /// Opens CUDA device `ordinal` and loads all kernels of this crate.
    ///
    /// # Errors
    ///
    /// [`GpuError::NoDriver`], [`GpuError::NoStart`], [`GpuError::NoDevice`], [`GpuError::OldDriver`], [`GpuError::Compile`] for
    /// PTX that the driver calls invalid, or the driver's refusal of a module.
    pub fn open(ordinal: u32) -> Result<Arc<Self>, GpuError> {
        Self::with_options(ordinal, &CudaOptions::default())
    }

    /// Opens the device of a context that the program has. It is the primary context of the device, which is kept as long as either
    /// uses it.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadArgument`] for null, and for a context that the program made beside the primary one; as [`CudaGpu::open`].
    ///
    /// # Safety
    ///
    /// `context` is null or a `CUcontext` that lives through the call.
    pub unsafe fn of_context(context: *mut c_void) -> Result<Arc<Self>, GpuError> {
        // SAFETY: the caller's promise.
        let device = unsafe { Device::of_context(context.cast()) }?;
        Self::open(device.slot().ordinal)
    }

    /// A device that also knows the kernels of these PTX texts.
    ///
    /// # Errors
    ///
    /// As [`CudaGpu::open`].
    pub fn with_ptx(ordinal: u32, ptx: &[CudaSource<'_>]) -> Result<Arc<Self>, GpuError> {
        let default = CudaOptions::default();
        Self::with_options(ordinal, &CudaOptions { ptx, ..default })
    }

    /// A device that also knows the kernels of these `.cu` texts, which NVRTC compiles for it. `#include <warpverbs/put.cuh>`
    /// finds the device library, `#include "NAME"` finds `headers`.
    ///
    /// # Errors
    ///
    /// As [`CudaGpu::open`], and [`GpuError::Compile`] if NVRTC is not found or refuses one.
    pub fn with_sources(
        ordinal: u32,
        sources: &[CudaSource<'_>],
        headers: &[CudaSource<'_>],
    ) -> Result<Arc<Self>, GpuError> {
        let options = CudaOptions {
            sources,
            headers,
            ..CudaOptions::default()
        };
        Self::with_options(ordinal, &options)
    }

    /// A device with these options.
    ///
    /// # Errors
    ///
    /// As [`CudaGpu::with_sources`].
    pub fn with_options(ordinal: u32, options: &CudaOptions<'_>) -> Result<Arc<Self>, GpuError> {
        let device = Device::open(ordinal)?;
        let arena = Arena::new(&device)?;
        let target = Target {
            arch: device.arch(),
            driver: device.driver_version(),
        };
        let load = |image: &Image| Module::load(&device, image);
        let (library, extra) = kernels::load_all(target, options, nvrtc::Nvrtc::find, load)?;
        let mut known = Known::new();
        known.add(&LIBRARY, kernels_of(&library)?)?;
        for (name, kernel) in kernels_of(&extra)? {
            known.replace(name, kernel, "the device's options");
        }
        let modules = library.into_iter().chain(extra);
        let code = Code::new(modules.map(|(_, module)| module).collect());
        Ok(Arc::new(Self {
            kernels: RwLock::new(known),
            way: KernelLoading::new(target, options),
            arena,
            stream: Arc::new(CudaStream::for_kernels(&device, &code)?),
            code,
            device,
        }))
    }

    /// Names of all kernels, sorted.
    pub fn kernels(&self) -> impl Iterator<Item = String> + use<> {
        let known = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        known.names().into_iter()
    }

    /// Compute capability, 90 for sm_90.
    #[must_use]
    pub fn arch(&self) -> u32 {
        self.device.arch()
    }

    /// CUDA version that the driver runs: 13000 for 13.0.
    #[must_use]
    pub fn driver_version(&self) -> u32 {
        self.device.driver_version()
    }

    /// Number of multiprocessors.
    #[must_use]
    pub fn multiprocessors(&self) -> u32 {
        self.device.multiprocessors()
    }

    fn bad_launch(spec: &Launch<'_>, detail: String) -> GpuError {
        GpuError::BadLaunch {
            kernel: spec.kernel.to_owned(),
            detail,
        }
    }

    fn known(&self, kernel: &str) -> Result<Kernel, GpuError> {
        let known = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(kernel).copied();
        found.ok_or_else(|| GpuError::UnknownKernel {
            kernel: kernel.to_owned(),
            known: known.names(),
        })
    }

    fn find(&self, spec: &Launch<'_>, params: &[u8]) -> Result<Kernel, GpuError> {
        let kernel = self.known(spec.kernel)?;
        if params.len() != kernel.param_bytes {
            let (got, want) = (params.len(), kernel.param_bytes);
            return Err(Self::bad_launch(
                spec,
                format!("{got} bytes of parameters, it takes {want}"),
            ));
        }
        if spec.cooperative && !self.device.cooperative() {
            return Err(Self::bad_launch(
                spec,
                format!(
                    "{} (sm_{}) has no cooperative launches, in which all blocks run at once: choose another GPU",
                    self.device.name(),
                    self.device.arch()
                ),
            ));
        }
        Ok(kernel)
    }
}

impl Gpu for CudaGpu {
    fn label(&self) -> String {
        self.device.name().to_owned()
    }

    /// Every `CudaGpu` of a device uses its primary context.
    fn device_id(&self) -> String {
        format!("cuda{}", self.device.number())
    }

    fn slot(&self) -> Option<GpuSlot> {
        Some(self.device.slot())
    }

    fn alloc(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        match self.way.location {
            MemoryLocation::Device => self.arena.alloc(bytes, align),
            MemoryLocation::Host => self.arena.alloc_host(bytes, align),
        }
    }

    fn alloc_host(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.arena.alloc_host(bytes, align)
    }

    fn alloc_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        match self.way.location {
            MemoryLocation::Device => self.arena.alloc(bytes, align),
            MemoryLocation::Host => self.arena.alloc_file(bytes, align),
        }
    }

    fn alloc_host_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.arena.alloc_file(bytes, align)
    }

    unsafe fn wrap_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.arena.wrap(addr, bytes) }
    }

    unsafe fn lend_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.arena.lend(addr, bytes) }
    }

    fn buffer_id(&self, addr: u64) -> Result<Option<u64>, GpuError> {
        self.arena.buffer_id(addr)
    }

    fn flush_writes(&self) -> Result<(), GpuError> {
        rdma::flush(&self.device)
    }

    fn open_memory(&self, handle: &MemoryHandle) -> Result<OpenedMemory, GpuError> {
        share::open(&self.device, handle)
    }

    fn rdma(&self) -> Result<RdmaSupport, GpuError> {
        match self.way.location {
            MemoryLocation::Device => rdma::support(self.device.number()),
            MemoryLocation::Host => Ok(RdmaSupport::HOST),
        }
    }

    fn allocated(&self) -> u64 {
        self.arena.allocated()
    }

    fn check_range(&self, addr: u64, bytes: usize) -> Result<(), GpuError> {
        self.arena.check_range(addr, bytes)
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.arena.write(addr, bytes)
    }

    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), GpuError> {
        self.arena.read(addr, out)
    }

    fn copies_within(&self) -> Option<&'static str> {
        // Unified addressing: one address space of all devices and the host.
        Some("cuda")
    }

    unsafe fn copy(&self, pieces: &[CopyPiece]) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.arena.copy(pieces) }
    }

    fn map_mmio(&self, host: *mut u8, bytes: usize) -> Result<MappedMmio, GpuError> {
        self.arena.map_mmio(host, bytes, None)
    }

    fn map_mmio_as(
        &self,
        host: *mut u8,
        bytes: usize,
        kind: RegisterKind,
    ) -> Result<MappedMmio, GpuError> {
        self.arena.map_mmio(host, bytes, Some(kind))
    }

    fn facts(&self) -> Result<DeviceFacts, GpuError> {
        let known = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        facts::of(&self.device, &known)
    }

    fn map_host(&self, bytes: usize) -> Result<HostMapped, GpuError> {
        self.arena.map_host(bytes)
    }

    fn default_stream(&self) -> Stream {
        let stream: Arc<CudaStream> = Arc::clone(&self.stream);
        Stream::new(stream)
    }

    fn stream(&self) -> Result<Stream, GpuError> {
        let stream = CudaStream::for_kernels(&self.device, &self.code)?;
        Ok(Stream::new(Arc::new(stream)))
    }

    fn resident_blocks(
        &self,
        kernel: &str,
        threads: u32,
        shared_bytes: usize,
    ) -> Result<Option<u32>, GpuError> {
        let function = self.known(kernel)?.function;
        let threads = i32::try_from(threads).map_err(|_| GpuError::BadArgument {
            what: "threads of a block",
            value: threads.to_string(),
            limit: "at most 1024".to_owned(),
        })?;
        self.device.bind()?;
        let mut each = 0;
        // SAFETY: the function belongs to a loaded module whose context is current; `each` is written during the call.
        let found = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut each,
                function,
                threads,
                shared_bytes,
            )
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", found)?;
        let each = u32::try_from(each).unwrap_or(0);
        Ok(Some(each.saturating_mul(self.device.multiprocessors())))
    }

    unsafe fn wrap_stream(&self, raw: *mut c_void) -> Result<Stream, GpuError> {
        // SAFETY: the caller's promise.
        let stream = unsafe { CudaStream::wrap(&self.device, &self.code, raw.cast()) }?;
        Ok(Stream::new(Arc::new(stream)))
    }

    fn add_kernels(&self, set: &'static KernelSet) -> Result<(), GpuError> {
        // Held while they are loaded: of two threads with one set, one loads it.
        let mut known = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        if known.has(set) {
            return Ok(());
        }
        let mut load = |image: &Image| Module::load(&self.device, image);
        let loaded = kernels::load_set(self.way, set, &nvrtc::Nvrtc::find, &mut load)?;
        known.add(set, kernels_of(&loaded)?)?;
        let modules = loaded.into_iter().map(|(_, module)| module);
        self.code.add(modules.collect());
        Ok(())
    }

    fn persistent(&self) -> Result<Persistent, GpuError> {
        let known = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        let local = facts::most_local_bytes(&self.device, &known)?;
        let kernel = PersistentKernel::announce(&self.device, local, self.code.modules())?;
        Ok(Persistent::new(Box::new(kernel)))
    }

    unsafe fn launch(&self, spec: &Launch<'_>, params: &[u8]) -> Result<Event, GpuError> {
        let kernel = self.find(spec, params)?;
        let stream = match spec.stream {
            None => &*self.stream,
            Some(stream) => stream
                .downcast::<CudaStream>()
                .filter(|stream| stream.is_of(&self.code))
                .ok_or_else(|| GpuError::BadArgument {
                    what: "stream",
                    value: "of another device".to_owned(),
                    limit: "a stream of this device".to_owned(),
                })?,
        };
        let shared = u32::try_from(spec.shared_bytes).map_err(|_| {
            Self::bad_launch(
                spec,
                format!("{} bytes of shared memory", spec.shared_bytes),
            )
        })?;
        self.device.bind()?;
        if spec.shared_bytes > SHARED_WITHOUT_ASKING {
            let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function belongs to a loaded module.
            let allowed =
                unsafe { sys::cuFuncSetAttribute(kernel.function, limit, shared.cast_signed()) };
            check("cuFuncSetAttribute", allowed).map_err(|error| {
                Self::bad_launch(spec, format!("{shared} bytes of shared memory: {error}"))
            })?;
        }
        let mut args = [params.as_ptr().cast_mut().cast::<c_void>()];
        let (grid, block, queue) = (spec.grid, spec.block, stream.raw());
        // SAFETY: the kernel takes one struct of `params.len()` bytes (checked by `find`), which the driver copies during the
        // call. This function's caller keeps the memory that the struct points to.
        let launched = unsafe {
            if spec.cooperative {
                sys::cuLaunchCooperativeKernel(
                    kernel.function,
                    grid.x,
                    grid.y,
                    grid.z,
                    block.x,
                    block.y,
                    block.z,
                    shared,
                    queue,
                    args.as_mut_ptr(),
                )
            } else {
                sys::cuLaunchKernel(
                    kernel.function,
                    grid.x,
                    grid.y,
                    grid.z,
                    block.x,
                    block.y,
                    block.z,
                    shared,
                    queue,
                    args.as_mut_ptr(),
                    ptr::null_mut(),
                )
            }
        };
        check("cuLaunchKernel", launched).map_err(|error| {
            let detail = match launched {
                CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE => format!(
                    "{} blocks of {} threads do not run at once on {} multiprocessors: {error}",
                    grid.count(),
                    block.count(),
                    self.device.multiprocessors()
                ),
                _ => error.to_string(),
            };
            Self::bad_launch(spec, detail)
        })?;
        stream.mark(spec.kernel)
    }
}

/// The functions of loaded images, by name.
fn kernels_of(loaded: &[(Image, Module)]) -> Result<Vec<(String, Kernel)>, GpuError> {
    let mut kernels = Vec::new();
    for (image, module) in loaded {
        for entry in ptx::entries(&image.ptx) {
            let kernel = Kernel {
                function: module.function(entry.name)?,
                param_bytes: entry.param_bytes,
            };
            kernels.push((entry.name.to_owned(), kernel));
        }
    }
    Ok(kernels)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a driver, opening is an error in words. With a driver, the tests in tests/device/gpu.rs take over.
    #[test]
    fn without_a_driver_opening_is_refused_politely() {
        match CudaGpu::open(4711) {
            Err(GpuError::NoDriver { detail }) => assert!(detail.contains("libcuda"), "{detail}"),
            Err(GpuError::NoDevice { ordinal: 4711, .. } | GpuError::NoStart { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
