//! Calls of the driver that wait for all kernels of the context, and how this crate avoids them while a persistent kernel runs.
//!
//! Such calls free memory, end its registration, load and unload kernels, and make room for the stack of a kernel. On an H200 (driver
//! 580.159) each of them waited for a kernel in another stream. So while a persistent kernel runs, nothing is loaded. The room for stacks
//! is made before, and the other calls are put off until the last such kernel has ended.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::ffi::c_void;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUdeviceptr, CUmodule};

use super::driver::{check, log};
use crate::gpu::Mapping;

/// A thing to give back to the driver by a call that waits for all kernels. The driver takes each thing once.
#[derive(Debug)]
pub(super) enum Waiting {
    /// Device memory of `cuMemAlloc`.
    Free(CUdeviceptr),
    /// Pinned memory of `cuMemHostAlloc`.
    FreeHost(NonNull<c_void>),
    /// A mapping that `cuMemHostRegister` has registered. The mapping ends, too.
    Unregister(Mapping),
    /// A module of `cuModuleLoadDataEx`.
    Unload(CUmodule),
}

// SAFETY: addresses and handles of the driver may be given back by any thread.
unsafe impl Send for Waiting {}

impl Waiting {
    /// Makes the call. The context is current.
    ///
    /// # Safety
    ///
    /// `self` came from the driver of the current context as its variant says, and nothing uses or gives it back afterwards.
    pub(super) unsafe fn run(self) {
        // SAFETY: the caller's promise; `self` is gone after this.
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

/// The calls that a device has put off.
#[derive(Debug, Default)]
pub(super) struct PutOff(Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    /// Number of persistent kernels that are announced.
    kernels: usize,
    calls: Vec<Waiting>,
}

impl PutOff {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether a call would have to wait for a persistent kernel.
    pub(super) fn waits(&self) -> bool {
        self.kernels > 0
    }

    /// Returns `call` if it can be made now, or puts it off.
    pub(super) fn unless_put_off(&mut self, call: Waiting) -> Option<Waiting> {
        if !self.waits() {
            return Some(call);
        }
        self.calls.push(call);
        None
    }

    /// Counts a persistent kernel that is announced.
    pub(super) fn announced(&mut self) {
        self.kernels += 1;
    }

    /// Counts a persistent kernel that has ended. Returns the calls that were put off if it was the last.
    pub(super) fn ended(&mut self) -> Vec<Waiting> {
        self.kernels -= 1;
        if self.waits() {
            return Vec::new();
        }
        mem::take(&mut self.calls)
    }
}
