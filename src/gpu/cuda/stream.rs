//! Streams, events and graphs of the driver.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::{
    self, CUevent, CUevent_flags, CUgraph, CUgraphExec, CUresult, CUstream, CUstream_flags,
    CUstreamCaptureMode, CUstreamCaptureStatus,
};

use super::device::Device;
use super::driver::{check, error_name, log};
use super::module::Module;
use crate::deadline::Looks;
use crate::gpu::event::Completion;
use crate::gpu::stream::{Graph, Queue, Replay};
use crate::gpu::{Event, GpuError, Stream};

/// The longest time that the end of a stream waits for kernels that still run.
const CLOSING: Duration = Duration::from_secs(10);

/// The loaded kernels. They are unloaded after the last stream and graph that may run them.
#[derive(Debug)]
pub(super) struct Code {
    modules: Mutex<Vec<Module>>,
    /// True if a kernel still ran when its stream ended: then the code stays loaded.
    kept: AtomicBool,
}

impl Code {
    pub(super) fn new(modules: Vec<Module>) -> Arc<Self> {
        Arc::new(Self {
            modules: Mutex::new(modules),
            kept: AtomicBool::new(false),
        })
    }

    /// Returns all modules.
    pub(super) fn modules(&self) -> Vec<Module> {
        let all = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }

    /// Keeps further modules.
    pub(super) fn add(&self, modules: Vec<Module>) {
        let mut all = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(modules);
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if self.kept.load(Relaxed) {
            let modules = self.modules.get_mut();
            let modules = modules.unwrap_or_else(PoisonError::into_inner);
            modules.drain(..).for_each(std::mem::forget);
        }
    }
}

/// A stream that waits for no other stream.
#[derive(Debug)]
pub(super) struct CudaStream {
    device: Arc<Device>,
    raw: CUstream,
    /// False if the caller made the stream and destroys it.
    owned: bool,
    /// The code of the kernels that run in the stream. None for copies.
    code: Option<Arc<Code>>,
}

// SAFETY: driver streams may be used from any thread.
unsafe impl Send for CudaStream {}
// SAFETY: as for Send.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    /// Makes a stream for kernels of `code`.
    pub(super) fn for_kernels(device: &Arc<Device>, code: &Arc<Code>) -> Result<Self, GpuError> {
        Self::make(device, Some(Arc::clone(code)))
    }

    pub(super) fn for_copies(device: &Arc<Device>) -> Result<Self, GpuError> {
        Self::make(device, None)
    }

    fn make(device: &Arc<Device>, code: Option<Arc<Code>>) -> Result<Self, GpuError> {
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
            owned: true,
            code,
        })
    }

    /// Wraps the caller's own stream, or null for the legacy default stream.
    ///
    /// # Safety
    ///
    /// `raw` is a stream, or null, and outlives the result.
    pub(super) unsafe fn wrap(
        device: &Arc<Device>,
        code: &Arc<Code>,
        raw: CUstream,
    ) -> Result<Self, GpuError> {
        device.bind()?;
        let mut context = ptr::null_mut();
        // SAFETY: the caller's stream; `context` is written during the call.
        check("cuStreamGetCtx", unsafe {
            sys::cuStreamGetCtx(raw, &raw mut context)
        })?;
        device.check_context("stream", context)?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
            owned: false,
            code: Some(Arc::clone(code)),
        })
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Returns whether the stream belongs to the opened device with that code.
    pub(super) fn is_of(&self, code: &Arc<Code>) -> bool {
        self.code.as_ref().is_some_and(|own| Arc::ptr_eq(own, code))
    }

    /// Waits for everything in the stream. Only for streams of copies, since copies end.
    pub(super) fn synchronize(&self) -> Result<(), GpuError> {
        // SAFETY: the stream lives, and its context is current (`relaxed` or `bind` before).
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.raw)
        })
    }

    /// Waits until nothing is in the stream, at most `timeout`. Returns whether that is so.
    fn wait_idle(&self, timeout: Duration) -> Result<bool, GpuError> {
        for left in Looks::within(timeout) {
            self.device.bind()?;
            // SAFETY: the stream lives, and its context is current.
            let state = unsafe { sys::cuStreamQuery(self.raw) };
            if state != CUresult::CUDA_ERROR_NOT_READY {
                return check("cuStreamQuery", state).map(|()| true);
            }
            std::thread::sleep(left.min(Duration::from_micros(100)));
        }
        Ok(false)
    }

    /// Returns whether launches in the stream are recorded now, by any capture. The context is current.
    fn capturing(&self) -> Result<bool, GpuError> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream lives; `status` is written during the call.
        check("cuStreamIsCapturing", unsafe {
            sys::cuStreamIsCapturing(self.raw, &raw mut status)
        })?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Returns an event for the end of what is in the stream now, which ends with `kernel`. The context is current.
    pub(super) fn mark(&self, kernel: &str) -> Result<Event, GpuError> {
        Ok(Event::new(Arc::new(CudaEvent::record(self, kernel)?)))
    }
}

impl Queue for CudaStream {
    fn wait(&self, event: &Event) -> Result<(), GpuError> {
        let event = event
            .downcast::<CudaEvent>()
            .ok_or_else(|| GpuError::BadArgument {
                what: "event",
                value: "of another kind of device".to_owned(),
                limit: "an event of a CUDA device".to_owned(),
            })?;
        self.device.bind()?;
        // SAFETY: stream and event live. An event that is destroyed later has been taken note of.
        check("cuStreamWaitEvent", unsafe {
            sys::cuStreamWaitEvent(self.raw, event.raw, 0)
        })
    }

    fn record(&self) -> Result<Event, GpuError> {
        self.device.bind()?;
        self.mark("a record")
    }

