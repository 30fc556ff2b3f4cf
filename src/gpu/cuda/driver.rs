//! The CUDA driver, opened at run time: errors by name, the context, streams and events.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUevent, CUevent_flags, CUresult, CUstream,
    CUstream_flags, CUstreamCaptureMode,
};

use crate::gpu::GpuError;
use crate::gpu::launch::Completion;

/// An error for whatever is not success.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), GpuError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(GpuError::Driver {
        call,
        name: error_name(result),
        code: result as u32,
    })
}

/// The driver's name for an error.
pub(super) fn error_name(result: CUresult) -> String {
    let mut name = ptr::null();
    // SAFETY: `name` is written during the call; the driver answers with a static string or an error.
    let found = unsafe { sys::cuGetErrorName(result, &raw mut name) };
    if found != CUresult::CUDA_SUCCESS || name.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: the driver's strings are NUL-terminated and live for ever.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// The primary context of one device.
#[derive(Debug)]
pub(super) struct Device {
    device: CUdevice,
    context: CUcontext,
    name: String,
    /// Compute capability as in `sm_90`.
    arch: u32,
    cooperative: bool,
    multiprocessors: u32,
    driver_version: u32,
}

// SAFETY: driver contexts may be current on any number of threads.
unsafe impl Send for Device {}
// SAFETY: as for Send.
unsafe impl Sync for Device {}

impl Device {
    pub(super) fn open(ordinal: u32) -> Result<Arc<Self>, GpuError> {
        // SAFETY: only opens and closes the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuError::NoDriver {
                detail: "libcuda.so.1 is not found; it comes with NVIDIA's kernel driver"
                    .to_owned(),
            });
        }
        // SAFETY: the library is there; may be called any number of times.
        let started = check("cuInit", unsafe { sys::cuInit(0) });
        started.map_err(|error| GpuError::NoDriver {
            detail: error.to_string(),
        })?;
        let mut count = 0;
        // SAFETY: `count` is written during the call.
        check("cuDeviceGetCount", unsafe {
            sys::cuDeviceGetCount(&raw mut count)
        })?;
        let count = u32::try_from(count).unwrap_or(0);
        let index = match i32::try_from(ordinal) {
            Ok(index) if ordinal < count => index,
            _ => return Err(GpuError::NoDevice { ordinal, count }),
        };
        let mut device = 0;
        // SAFETY: `device` is written during the call.
        check("cuDeviceGet", unsafe {
            sys::cuDeviceGet(&raw mut device, index)
        })?;
        let mut context = ptr::null_mut();
        // SAFETY: `context` is written during the call; released in `drop`.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", retained)?;
        let mut this = Self {
            device,
            context,
            name: String::new(),
            arch: 0,
            cooperative: false,
            multiprocessors: 0,
            driver_version: 0,
        };
        this.describe()?;
        Ok(Arc::new(this))
    }

    /// Makes the context current on this thread. Every use of the driver begins with it.
    pub(super) fn bind(&self) -> Result<(), GpuError> {
        // SAFETY: the context is retained while `self` lives.
        check("cuCtxSetCurrent", unsafe {
            sys::cuCtxSetCurrent(self.context)
        })
    }

    /// Runs `body` in relaxed capture mode: what it does is allowed while another thread captures a graph.
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

    /// The driver's number of it.
    pub(super) fn number(&self) -> i32 {
        self.device
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn arch(&self) -> u32 {
        self.arch
    }

    pub(super) fn cooperative(&self) -> bool {
        self.cooperative
    }

    pub(super) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    pub(super) fn driver_version(&self) -> u32 {
        self.driver_version
    }

    fn describe(&mut self) -> Result<(), GpuError> {
        let mut name = [0u8; 128];
        // SAFETY: the driver writes at most 128 bytes, NUL included.
        let named = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 128, self.device) };
        check("cuDeviceGetName", named)?;
        self.name = CStr::from_bytes_until_nul(&name)
            .map_or_else(|_| "unnamed GPU".into(), CStr::to_string_lossy)
            .into_owned();
        let major =
            self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor =
            self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        self.arch = 10 * major + minor;
        self.cooperative =
            self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0;
        self.multiprocessors =
            self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let mut version = 0;
        // SAFETY: `version` is written during the call.
        check("cuDriverGetVersion", unsafe {
            sys::cuDriverGetVersion(&raw mut version)
        })?;
        self.driver_version = u32::try_from(version).unwrap_or(0);
        Ok(())
    }

    pub(super) fn attribute(&self, which: CUdevice_attribute) -> Result<u32, GpuError> {
        let mut value = 0;
        // SAFETY: `value` is written during the call.
        let asked = unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, self.device) };
        check("cuDeviceGetAttribute", asked)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; everything made in the context holds `self`.
        let released = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        log(check("cuDevicePrimaryCtxRelease", released));
    }
}

