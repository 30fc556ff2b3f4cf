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

/// One persistent kernel. Ends after it.
#[derive(Debug)]
pub(super) struct PersistentKernel {
    /// Opening the device again finds this one, which knows that the kernel runs.
    device: Arc<Device>,
    /// Opening the device again finds them loaded.
    modules: Vec<Module>,
}

impl PersistentKernel {
    /// Announces one, beside which kernels with at most `local` bytes of local memory are launched. The driver makes room for more
    /// than the limit at the first launch that needs it, and waits there.
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
        // Those that nothing else keeps are unloaded with the rest.
        self.modules.clear();
        self.device.context().end_persistent();
    }
}
