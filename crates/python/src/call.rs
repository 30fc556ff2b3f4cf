//! Handles of calls, and the launches of their phases.

// UNSAFETY: launches, which read and write memory at addresses that Python has taken from tensors.
#![expect(unsafe_code, reason = "launches kernels on the memory of tensors")]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use warpverbs::gpu::{GpuError, Stream};
use warpverbs::moe::{
    CombineInput, CombineOutput, DispatchInput, DispatchOutput, MoeCall, MoeError,
};

use crate::error::{Raise, raise, raise_difference};
use crate::form::Form;
use crate::interrupt::{self, SIGNALS};
use crate::moe::format_at;
use crate::origin::Origin;

/// Of dispatch: x, x_scales, experts, weights, active, tokens, deadline in ns (0: the layer's). Then whether x is FP8 already,
/// whether no combine follows, and whether experts are i64. Then the format of the call (as [`format_at`] has it), and its
/// max_tokens (0: the layer's).
pub(crate) type SendArguments = (u64, u64, u64, u64, u64, u32, u64, bool, bool, bool, u8, u32);
/// Of dispatch: recv_x, recv_scales, counts, src_info, layout_range, recv_experts, recv_weights, recv_stats, wait_ns, active.
pub(crate) type Received = (u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);
/// `Received`, then whether recv_stats is i32, whether active is the caller's mask, the format of the call.
pub(crate) type ReceiveArguments = (Received, bool, bool, u8);
/// Of combine: y, whether it lies in staging memory, whether all weights count as 1, deadline in ns (0: that of its dispatch).
type SendBackArguments = (u64, bool, bool, u64);
/// Of combine: out, token_valid, weights, wait_ns, active, whether active is the caller's mask, whether to renormalise.
type ReceiveBackArguments = (u64, u64, u64, u64, u64, bool, bool);

/// Longest wait for a kernel before its handle is freed. Kernels end by their own deadlines.
const LAST_WAIT: Duration = Duration::from_secs(60);

/// The end of a launch.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Event {
    event: warpverbs::gpu::Event,
    /// Whether the launch has waited for it.
    ended: bool,
    origin: Origin,
}

#[pymethods]
impl Event {
    /// Waits until the kernel has ended, at most `seconds`, without the GIL. Ctrl-C ends the wait.
    #[pyo3(signature = (seconds = None))]
    fn wait(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<()> {
        self.origin.check(py, "the event")?;
        let limit = match seconds {
            None => Duration::MAX,
            Some(seconds) => crate::team::seconds_of(py, "timeout", seconds)?,
        };
        wait(py, &self.event, limit)
    }

    /// Returns whether the launch has waited for the kernel, and it has ended well.
    #[getter]
    fn ended(&self) -> bool {
        self.ended
    }

    #[getter]
    fn done(&self) -> bool {
        self.event.is_done()
    }

    fn __repr__(&self) -> &'static str {
        if self.event.is_done() {
            "<warpverbs.Event of a kernel that has ended>"
        } else {
            "<warpverbs.Event of a kernel that runs>"
        }
    }
}

fn wait(py: Python<'_>, event: &warpverbs::gpu::Event, limit: Duration) -> PyResult<()> {
    let mut left = limit;
    loop {
        let slice = left.min(SIGNALS);
        let ended = py.detach(|| event.wait(slice));
        left = left.saturating_sub(slice);
        match ended {
            Ok(()) => return Ok(()),
            Err(GpuError::Timeout { .. }) if !left.is_zero() => py.check_signals()?,
            Err(error) => return Err(error.raise(py)),
        }
    }
}

/// A handle of one call at a time. `warpverbs.Call` wraps it.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Call {
    moe: Arc<warpverbs::moe::Moe>,
    /// None once the object is dropped.
    call: Option<MoeCall>,
    /// Of launches on the CPU.
    stream: Option<Stream>,
    running: Mutex<Running>,
    origin: Origin,
}

/// The last launch of each kind, with what its kernel uses.
#[derive(Debug, Default)]
struct Running {
    send: Option<(warpverbs::gpu::Event, Py<PyAny>)>,
    receive: Option<(warpverbs::gpu::Event, Py<PyAny>)>,
    abandon: Option<(warpverbs::gpu::Event, Py<PyAny>)>,
}

/// Which launch of a handle this is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    Receive,
    Abandon,
}