/// A stream that waits for no other.
#[derive(Debug)]
pub(super) struct CudaStream {
    device: Arc<Device>,
    raw: CUstream,
}

// SAFETY: driver streams may be used from any thread.
unsafe impl Send for CudaStream {}
// SAFETY: as for Send.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub(super) fn new(device: &Arc<Device>) -> Result<Self, GpuError> {
        device.bind()?;
        let mut raw = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `raw` is written during the call; destroyed in `drop`.
        check("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&raw mut raw, flags)
        })?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
        })
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Waits until nothing is in the stream, at most `timeout`; whether that is so.
    ///
    /// # Errors
    ///
    /// The driver's, also that of a kernel that failed.
    pub(super) fn wait_idle(&self, timeout: Duration) -> Result<bool, GpuError> {
        let start = Instant::now();
        loop {
            self.device.bind()?;
            // SAFETY: the stream lives, and its context is current.
            let state = unsafe { sys::cuStreamQuery(self.raw) };
            if state != CUresult::CUDA_ERROR_NOT_READY {
                return check("cuStreamQuery", state).map(|()| true);
            }
            if start.elapsed() >= timeout {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Waits for everything in the stream. Only for copies, which end.
    pub(super) fn synchronize(&self) -> Result<(), GpuError> {
        // SAFETY: the stream lives, and its context is current (`relaxed` or `bind` before).
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.raw)
        })
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        log(self.device.bind());
        // SAFETY: created in `new`, destroyed once; the driver finishes what is in it.
        log(check("cuStreamDestroy", unsafe {
            sys::cuStreamDestroy_v2(self.raw)
        }));
    }
}

/// The end of one launch.
#[derive(Debug)]
pub(super) struct CudaEvent {
    device: Arc<Device>,
    raw: CUevent,
    kernel: String,
}

// SAFETY: driver events may be used from any thread.
unsafe impl Send for CudaEvent {}
// SAFETY: as for Send.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// Marks the end of what is in `stream` now, which is a launch of `kernel`. The context is current.
    pub(super) fn record(stream: &CudaStream, kernel: &str) -> Result<Self, GpuError> {
        let mut raw = ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: `raw` is written during the call; destroyed in `drop`.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&raw mut raw, flags)
        })?;
        let event = Self {
            device: Arc::clone(&stream.device),
            raw,
            kernel: kernel.to_owned(),
        };
        // SAFETY: event and stream live, in the same context.
        check("cuEventRecord", unsafe {
            sys::cuEventRecord(raw, stream.raw)
        })?;
        Ok(event)
    }

    /// None while the kernel runs.
    fn query(&self) -> Option<Result<(), GpuError>> {
        if let Err(error) = self.device.bind() {
            return Some(Err(error));
        }
        // SAFETY: the event lives and its context is current.
        match unsafe { sys::cuEventQuery(self.raw) } {
            CUresult::CUDA_SUCCESS => Some(Ok(())),
            CUresult::CUDA_ERROR_NOT_READY => None,
            failure => Some(Err(GpuError::Kernel {
                kernel: self.kernel.clone(),
                report: error_name(failure),
            })),
        }
    }
}

impl Completion for CudaEvent {
    fn wait(&self, timeout: Duration) -> Result<(), GpuError> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(2);
        loop {
            if let Some(result) = self.query() {
                return result;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(GpuError::Timeout {
                    kernel: self.kernel.clone(),
                    waited: timeout,
                });
            }
            std::thread::sleep(pause.min(left));
            pause = (2 * pause).min(Duration::from_millis(1));
        }
    }

    fn is_done(&self) -> bool {
        self.query().is_some()
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        log(self.device.bind());
        // SAFETY: created in `record`, destroyed once; the driver keeps it until it has happened.
        log(check("cuEventDestroy", unsafe {
            sys::cuEventDestroy_v2(self.raw)
        }));
    }
}

/// What a drop cannot report.
pub(super) fn log(result: Result<(), GpuError>) {
    if let Err(error) = result {
        tracing::error!("{error}");
    }
}
