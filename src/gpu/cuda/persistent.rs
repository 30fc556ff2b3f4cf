//! Kernels that do not end by themselves.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::sync::Arc;

use cudarc::driver::sys::{self, CUlimit};

use super::device::Device;
use super::driver::check;
use super::module::Module;
use crate::gpu::GpuError;
use crate::gpu::launch::Running;

/// An announcement of one persistent kernel. Its drop comes after the kernel's end.
#[derive(Debug)]
pub(super) struct PersistentKernel {
    /// The device stays open, so that opening it again finds this one, which knows that the kernel runs.
    device: Arc<Device>,
    /// The modules that are loaded, which stay loaded, so that opening the device again needs no load.
    modules: Vec<Module>,
}

impl PersistentKernel {
    /// Announces a persistent kernel. Kernels with at most `local` bytes of local memory are launched beside it. This raises the driver's
    /// limit now: otherwise the driver would make room at the first launch that needs more than the limit, and wait there.
    pub(super) fn announce(
        device: &Arc<Device>,
        local: u32,
        modules: Vec<Module>,
    ) -> Result<Self, GpuError> {
        device.bind()?;
        let stack = local as usize;
        let limit = CUlimit::CU_LIMIT_STACK_SIZE;
        let mut has = 0;
        // SAFETY: `has` is written during the call; the context is current.
        check("cuCtxGetLimit", unsafe {
            sys::cuCtxGetLimit(&raw mut has, limit)
        })?;
        if has < stack {
            // SAFETY: the context is current.
            check("cuCtxSetLimit(STACK_SIZE)", unsafe {
                sys::cuCtxSetLimit(limit, stack)
            })?;
        }
        device.context().put_off().announced();
        Ok(Self {
            device: Arc::clone(device),
            modules,
        })
    }
}

impl Running for PersistentKernel {}

impl Drop for PersistentKernel {
    fn drop(&mut self) {
        // Modules that have no other owner are unloaded with the calls that were put off.
        self.modules.clear();
        self.device.context().end_persistent();
    }
}
