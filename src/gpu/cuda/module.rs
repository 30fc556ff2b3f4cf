//! Loaded kernels. All users of a device share them, since loading waits for all kernels that run on the device.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{self, CUfunction, CUjit_option, CUmodule};

use super::context::Context;
use super::driver::check;
use super::kernels::{self, Image};
use super::waiting::Waiting;
use super::widen::code_of;
use crate::gpu::GpuError;

/// A kernel of a loaded image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub(super) function: CUfunction,
    /// Bytes of the kernel's parameter struct, as the PTX declares it.
    pub(super) param_bytes: usize,
}

// SAFETY: a function handle may be launched from any thread; its module is kept by the same `CudaGpu`.
unsafe impl Send for Kernel {}
// SAFETY: as for Send.
unsafe impl Sync for Kernel {}

/// Room for the log of the driver's compiler of PTX.
const LOG_BYTES: usize = 8 << 10;

/// A loaded image. It is unloaded when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Module(Arc<Loaded>);

/// The loaded images of a device, by the name of their code and by whether they are machine code.
#[derive(Debug, Default)]
pub(super) struct Modules(Mutex<BTreeMap<(String, bool), Weak<Loaded>>>);

#[derive(Debug)]
struct Loaded {
    context: Arc<Context>,
    raw: CUmodule,
}

// SAFETY: a module handle may be used from any thread.
unsafe impl Send for Loaded {}
// SAFETY: as for Send.
unsafe impl Sync for Loaded {}

impl Modules {
    /// Returns the image, after loading it if it is not loaded yet.
    pub(super) fn load(&self, context: &Arc<Context>, image: &Image) -> Result<Module, GpuError> {
        // The lock is held while the image is loaded, so that of two threads with one image only one loads it.
        let mut modules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (code_of(&image.ptx), image.cubin.is_some());
        if let Some(loaded) = modules.get(&key).and_then(Weak::upgrade) {
            return Ok(Module(loaded));
        }
        if context.put_off().waits() {
            return Err(GpuError::BadArgument {
                what: "a module",
                value: format!("{}, which is not loaded", image.name),
                limit: "loaded before the persistent kernel that runs (Gpu::persistent): the driver loads none beside it"
                    .to_owned(),
            });
        }
        let loaded = Arc::new(Loaded::new(context, image)?);
        modules.retain(|_, loaded| loaded.strong_count() > 0);
        modules.insert(key, Arc::downgrade(&loaded));
        Ok(Module(loaded))
    }
}

impl Module {
    pub(super) fn function(&self, name: &str) -> Result<CUfunction, GpuError> {
        let text = c_string(name, name)?;
        let mut function = ptr::null_mut();
        self.0.context.bind()?;
        // SAFETY: the module is loaded and its context current; `function` is written during the call.
        let found =
            unsafe { sys::cuModuleGetFunction(&raw mut function, self.0.raw, text.as_ptr()) };
        check("cuModuleGetFunction", found)?;
        Ok(function)
    }
}

impl Loaded {
    fn new(context: &Arc<Context>, image: &Image) -> Result<Self, GpuError> {
        let text = c_string(&image.name, &image.ptx)?;
        let start = match &image.cubin {
            Some(code) => code.as_ptr().cast(),
            None => text.as_ptr().cast(),
        };
        context.bind()?;
        let mut raw = ptr::null_mut();
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // The driver takes the length in place of a pointer.
        let mut values = [
            log.as_mut_ptr().cast(),
            ptr::without_provenance_mut(LOG_BYTES),
        ];
        // SAFETY: the driver writes `raw` during the call. The image is NUL-terminated PTX, or a whole ELF file made by NVRTC,
        // which holds its own length. The two options have their values; the first is a buffer as long as the second says, and
        // the driver writes it during the call. `drop` unloads the module.
        let loaded = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut raw,
                start,
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        check("cuModuleLoadDataEx", loaded)
            .map_err(|refusal| kernels::refused(&image.name, refusal, &text_of(&log)))?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
        })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: loaded in `new`, unloaded once, after the kernels that name it.
        unsafe { self.context.give_back(Waiting::Unload(self.raw)) };
    }
}

/// Returns the text in a buffer up to its NUL.
fn text_of(log: &[u8]) -> String {
    let text = log.split(|byte| *byte == 0).next().unwrap_or(log);
    String::from_utf8_lossy(text).trim().to_owned()
}

fn c_string(what: &str, text: &str) -> Result<CString, GpuError> {
    CString::new(text).map_err(|_| GpuError::BadLaunch {
        kernel: what.to_owned(),
        detail: "its text holds a NUL".to_owned(),
    })
}