impl Call {
    pub(crate) fn new(
        moe: &Arc<warpverbs::moe::Moe>,
        call: MoeCall,
        stream: Option<Stream>,
    ) -> Self {
        Self {
            moe: Arc::clone(moe),
            call: Some(call),
            stream,
            running: Mutex::default(),
            origin: Origin::here(),
        }
    }

    fn handle(&self) -> &MoeCall {
        self.call.as_ref().expect("taken by drop only")
    }

    /// The stream that Python names: a `cudaStream_t`; on the CPU that of the layer.
    fn stream(&self, py: Python<'_>, raw: usize) -> PyResult<Stream> {
        if let Some(own) = &self.stream {
            return match raw {
                0 => Ok(own.clone()),
                _ => {
                    let words = format!(
                        "stream is {raw:#x}; this layer runs on the CPU, where streams do not exist"
                    );
                    Err(raise(py, "Refused", words))
                }
            };
        }
        let raw: *mut c_void = ptr::with_exposed_provenance_mut(raw);
        // SAFETY: the package takes it from torch's current stream, or the caller says that it is one. The library torch keeps
        // its streams for the life of the process.
        unsafe { self.moe.team().gpu().wrap_stream(raw) }.map_err(|error| error.raise(py))
    }

    /// Launches by `body` without the GIL, and keeps `used` until the kernel has ended.
    fn launch(
        &self,
        py: Python<'_>,
        stream: usize,
        used: Py<PyAny>,
        kind: Kind,
        body: impl Send + FnOnce(&Stream, &MoeCall) -> Result<warpverbs::gpu::Event, MoeError>,
    ) -> PyResult<Event> {
        self.launch_for(py, stream, used, kind, None, body)
    }

    /// As `launch`; where the kernel runs on the CPU, it waits for its end for as long as `limit` says.
    fn launch_for(
        &self,
        py: Python<'_>,
        stream: usize,
        used: Py<PyAny>,
        kind: Kind,
        limit: Option<Duration>,
        body: impl Send + FnOnce(&Stream, &MoeCall) -> Result<warpverbs::gpu::Event, MoeError>,
    ) -> PyResult<Event> {
        self.origin.check(py, "the call")?;
        let stream = self.stream(py, stream)?;
        let limit = limit.filter(|_| self.stream.is_some());
        let launched = py.detach(|| {
            let event = body(&stream, self.handle())?;
            let ended = limit.map(|limit| event.wait(limit));
            Ok((event, ended))
        });
        let (event, ended) = launched.map_err(|error: MoeError| error.raise(py))?;
        let before = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let place = match kind {
                Kind::Send => &mut running.send,
                Kind::Receive => &mut running.receive,
                Kind::Abandon => &mut running.abandon,
            };
            place.replace((event.clone(), used))
        };
        // Objects of Python are dropped outside the lock: their own code may call this handle.
        drop(before);
        match ended {
            Some(Err(error)) if !matches!(error, GpuError::Timeout { .. }) => Err(error.raise(py)),
            ended => Ok(Event {
                event,
                ended: matches!(ended, Some(Ok(()))),
                origin: self.origin,
            }),
        }
    }
}

fn own_deadline(ns: u64) -> Option<Duration> {
    (ns != 0).then(|| Duration::from_nanos(ns))
}

fn dispatch_input(py: Python<'_>, of: SendArguments) -> PyResult<DispatchInput> {
    let (x, x_scales, experts, weights, active, tokens, deadline_ns, ..) = of;
    let (.., quantized, no_combine, ids_64, format, max_tokens) = of;
    Ok(DispatchInput::default()
        .with_x(x)
        .with_x_scales(x_scales)
        .with_experts(experts)
        .with_weights(weights)
        .with_active(active)
        .with_tokens(tokens)
        .with_quantized(quantized)
        .with_no_combine(no_combine)
        .with_ids_64(ids_64)
        .with_format(format_at(py, format)?)
        .with_max_tokens(max_tokens)
        .with_deadline(own_deadline(deadline_ns)))
}

fn dispatch_output(py: Python<'_>, of: ReceiveArguments) -> PyResult<DispatchOutput> {
    let (addresses, stats_32, active_in_place, format) = of;
    let (x, scales, counts, src_info, range, experts, weights, stats, wait_ns, active) = addresses;
    Ok(DispatchOutput::default()
        .with_recv_x(x)
        .with_recv_scales(scales)
        .with_counts(counts)
        .with_src_info(src_info)
        .with_layout_range(range)
        .with_recv_experts(experts)
        .with_recv_weights(weights)
        .with_recv_stats(stats)
        .with_stats_32(stats_32)
        .with_wait_ns(wait_ns)
        .with_active(active)
        .with_active_in_place(active_in_place)
        .with_format(format_at(py, format)?))
}

