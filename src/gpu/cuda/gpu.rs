//! A CUDA GPU.

// UNSAFETY: loads and launches kernels by the driver API.
#![expect(
    unsafe_code,
    reason = "CUDA driver API; launching is unsafe, see `Gpu::launch`"
)]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, PoisonError, RwLock};

use cudarc::driver::sys::{self, CUfunction_attribute, CUresult};

use super::device::Device;
use super::driver::check;
use super::kernels::{self, Image, KernelLoading, Target};
use super::memory::CudaArena;
use super::module::{Kernel, Module};
use super::options::{CudaOptions, MemoryLocation};
use super::persistent::PersistentKernel;
use super::sources::CudaSource;
use super::stream::{Code, CudaStream};
use super::{facts, nvrtc, ptx, rdma, share};
use crate::gpu::kernel_set::{KernelSet, KernelTable, LIBRARY};
use crate::gpu::{
    Arena, CopyPiece, DeviceFacts, DeviceMemory, Event, Gpu, GpuError, GpuSlot, Launch, MappedMmio,
    MemoryHandle, OpenedMemory, Persistent, RdmaSupport, RegisterKind, Stream,
};

/// The number of bytes of dynamic shared memory that a launch may have without asking the driver.
const SHARED_WITHOUT_ASKING: usize = 48 << 10;

/// A CUDA device.
#[derive(Debug)]
pub struct CudaGpu {
    kernels: RwLock<KernelTable<Kernel>>,
    /// How the device loads the kernels of further sets.
    way: KernelLoading,
    arena: Arc<CudaArena>,
    stream: Arc<CudaStream>,
    /// Owner of the modules whose functions are in `kernels`.
    code: Arc<Code>,
    device: Arc<Device>,
}

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

    /// Opens the device of a context that the program has. It must be the device's primary context, which is kept as long as the program or
    /// this device uses it.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadArgument`] for null, and for a context that the program made beside the primary one. The errors of [`CudaGpu::open`].
    ///
    /// # Safety
    ///
    /// `context` is null or a `CUcontext` that lives through the call.
    pub unsafe fn of_context(context: *mut c_void) -> Result<Arc<Self>, GpuError> {
        // SAFETY: the caller's promise.
        let device = unsafe { Device::of_context(context.cast()) }?;
        Self::open(device.slot().ordinal)
    }

    /// Opens a device that also knows the kernels of these PTX texts.
    ///
    /// # Errors
    ///
    /// As [`CudaGpu::open`].
    pub fn with_ptx(ordinal: u32, ptx: &[CudaSource<'_>]) -> Result<Arc<Self>, GpuError> {
        let default = CudaOptions::default();
        Self::with_options(ordinal, &CudaOptions { ptx, ..default })
    }

    /// Opens a device that also knows the kernels of these `.cu` texts, which NVRTC compiles for it. `#include <warpverbs/put.cuh>` finds
    /// the device library, and `#include "NAME"` finds `headers`.
    ///
    /// # Errors
    ///
    /// As [`CudaGpu::open`], and [`GpuError::Compile`] if NVRTC is not found or refuses a text.
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

    /// Opens a device with these options.
    ///
    /// # Errors
    ///
    /// As [`CudaGpu::with_sources`].
    pub fn with_options(ordinal: u32, options: &CudaOptions<'_>) -> Result<Arc<Self>, GpuError> {
        let device = Device::open(ordinal)?;
        let arena = CudaArena::new(&device, options.location)?;
        let target = Target {
            arch: device.arch(),
            driver: device.driver_version(),
        };
        let load = |image: &Image| device.load(image);
        let (library, extra) = kernels::load_all(target, options, nvrtc::Nvrtc::find, load)?;
        let mut known = KernelTable::new();
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

    /// Returns the names of all kernels, sorted.
    pub fn kernels(&self) -> impl Iterator<Item = String> + use<> {
        let known = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        known.names().into_iter()
    }

    /// Returns the compute capability, for example 90 for sm_90.
    #[must_use]
    pub fn arch(&self) -> u32 {
        self.device.arch()
    }

    /// Returns the CUDA version that the driver runs: 13000 for 13.0.
    #[must_use]
    pub fn driver_version(&self) -> u32 {
        self.device.driver_version()
    }

    /// Returns the number of multiprocessors.
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

    /// Returns the stream of a launch, after a check that it is a stream of this device.
    fn stream_of<'a>(&'a self, spec: &Launch<'a>) -> Result<&'a CudaStream, GpuError> {
        let Some(stream) = spec.stream else {
            return Ok(&self.stream);
        };
        let stream = stream.downcast::<CudaStream>();
        let own = stream.filter(|stream| stream.is_of(&self.code));
        own.ok_or_else(|| GpuError::BadArgument {
            what: "stream",
            value: "of another device".to_owned(),
            limit: "a stream of this device".to_owned(),
        })
    }

    /// Asks the driver to allow the dynamic shared memory of a launch, and returns its bytes. The context is current.
    fn allow_shared(kernel: Kernel, spec: &Launch<'_>) -> Result<u32, GpuError> {
        let refused = |detail| Self::bad_launch(spec, detail);
        let shared = u32::try_from(spec.shared_bytes)
            .map_err(|_| refused(format!("{} bytes of shared memory", spec.shared_bytes)))?;
        if spec.shared_bytes > SHARED_WITHOUT_ASKING {
            let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function belongs to a loaded module.
            let allowed =
                unsafe { sys::cuFuncSetAttribute(kernel.function, limit, shared.cast_signed()) };
            check("cuFuncSetAttribute", allowed)
                .map_err(|error| refused(format!("{shared} bytes of shared memory: {error}")))?;
        }
        Ok(shared)
    }
}

impl Gpu for CudaGpu {
    fn label(&self) -> String {
        self.device.name().to_owned()
    }

    /// Returns a name by the driver's number, since every `CudaGpu` of a device uses the same primary context.
    fn device_id(&self) -> String {
        format!("cuda{}", self.device.number())
    }

    fn slot(&self) -> Option<GpuSlot> {
        Some(self.device.slot())
    }

    fn arena(&self) -> &dyn Arena {
        &self.arena
    }

    fn alloc_host(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.arena.alloc_host(bytes, align)
    }

    fn alloc_host_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.arena.alloc_file(bytes, align)
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

    fn copies_within(&self) -> Option<&'static str> {
        // With unified addressing, all devices and the host share one address space.
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
        // The lock is held while the kernels are loaded, so that of two threads with one set only one loads it.
        let mut known = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        if known.has(set) {
            return Ok(());
        }
        let mut load = |image: &Image| self.device.load(image);
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
        let stream = self.stream_of(spec)?;
        self.device.bind()?;
        let shared = Self::allow_shared(kernel, spec)?;
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

/// Returns the kernels of loaded images, by name.
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
