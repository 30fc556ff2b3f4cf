//! Loaded kernels.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction, CUjit_option, CUmodule};

use super::driver::{Device, check, log};
use super::kernels::{self, Image};
use crate::gpu::GpuError;

/// Room for what the driver's compiler of PTX says when it refuses.
const LOG_BYTES: usize = 8 << 10;

/// A loaded image. Unloaded when dropped.
#[derive(Debug)]
pub(super) struct Module {
    device: Arc<Device>,
    raw: CUmodule,
}

// SAFETY: a module handle may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as for Send.
unsafe impl Sync for Module {}

impl Module {
    pub(super) fn load(device: &Arc<Device>, image: &Image) -> Result<Self, GpuError> {
        let text = c_string(&image.name, &image.ptx)?;
        let start = match &image.cubin {
            Some(code) => code.as_ptr().cast(),
            None => text.as_ptr().cast(),
        };
        device.bind()?;
        let mut raw = ptr::null_mut();
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // The driver takes the length in the place of a pointer.
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
            device: Arc::clone(device),
            raw,
        })
    }

    pub(super) fn function(&self, name: &str) -> Result<CUfunction, GpuError> {
        let text = c_string(name, name)?;
        let mut function = ptr::null_mut();
        self.device.bind()?;
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

/// What stands in a buffer up to its NUL.
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