fn combine_input((y, zero_copy, unweighted, deadline_ns): SendBackArguments) -> CombineInput {
    CombineInput::default()
        .with_y(y)
        .with_zero_copy(zero_copy)
        .with_unweighted(unweighted)
        .with_deadline(own_deadline(deadline_ns))
}

fn combine_output(of: ReceiveBackArguments) -> CombineOutput {
    let (out, token_valid, weights, wait_ns, active, active_in_place, renormalise) = of;
    CombineOutput::default()
        .with_out(out)
        .with_token_valid(token_valid)
        .with_weights(weights)
        .with_wait_ns(wait_ns)
        .with_active(active)
        .with_active_in_place(active_in_place)
        .with_renormalise(renormalise)
}

// Each launch is sound for two reasons. The package checks dtype, shape, strides and device of every tensor against the layer's shape
// before it passes addresses; of the tensors that it passes as they are, a `Form` does. And `used` keeps the tensors until the launch
// has ended. It is dropped after a later launch of the same handle, which runs after this one, or after the wait in `drop`.
#[pymethods]
impl Call {
    fn dispatch_send(
        &self,
        py: Python<'_>,
        input: SendArguments,
        stream: usize,
        used: Py<PyAny>,
    ) -> PyResult<Event> {
        let input = dispatch_input(py, input)?;
        self.launch(py, stream, used, Kind::Send, |stream, call| {
            // SAFETY: as above.
            unsafe { self.moe.dispatch_send(stream, call, &input) }
        })
    }

