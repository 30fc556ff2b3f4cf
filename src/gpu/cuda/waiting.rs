//! Calls of the driver that wait for all kernels of the context, and what is done about them beside a kernel that does not end by
//! itself.
//!
//! Such calls free memory, take back its registration, load and unload kernels, and make room for the stack of a kernel. Each of them
//! waited on an H200 for a kernel in another stream (driver 580.159). So beside a persistent kernel nothing is loaded, the room is
//! made before, and the rest is put off until the last such kernel has ended.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::ffi::c_void;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUdeviceptr, CUlimit, CUmodule};

use super::driver::{Device, check, log};
use super::module::Module;
use crate::gpu::launch::Running;
use crate::gpu::{GpuError, Mapping};

/// What a call of the driver gives back that waits for all kernels. The driver takes each of them once.
#[derive(Debug)]
pub(super) enum Waiting {
    /// Device memory of `cuMemAlloc`.
    Free(CUdeviceptr),
    /// Pinned memory of `cuMemHostAlloc`.
    FreeHost(NonNull<c_void>),
    /// A mapping that `cuMemHostRegister` has registered; it ends, too.
    Unregister(Mapping),
    /// A module of `cuModuleLoadDataEx`.
    Unload(CUmodule),
}

// SAFETY: addresses and handles of the driver may be given back by any thread.
unsafe impl Send for Waiting {}

impl Waiting {
    /// Gives it back now, or at the end of the last persistent kernel.
    ///
    /// # Safety
    ///
    /// It came from this device's driver as its variant says, and nothing uses or gives it back afterwards.
    pub(super) unsafe fn give_back(self, device: &Arc<Device>) {
        let mut put_off = device.put_off();
        if put_off.kernels > 0 {
            put_off.calls.push(self);
            return;
        }
        // Not under the lock: a kernel that this waits for may need another thread, which needs the lock.
        drop(put_off);
        self.run(device);
    }

    fn run(self, device: &Device) {
        log(device.bind());
        // SAFETY: promised to `give_back`, the only place that makes a call known here; `self` is gone behind this.
        let (call, result) = unsafe {
            match &self {
                Self::Free(addr) => ("cuMemFree", sys::cuMemFree_v2(*addr)),
                Self::FreeHost(base) => ("cuMemFreeHost", sys::cuMemFreeHost(base.as_ptr())),
                Self::Unregister(mapping) => {
                    let start = mapping.start().as_ptr().cast();
                    ("cuMemHostUnregister", sys::cuMemHostUnregister(start))
                }
                Self::Unload(module) => ("cuModuleUnload", sys::cuModuleUnload(*module)),
            }
        };
        log(check(call, result));
    }
}

/// What a device has put off.
#[derive(Debug, Default)]
pub(super) struct PutOff(Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    /// Persistent kernels that have been announced.
    kernels: usize,
    calls: Vec<Waiting>,
}

impl PutOff {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether a call that waits would wait for a persistent kernel.
    pub(super) fn waits(&self) -> bool {
        self.kernels > 0
    }
}

/// One persistent kernel. Ends behind it.
#[derive(Debug)]
pub(super) struct PersistentKernel {
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
        device.put_off().kernels += 1;
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
        let mut put_off = self.device.put_off();
        put_off.kernels -= 1;
        if put_off.kernels > 0 {
            return;
        }
        let calls = mem::take(&mut put_off.calls);
        drop(put_off);
        calls.into_iter().for_each(|call| call.run(&self.device));
    }
}
