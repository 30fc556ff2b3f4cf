//! The primary context of a device.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::ptr;
use std::sync::{Arc, MutexGuard};

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUstreamCaptureMode};

use super::driver::{check, log};
use super::waiting::{PutOff, State, Waiting};
use crate::gpu::GpuError;

/// The primary context of a device. Everything made in the context holds this.
#[derive(Debug)]
pub(super) struct Context {
    device: CUdevice,
    raw: CUcontext,
    put_off: PutOff,
}

// SAFETY: driver contexts may be current on any number of threads.
unsafe impl Send for Context {}
// SAFETY: as for Send.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn retain(device: CUdevice) -> Result<Arc<Self>, GpuError> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is written during the call; released in `drop`.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut raw, device) };
        check("cuDevicePrimaryCtxRetain", retained)?;
        Ok(Arc::new(Self {
            device,
            raw,
            put_off: PutOff::default(),
        }))
    }

    /// Returns the driver's number of the device.
    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Makes the context current on this thread. Every use of the driver begins with this.
    pub(super) fn bind(&self) -> Result<(), GpuError> {
        // SAFETY: the context is retained while `self` lives.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }

    /// Runs `body` in relaxed capture mode, so that its calls are allowed while another thread captures a graph.
    pub(super) fn relaxed<T>(
        &self,
        body: impl FnOnce() -> Result<T, GpuError>,
    ) -> Result<T, GpuError> {
        self.bind()?;
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` is exchanged with this thread's mode during the call.
        let changed = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        check("cuThreadExchangeStreamCaptureMode", changed)?;
        let result = body();
        // SAFETY: as above; puts the old mode back.
        let restored = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        check("cuThreadExchangeStreamCaptureMode", restored).and(result)
    }

    /// Returns the calls that are put off.
    pub(super) fn put_off(&self) -> MutexGuard<'_, State> {
        self.put_off.lock()
    }

    /// Gives `what` back to the driver, by a call that waits for all kernels. While a persistent kernel runs, the call is put off until the
    /// last one has ended.
    ///
    /// # Safety
    ///
    /// `what` came from this context's driver as its variant says, and nothing uses or gives it back afterwards.
    pub(super) unsafe fn give_back(&self, what: Waiting) {
        let now = self.put_off().unless_put_off(what);
        // The call is not made under the lock: a kernel for which it waits may need another thread, which needs the lock.
        if let Some(what) = now {
            log(self.bind());
            // SAFETY: the caller's promise; the context is current.
            unsafe { what.run() };
        }
    }

    /// Notes the end of a persistent kernel, and makes the calls that were put off if it was the last.
    pub(super) fn end_persistent(&self) {
        let calls = self.put_off().ended();
        for call in calls {
            log(self.bind());
            // SAFETY: promised to `give_back`, the only place that puts calls off; the context is current.
            unsafe { call.run() };
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `retain`; everything made in the context holds `self`.
        let released = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        log(check("cuDevicePrimaryCtxRelease", released));
    }
}