    fn is_capturing(&self) -> Result<bool, GpuError> {
        self.device.bind()?;
        self.capturing()
    }

    fn begin_capture(&self) -> Result<(), GpuError> {
        self.device.bind()?;
        if self.capturing()? {
            return Err(GpuError::Capture {
                detail: "the stream is in one already".to_owned(),
            });
        }
        // Relaxed: meanwhile other threads may make calls that a capture could not record.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream lives, and its context is current.
        check("cuStreamBeginCapture", unsafe {
            sys::cuStreamBeginCapture_v2(self.raw, mode)
        })
    }

    fn end_capture(&self) -> Result<Graph, GpuError> {
        self.device.bind()?;
        if !self.capturing()? {
            return Err(GpuError::Capture {
                detail: "none began in this stream".to_owned(),
            });
        }
        let mut template = Template(ptr::null_mut());
        // SAFETY: the stream lives; the graph is written during the call and destroyed with `template`.
        let ended = unsafe { sys::cuStreamEndCapture(self.raw, &raw mut template.0) };
        check("cuStreamEndCapture", ended).map_err(|error| GpuError::Capture {
            detail: error.to_string(),
        })?;
        let mut len = 0;
        // SAFETY: the graph lives; without an array only the number of nodes is written.
        check("cuGraphGetNodes", unsafe {
            sys::cuGraphGetNodes(template.0, ptr::null_mut(), &raw mut len)
        })?;
        let mut exec = ptr::null_mut();
        // SAFETY: `exec` is written during the call; destroyed with the `CudaGraph`.
        check("cuGraphInstantiate", unsafe {
            sys::cuGraphInstantiateWithFlags(&raw mut exec, template.0, 0)
        })?;
        Ok(Graph::new(Box::new(CudaGraph {
            exec,
            len,
            code: self.code.clone(),
            device: Arc::clone(&self.device),
        })))
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        log(self.device.bind());
        if !self.owned {
            return;
        }
        if let Some(code) = &self.code {
            match self.wait_idle(CLOSING) {
                Ok(true) => {}
                Ok(false) => {
                    tracing::error!(
                        "a kernel still runs {CLOSING:?} after its stream was closed: its code stays loaded"
                    );
                    code.kept.store(true, Relaxed);
                }
                Err(error) => tracing::error!("closing a stream: {error}"),
            }
        }
        // SAFETY: created in `make`, destroyed once; the driver finishes what is in it.
        log(check("cuStreamDestroy", unsafe {
            sys::cuStreamDestroy_v2(self.raw)
        }));
    }
}

/// A captured graph, from which the driver makes an executable one.
struct Template(CUgraph);

impl Drop for Template {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by `cuStreamEndCapture`, destroyed once; what was made of it does not need it.
            log(check("cuGraphDestroy", unsafe {
                sys::cuGraphDestroy(self.0)
            }));
        }
    }
}

/// An executable graph.
#[derive(Debug)]
struct CudaGraph {
    exec: CUgraphExec,
    len: usize,
    /// The code of its kernels, which stays loaded.
    code: Option<Arc<Code>>,
    device: Arc<Device>,
}

// SAFETY: driver graphs are not tied to a thread.
unsafe impl Send for CudaGraph {}
// SAFETY: the only call on a shared one is `cuGraphLaunch`, of which the driver runs one after the other.
unsafe impl Sync for CudaGraph {}

impl Replay for CudaGraph {
    unsafe fn launch(&self, stream: &Stream) -> Result<Event, GpuError> {
        let stream = stream
            .downcast::<CudaStream>()
            .filter(|stream| self.code.as_ref().is_some_and(|code| stream.is_of(code)))
            .ok_or_else(|| GpuError::BadArgument {
                what: "stream",
                value: "of another device".to_owned(),
                limit: "a stream of the graph's device".to_owned(),
            })?;
        self.device.bind()?;
        // SAFETY: graph and stream live in the current context; what the recorded parameters point to is the caller's promise.
        check("cuGraphLaunch", unsafe {
            sys::cuGraphLaunch(self.exec, stream.raw)
        })?;
        stream.mark("a graph")
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        log(self.device.bind());
        // SAFETY: made in `end_capture`, destroyed once; the driver finishes launches of it.
        log(check("cuGraphExecDestroy", unsafe {
            sys::cuGraphExecDestroy(self.exec)
        }));
    }
}

/// The end of one launch.
#[derive(Debug)]
struct CudaEvent {
    device: Arc<Device>,
    raw: CUevent,
    kernel: String,
    /// True if the event is part of a capture. Then the driver must not be asked about it, since that would spoil the capture.
    captured: bool,
}

// SAFETY: driver events may be used from any thread.
unsafe impl Send for CudaEvent {}
// SAFETY: as for Send.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    fn record(stream: &CudaStream, kernel: &str) -> Result<Self, GpuError> {
        let captured = stream.capturing()?;
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
            captured,
        };
        // SAFETY: event and stream live, in the same context.
        check("cuEventRecord", unsafe {
            sys::cuEventRecord(raw, stream.raw)
        })?;
        Ok(event)
    }

    /// Returns how the kernel ended. None while it runs.
    fn query(&self) -> Option<Result<(), GpuError>> {
        if self.captured {
            return Some(Err(GpuError::Captured {
                kernel: self.kernel.clone(),
            }));
        }
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
        let mut pause = Duration::from_micros(2);
        for left in Looks::within(timeout) {
            if let Some(result) = self.query() {
                return result;
            }
            std::thread::sleep(pause.min(left));
            pause = (2 * pause).min(Duration::from_millis(1));
        }
        Err(GpuError::Timeout {
            kernel: self.kernel.clone(),
            waited: timeout,
        })
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