    /// [`Call::dispatch_send`] of `tensors`, which it keeps: x in BF16, choices, mask or None. `deadline` is in seconds; None: the
    /// layer's. With `waits` it waits for a kernel on the CPU, as long as Python may go without a look at signals. `written` is what
    /// the receive phase will be given, looked at before anything is sent. Returns the number of tokens and the end of the launch.
    /// None, and nothing is launched: something is not as `form` has it.
    #[pyo3(signature = (form, tensors, deadline, stream, waits, written = None))]
    #[expect(
        clippy::too_many_arguments,
        reason = "those of the launch, by place: keywords cost time"
    )]
    fn send_tensors(
        &self,
        py: Python<'_>,
        form: &Form,
        tensors: &Bound<'_, PyTuple>,
        deadline: Option<f64>,
        stream: usize,
        waits: bool,
        written: Option<&Bound<'_, PyTuple>>,
    ) -> PyResult<Option<(u32, Event)>> {
        let Some(input) = form.input(tensors, deadline) else {
            return Ok(None);
        };
        if written.is_some_and(|written| form.output(written, false).is_none()) {
            return Ok(None);
        }
        let tokens = input.5;
        let input = dispatch_input(py, input)?;
        let used = tensors.clone().into_any().unbind();
        let limit = waits.then_some(SIGNALS);
        let event = self.launch_for(py, stream, used, Kind::Send, limit, |stream, call| {
            // SAFETY: as above.
            unsafe { self.moe.dispatch_send(stream, call, &input) }
        })?;
        Ok(Some((tokens, event)))
    }

    /// [`Call::dispatch_receive`] into `tensors` in the same manner, and on the CPU it waits: the tensors before the statistics, these,
    /// ns waited, mask; each may be None.
    fn receive_tensors(
        &self,
        py: Python<'_>,
        form: &Form,
        tensors: &Bound<'_, PyTuple>,
        active_in_place: bool,
        stream: usize,
    ) -> PyResult<Option<Event>> {
        let Some(output) = form.output(tensors, active_in_place) else {
            return Ok(None);
        };
        let output = dispatch_output(py, output)?;
        let used = tensors.clone().into_any().unbind();
        let event = self.launch_for(
            py,
            stream,
            used,
            Kind::Receive,
            Some(SIGNALS),
            |stream, call| {
                // SAFETY: as above.
                unsafe { self.moe.dispatch_receive(stream, call, &output) }
            },
        )?;
        Ok(Some(event))
    }

    fn dispatch_receive(
        &self,
        py: Python<'_>,
        output: ReceiveArguments,
        stream: usize,
        used: Py<PyAny>,
    ) -> PyResult<Event> {
        let output = dispatch_output(py, output)?;
        self.launch(py, stream, used, Kind::Receive, |stream, call| {
            // SAFETY: as above.
            unsafe { self.moe.dispatch_receive(stream, call, &output) }
        })
    }

    fn dispatch(
        &self,
        py: Python<'_>,
        input: SendArguments,
        output: ReceiveArguments,
        stream: usize,
        used: Py<PyAny>,
    ) -> PyResult<Event> {
        let (input, output) = (dispatch_input(py, input)?, dispatch_output(py, output)?);
        self.launch(py, stream, used, Kind::Send, |stream, call| {
            // SAFETY: as above.
            unsafe { self.moe.dispatch(stream, call, &input, &output) }
        })
    }

    fn combine_send(
        &self,
        py: Python<'_>,
        input: SendBackArguments,
        stream: usize,
        used: Py<PyAny>,
    ) -> PyResult<Event> {
        let input = combine_input(input);
        self.launch(py, stream, used, Kind::Send, |stream, call| {
            // SAFETY: as above.
            unsafe { self.moe.combine_send(stream, call, &input) }
        })
    }

    fn combine_receive(
        &self,
        py: Python<'_>,
        output: ReceiveBackArguments,
        stream: usize,
        used: Py<PyAny>,
    ) -> PyResult<Event> {
        let output = combine_output(output);
        self.launch(py, stream, used, Kind::Receive, |stream, call| {
            // SAFETY: as above.
            unsafe { self.moe.combine_receive(stream, call, &output) }
        })
    }

    fn combine(
        &self,
        py: Python<'_>,
        input: SendBackArguments,
        output: ReceiveBackArguments,
        stream: usize,
        used: Py<PyAny>,
    ) -> PyResult<Event> {
        let (input, output) = (combine_input(input), combine_output(output));
        self.launch(py, stream, used, Kind::Send, |stream, call| {
            // SAFETY: as above.
            unsafe { self.moe.combine(stream, call, &input, &output) }
        })
    }

    /// Ends the call after its dispatch, without a combine.
    fn abandon(&self, py: Python<'_>, stream: usize) -> PyResult<Event> {
        self.launch(py, stream, py.None(), Kind::Abandon, |stream, call| {
            // SAFETY: as above.
            unsafe { self.moe.abandon(stream, call) }
        })
    }

    /// The exception of arguments in which ranks differ, where that is why the call is not complete. Asks the store.
    fn difference(&self, py: Python<'_>) -> PyResult<Option<PyErr>> {
        self.origin.check(py, "the call")?;
        let found = interrupt::detach(py, || {
            let report = self.handle().report()?;
            Ok::<_, MoeError>(self.handle().difference(&report))
        })?;
        let found = found.map_err(|error| error.raise(py))?;
        Ok(found.map(|found| raise_difference(py, &found)))
    }

    /// The result of the phases that have ended: number, stage, whether it is complete, its words, and the ranks whose part is
    /// missing.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.origin.check(py, "the call")?;
        let report = py
            .detach(|| self.handle().report())
            .map_err(|error| error.raise(py))?;
        let all = PyDict::new(py);
        all.set_item("call", report.call)?;
        all.set_item("epoch", report.epoch)?;
        all.set_item("stage", report.stage.0)?;
        all.set_item("complete", report.is_complete())?;
        all.set_item("ranks", report.troubled().collect::<Vec<u32>>())?;
        all.set_item("phase", report.fault.as_ref().map(|fault| fault.phase))?;
        all.set_item("offered", report.offered)?;
        all.set_item("unbuffered", report.unbuffered)?;
        all.set_item("text", report.to_string())?;
        Ok(all)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let running = self
            .running
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let launched = [
            &mut running.send,
            &mut running.receive,
            &mut running.abandon,
        ];
        let launched: Vec<_> = launched.into_iter().filter_map(Option::take).collect();
        // A forked child frees nothing of its parent.
        let mut ended = self.origin.is_here();
        if ended && !launched.iter().all(|(event, _)| event.is_done()) {
            Python::attach(|py| {
                py.detach(|| {
                    for (event, _) in &launched {
                        // A kernel that failed has ended, too.
                        ended &= !matches!(event.wait(LAST_WAIT), Err(GpuError::Timeout { .. }));
                    }
                });
            });
        }
        if !ended {
            tracing::error!(
                "a kernel still runs {LAST_WAIT:?} after its call was dropped; its memory is not freed"
            );
            std::mem::forget((self.call.take(), launched));
        }
    }
}
