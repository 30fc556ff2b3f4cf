//! A CUDA GPU by the driver API, opened at run time: without a driver there is an error, never a panic.
//!
//! Kernels come from the checked-in PTX of the newest architecture that the device can run; the driver compiles it when the
//! device is opened. One stream for launches, one for copies, neither of which waits for any other.

// UNSAFETY: loads and launches kernels by the driver API.
#![expect(
    unsafe_code,
    reason = "CUDA driver API; launching is unsafe, see `Gpu::launch`"
)]

mod driver;
mod memory;
mod ptx;

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUmodule};

use super::memory::{DeviceMemory, HostMapped, MappedMmio};
use super::{Event, Gpu, GpuError, Launch};
use driver::{CudaEvent, CudaStream, Device, check, log};
use memory::Arena;

/// Dynamic shared memory that needs no permission.
const SHARED_WITHOUT_ASKING: usize = 48 << 10;

/// A CUDA device.
#[derive(Debug)]
pub struct CudaGpu {
    kernels: BTreeMap<&'static str, Kernel>,
    /// Unloaded when the device is closed.
    _modules: Vec<Module>,
    arena: Arc<Arena>,
    stream: CudaStream,
    device: Arc<Device>,
}

#[derive(Debug)]
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
    /// Opens CUDA device `ordinal` and loads all kernels.
    ///
    /// # Errors
    ///
    /// [`GpuError::NoDriver`], [`GpuError::NoDevice`], or the driver's refusal of a module.
    pub fn open(ordinal: u32) -> Result<Arc<Self>, GpuError> {
        let device = Device::open(ordinal)?;
        let arena = Arena::new(&device)?;
        let stream = CudaStream::new(&device)?;
        let (mut kernels, mut modules) = (BTreeMap::new(), Vec::new());
        for source in ptx::sources(device.arch()).1 {
            let module = Module::load(&device, &source)?;
            for entry in ptx::entries(source.text) {
                let kernel = Kernel {
                    function: module.function(entry.name)?,
                    param_bytes: entry.param_bytes,
                };
                kernels.insert(entry.name, kernel);
            }
            modules.push(module);
        }
        Ok(Arc::new(Self {
            kernels,
            _modules: modules,
            arena,
            stream,
            device,
        }))
    }

    /// Names of all kernels, sorted.
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.kernels.keys().copied()
    }

    fn bad_launch(spec: &Launch<'_>, detail: String) -> GpuError {
        GpuError::BadLaunch {
            kernel: spec.kernel.to_owned(),
            detail,
        }
    }

    fn find(&self, spec: &Launch<'_>, params: &[u8]) -> Result<&Kernel, GpuError> {
        let Some(kernel) = self.kernels.get(spec.kernel) else {
            return Err(GpuError::UnknownKernel {
                kernel: spec.kernel.to_owned(),
                known: self.kernels().map(str::to_owned).collect(),
            });
        };
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
                "the device has no cooperative launches".to_owned(),
            ));
        }
        Ok(kernel)
    }
}

impl Gpu for CudaGpu {
    fn label(&self) -> String {
        self.device.name().to_owned()
    }

    fn alloc(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.arena.alloc(bytes, align)
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.arena.write(addr, bytes)
    }

    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), GpuError> {
        self.arena.read(addr, out)
    }

    fn map_mmio(&self, host: *mut u8, bytes: usize) -> Result<MappedMmio, GpuError> {
        self.arena.map_mmio(host, bytes)
    }

    fn map_host(&self, bytes: usize) -> Result<HostMapped, GpuError> {
        self.arena.map_host(bytes)
    }

    unsafe fn launch(&self, spec: &Launch<'_>, params: &[u8]) -> Result<Event, GpuError> {
        let kernel = self.find(spec, params)?;
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
        let (grid, block, stream) = (spec.grid, spec.block, self.stream.raw());
        // SAFETY: the kernel takes one struct of `params.len()` bytes (checked by `find`), which the driver copies during the
        // call; what it points to is kept by this function's caller.
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
                    stream,
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
                    stream,
                    args.as_mut_ptr(),
                    ptr::null_mut(),
                )
            }
        };
        check("cuLaunchKernel", launched)
            .map_err(|error| Self::bad_launch(spec, error.to_string()))?;
        Ok(Event::new(Arc::new(CudaEvent::record(
            &self.stream,
            spec.kernel,
        )?)))
    }
}

/// A loaded PTX file.
#[derive(Debug)]
struct Module {
    device: Arc<Device>,
    raw: CUmodule,
}

// SAFETY: a module handle may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as for Send.
unsafe impl Sync for Module {}

impl Module {
    fn load(device: &Arc<Device>, source: &ptx::Source) -> Result<Self, GpuError> {
        let text = c_string(source.path, source.text)?;
        device.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is written during the call; the image is NUL-terminated PTX; unloaded in `drop`.
        let loaded = unsafe { sys::cuModuleLoadData(&raw mut raw, text.as_ptr().cast()) };
        check("cuModuleLoadData", loaded).map_err(|error| GpuError::BadLaunch {
            kernel: source.path.to_owned(),
            detail: format!("{error}; this PTX needs a driver of release 580 or later"),
        })?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
        })
    }

    fn function(&self, name: &str) -> Result<CUfunction, GpuError> {
        let text = c_string(name, name)?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded and its context current; `function` is written during the call.
        let found = unsafe { sys::cuModuleGetFunction(&raw mut function, self.raw, text.as_ptr()) };
        check("cuModuleGetFunction", found)?;
        Ok(function)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        log(self.device.bind());
        // SAFETY: loaded in `load`, unloaded once, after the kernels that name it.
        log(check("cuModuleUnload", unsafe {
            sys::cuModuleUnload(self.raw)
        }));
    }
}

fn c_string(what: &str, text: &str) -> Result<CString, GpuError> {
    CString::new(text).map_err(|_| GpuError::BadLaunch {
        kernel: what.to_owned(),
        detail: "its text holds a NUL".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where there is no driver, opening is an error in words; where there is one, the tests in tests/gpu.rs take over.
    #[test]
    fn without_a_driver_opening_is_refused_politely() {
        match CudaGpu::open(4711) {
            Err(GpuError::NoDriver { detail }) => assert!(
                detail.contains("libcuda") || detail.contains("cuInit"),
                "{detail}"
            ),
            Err(GpuError::NoDevice { ordinal: 4711, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
