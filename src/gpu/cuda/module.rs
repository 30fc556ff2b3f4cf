//! Loaded kernels.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction, CUmodule};

use super::driver::{Device, check, log};
use super::kernels::Image;
use crate::gpu::GpuError;

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
        // SAFETY: `raw` is written during the call; the image is NUL-terminated PTX or a whole ELF file, which says its own
        // length, made by NVRTC; unloaded in `drop`.
        let loaded = unsafe { sys::cuModuleLoadData(&raw mut raw, start) };
        check("cuModuleLoadData", loaded)?;
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

fn c_string(what: &str, text: &str) -> Result<CString, GpuError> {
    CString::new(text).map_err(|_| GpuError::BadLaunch {
        kernel: what.to_owned(),
        detail: "its text holds a NUL".to_owned(),
    })
}
