//! Host engines: regions, peers, transfers.

// UNSAFETY: `unsafe_code` is opened here: HCAs read and write memory at addresses that Python has taken from buffers.
#![expect(unsafe_code, reason = "registers the memory of buffers")]

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use warpverbs::config::{EngineConfig, GpuSelector, Reader, Variable, variables_of};
use warpverbs::engine::{
    AnyMemory, Counter, Descriptor, EngineAddress, EngineError, GpuMemory, Grant, HostError,
    HostMemory, Kind, Mappings, Operation, OperationStatus, Options, Outcome, ProviderError,
    RegionId, Remote, Rights, SliceCounts, Status, TransferId,
};
use warpverbs::error::Error;
use warpverbs::gpu::GpuError;
use warpverbs::team::Store;

use crate::config::config;
use crate::error::{Raise, raise};
use crate::interrupt::{self, SIGNALS};
use crate::native_store;
use crate::origin::Origin;
use crate::shared_memory::SharedMemory;
use crate::team::seconds_of;

/// An engine of this process. `warpverbs.Engine` wraps it.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Engine {
    engine: Held<warpverbs::engine::Engine>,
}

/// A connection of it. `warpverbs.Peer` wraps it.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Peer {
    peer: Held<warpverbs::engine::Peer>,
}

/// Of a list of memories: address, bytes, what keeps it, and its GPU; none of the host's.
type Listed = (u64, u64, Py<PyAny>, Option<String>);

/// Of close: transfers that were cut off, done, failed, cancelled, timed out.
type Left = (u32, u64, u64, u64, u64);

/// Names a transfer.
#[pyclass(frozen, eq, hash, skip_from_py_object, module = "warpverbs._native")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Transfer(TransferId);

#[pymethods]
impl Transfer {
    fn __repr__(&self) -> String {
        let [place, generation] = self.0.to_words();
        format!("<warpverbs.Transfer {place:#x} {generation}>")
    }
}

/// A transfer that was planned once.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Prepared(Arc<warpverbs::engine::Prepared>);

#[pymethods]
impl Prepared {
    fn __repr__(&self) -> &'static str {
        "<warpverbs.Prepared>"
    }
}

/// A word that says what a counter says, until it is closed.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Mirror(Mutex<Option<Held<warpverbs::engine::Mirror>>>);

#[pymethods]
impl Mirror {
    /// After this the word is not written. Once more does nothing.
    fn close(&self) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mirror = held.take();
        drop(held);
        drop(mirror);
    }
}

/// Something with threads and queues of the process that made it: a forked child uses it not, and ends it not.
#[derive(Debug)]
struct Held<T: Send> {
    /// None once it is dropped.
    inner: Option<T>,
    origin: Origin,
}

impl<T: Send> Held<T> {
    fn new(inner: T) -> Self {
        Self {
            inner: Some(inner),
            origin: Origin::here(),
        }
    }

    fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.origin.check(py, "the engine")?;
        Ok(self.inner.as_ref().expect("taken by drop only"))
    }
}

impl<T: Send> Drop for Held<T> {
    fn drop(&mut self) {
        let inner = self.inner.take();
        if !self.origin.is_here() {
            std::mem::forget(inner);
            return;
        }
        // The end of an engine waits for its threads, and lets buffers go.
        Python::attach(|py| py.detach(|| drop(inner)));
    }
}

/// Names of settings of an engine as arguments of Python, each with the variable that it sets.
#[pyfunction]
pub(crate) fn engine_settings() -> BTreeMap<String, &'static str> {
    let named = |row: &'static Variable| (row.field(), row.name);
    variables_of(Reader::Engine).map(named).collect()
}

#[pymethods]
impl Engine {
    /// `given`: `WARPVERBS_*` variables that outrank the environment.
    #[new]
    fn new(
        py: Python<'_>,
        name: &str,
        given: HashMap<String, String>,
        insecure: bool,
        drain: Option<f64>,
    ) -> PyResult<Self> {
        let variable = |name: &str| match given.get(name) {
            Some(value) => Some(value.into()),
            None => std::env::var_os(name),
        };
        let config = EngineConfig::from_variables(name, variable);
        let mut config = config.map_err(|error| error.raise(py))?;
        config.insecure = insecure;
        if let Some(drain) = drain {
            config.drain = seconds_of(py, "drain", drain)?;
        }
        let started = py.detach(|| warpverbs::engine::Engine::start(config));
        Ok(Self {
            engine: Held::new(started.map_err(|error| error.raise(py))?),
        })
    }

    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.engine.get(py)?.devices().join(","))
    }

    #[getter]
    fn incarnation(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.engine.get(py)?.incarnation())
    }

    #[getter]
    fn in_use(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.engine.get(py)?.in_use())
    }

    /// `owner` keeps the memory at `address`: it goes with the last region that needs it.
    fn register(
        &self,
        py: Python<'_>,
        address: usize,
        bytes: u64,
        owner: Py<PyAny>,
    ) -> PyResult<u64> {
        let engine = self.engine.get(py)?;
        let owner: Box<dyn Any + Send + Sync> = Box::new(owner);
        let first = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the package has taken the address from `owner`, a buffer that cannot move while it is held. Or the caller of
        // `register` has promised that the memory stays until the region is gone.
        let memory = unsafe { HostMemory::over(first, bytes, Some(owner)) };
        let memory = Arc::new(memory.map_err(|error| error.raise(py))?);
        let region = py.detach(|| engine.register(&memory));
        Ok(region.map_err(|error| error.raise(py))?.number())
    }

    /// As `register`, of memory of `gpu`.
    fn register_gpu(
        &self,
        py: Python<'_>,
        gpu: &str,
        address: u64,
        bytes: u64,
        owner: Py<PyAny>,
    ) -> PyResult<u64> {
        let engine = self.engine.get(py)?;
        let selector: GpuSelector = gpu.parse().map_err(|error: GpuError| error.raise(py))?;
        let owner: Box<dyn Any + Send + Sync> = Box::new(owner);
        let region = py.detach(|| {
            let gpu = engine.gpu(selector)?;
            // SAFETY: as in `register`, of a tensor.
            let memory = unsafe { GpuMemory::over(&gpu, address, bytes, Some(owner)) };
            engine.register(&Arc::new(memory?))
        });
        Ok(region.map_err(|error: HostError| error.raise(py))?.number())
    }

    /// All or none, each as `register` takes it, or of a GPU.
    fn register_list(&self, py: Python<'_>, memories: Vec<Listed>) -> PyResult<Vec<u64>> {
        let engine = self.engine.get(py)?;
        let mappings = Mappings::now();
        let memory = |(element, (address, bytes, owner, gpu)): (usize, Listed)| {
            let shared = owner.extract::<PyRef<'_, SharedMemory>>(py);
            if let Ok(shared) = shared {
                return Ok(AnyMemory::from(&shared.0));
            }
            let owner: Box<dyn Any + Send + Sync> = Box::new(owner);
            let listed = |error: HostError| HostError::Listed {
                element,
                error: Box::new(error),
            };
            let Some(gpu) = gpu else {
                let first = usize::try_from(address).unwrap_or_default();
                let first = ptr::with_exposed_provenance_mut(first);
                // SAFETY: as in `register`. The program has mapped it before it has called this.
                let memory =
                    unsafe { HostMemory::over_mapped(&mappings, first, bytes, Some(owner)) };
                let memory = memory.map_err(|error| listed(error.into()))?;
                return Ok(AnyMemory::Host(Arc::new(memory)));
            };
            let selector = gpu.parse::<GpuSelector>().map_err(ProviderError::from);
            let selector = selector.map_err(|error| listed(error.into()))?;
            let gpu = engine.gpu(selector).map_err(listed)?;
            // SAFETY: as in `register_gpu`.
            let memory = unsafe { GpuMemory::over(&gpu, address, bytes, Some(owner)) };
            let memory = memory.map_err(|error| listed(error.into()))?;
            Ok(AnyMemory::Gpu(Arc::new(memory)))
        };
        let memories = memories.into_iter().enumerate().map(memory);
        let memories = memories.collect::<Result<Vec<_>, HostError>>();
        let memories = memories.map_err(|error| error.raise(py))?;
        let regions = py.detach(|| engine.register_all(&memories));
        let regions = regions.map_err(|error| error.raise(py))?;
        Ok(regions.into_iter().map(RegionId::number).collect())
    }

    fn register_shared(&self, py: Python<'_>, memory: &SharedMemory) -> PyResult<u64> {
        let engine = self.engine.get(py)?;
        let region = py.detach(|| engine.register(&memory.0));
        Ok(region.map_err(|error| error.raise(py))?.number())
    }

    fn deregister(&self, py: Python<'_>, region: u64) -> PyResult<()> {
        let engine = self.engine.get(py)?;
        py.detach(|| engine.deregister(RegionId::of_number(region)))
            .map_err(|error| error.raise(py))
    }

    /// Waits up to `wait` seconds for what uses it.
    fn deregister_wait(&self, py: Python<'_>, region: u64, wait: f64) -> PyResult<()> {
        let engine = self.engine.get(py)?;
        let region = RegionId::of_number(region);
        let mut last = None;
        let done = in_slices(py, "wait", Some(wait), |slice| {
            last = match engine.deregister_wait(region, slice) {
                Err(busy @ HostError::Refused(EngineError::Busy { .. })) => Some(busy),
                done => return Ok(Some(done)),
            };
            Ok(None)
        })?;
        done.or(last.map(Err))
            .unwrap_or(Ok(()))
            .map_err(|error| error.raise(py))
    }

    #[getter]
    fn grants(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.engine.get(py)?.grants())
    }

    fn revoke(&self, py: Python<'_>, grant: &[u8]) -> PyResult<()> {
        let engine = self.engine.get(py)?;
        let grant = Grant::from_bytes(grant).map_err(|error| error.raise(py))?;
        py.detach(|| engine.revoke(&grant))
            .map_err(|error| error.raise(py))
    }

    fn descriptor<'py>(&self, py: Python<'py>, region: u64) -> PyResult<Bound<'py, PyBytes>> {
        let engine = self.engine.get(py)?;
        let made = py.detach(|| engine.descriptor(RegionId::of_number(region)));
        let made = made.map_err(|error| error.raise(py))?;
        Ok(PyBytes::new(py, &made.to_bytes()))
    }

    /// At the address of its configuration, where none is given.
    fn listen(&self, py: Python<'_>, address: Option<&str>) -> PyResult<String> {
        let engine = self.engine.get(py)?;
        let wanted = address.map(|address| parsed(py, address)).transpose()?;
        let at = py.detach(|| match wanted {
            Some(address) => engine.listen(address),
            None => engine.listen_as_configured(),
        });
        Ok(at.map_err(|error| error.raise(py))?.to_string())
    }

    fn connect(&self, py: Python<'_>, at: &str) -> PyResult<Peer> {
        let engine = self.engine.get(py)?;
        let connected = py.detach(|| engine.connect(at));
        let peer = Held::new(connected.map_err(|error| error.raise(py))?);
        Ok(Peer { peer })
    }

    /// `store` and `run_id`, else the variables of the environment, name the store.
    fn publish(
        &self,
        py: Python<'_>,
        address: &str,
        store: Option<String>,
        run_id: Option<String>,
    ) -> PyResult<()> {
        let engine = self.engine.get(py)?;
        let address = parsed(py, address)?;
        let store = names(py, store, run_id)?;
        let done = interrupt::detach(py, || engine.publish(&store, &address))?;
        done.map_err(|error| error.raise(py))
    }

    fn unpublish(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.engine.get(py)?;
        py.detach(|| engine.unpublish());
        Ok(())
    }

    /// The store as for `publish`.
    fn connect_by_name(
        &self,
        py: Python<'_>,
        name: &str,
        store: Option<String>,
        run_id: Option<String>,
    ) -> PyResult<Peer> {
        let engine = self.engine.get(py)?;
        let store = names(py, store, run_id)?;
        let connected = interrupt::detach(py, || engine.connect_by_name(store.as_ref(), name))?;
        let peer = Held::new(connected.map_err(|error| error.raise(py))?);
        Ok(Peer { peer })
    }

    /// The next peer that has connected; None: the time is over.
    fn accept(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<Peer>> {
        let engine = self.engine.get(py)?;
        let accepted = in_slices(py, "timeout", seconds, |slice| match engine.accept(slice) {
            None if engine.is_closed() => Err(EngineError::Closing),
            found => Ok(found),
        })?;
        Ok(accepted.map(|peer| Peer {
            peer: Held::new(peer),
        }))
    }

    /// The next notice of any peer; None: the time is over.
    fn notice<'py>(
        &self,
        py: Python<'py>,
        seconds: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let engine = self.engine.get(py)?;
        let found = in_slices(py, "timeout", seconds, |slice| match engine.notice(slice) {
            None if engine.is_closed() => Err(EngineError::Closing),
            found => Ok(found),
        })?;
        let Some(notice) = found else {
            return Ok(None);
        };
        let behind = notice.transfer;
        let state = behind.map(|behind| name_of(Status::Concluded(behind.outcome)));
        let cause = behind.and_then(|behind| behind.cause);
        let all = PyDict::new(py);
        all.set_item("peer", notice.peer)?;
        all.set_item("incarnation", notice.incarnation)?;
        all.set_item("bytes", PyBytes::new(py, &notice.bytes))?;
        all.set_item("state", state)?;
        all.set_item("operation", behind.and_then(|behind| behind.operation))?;
        all.set_item("cause", cause.map(|cause| cause.to_string()))?;
        Ok(Some(all))
    }

    fn counter_read(&self, py: Python<'_>, id: u32) -> PyResult<u64> {
        Ok(self.counter(py, id)?.read())
    }

    /// Returns what it says when it says `count` or more; None: the time is over.
    fn counter_wait(
        &self,
        py: Python<'_>,
        id: u32,
        count: u64,
        seconds: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let engine = self.engine.get(py)?;
        let counter = self.counter(py, id)?;
        in_slices(py, "timeout", seconds, |slice| {
            match counter.wait(count, slice) {
                None if engine.is_closed() => Err(EngineError::Closing),
                found => Ok(found),
            }
        })
    }

    fn counter_reset(&self, py: Python<'_>, id: u32) -> PyResult<u64> {
        Ok(self.counter(py, id)?.reset())
    }

    fn counter_word(&self, py: Python<'_>, id: u32) -> PyResult<u64> {
        Ok(self.counter(py, id)?.word())
    }

    /// The word at `address` says what the counter says. `owner` keeps it.
    fn counter_mirror(
        &self,
        py: Python<'_>,
        id: u32,
        address: usize,
        owner: Py<PyAny>,
    ) -> PyResult<Mirror> {
        let counter = self.counter(py, id)?;
        let owner: Box<dyn Any + Send + Sync> = Box::new(owner);
        let word = ptr::with_exposed_provenance_mut(address);
        // SAFETY: as in `register`: the mirror holds the owner, and writes nothing after its end.
        let memory = unsafe { HostMemory::over(word, 8, Some(owner)) };
        let memory = Arc::new(memory.map_err(|error| error.raise(py))?);
        let mirror = counter.mirror(&memory, 0);
        let mirror = mirror.map_err(|error| error.raise(py))?;
        Ok(Mirror(Mutex::new(Some(Held::new(mirror)))))
    }

    fn poll(&self, py: Python<'_>, transfer: &Transfer) -> PyResult<&'static str> {
        let status = self.engine.get(py)?.poll(transfer.0);
        status.map(name_of).map_err(|error| error.raise(py))
    }

    fn poll_many(
        &self,
        py: Python<'_>,
        transfers: Vec<PyRef<'_, Transfer>>,
    ) -> PyResult<Vec<&'static str>> {
        let ids: Vec<TransferId> = transfers.iter().map(|transfer| transfer.0).collect();
        let mut found = Vec::new();
        let polled = self.engine.get(py)?.poll_many(&ids, &mut found);
        polled.map_err(|error| error.raise(py))?;
        Ok(found.into_iter().map(name_of).collect())
    }

    /// The place among `transfers` of one that is concluded or unknown; None: the time is over.
    fn wait_any(
        &self,
        py: Python<'_>,
        transfers: Vec<PyRef<'_, Transfer>>,
        seconds: Option<f64>,
    ) -> PyResult<Option<usize>> {
        let engine = self.engine.get(py)?;
        let ids: Vec<TransferId> = transfers.iter().map(|transfer| transfer.0).collect();
        in_slices(py, "timeout", seconds, |slice| engine.wait_any(&ids, slice))
    }

    fn cancel(&self, py: Python<'_>, transfer: &Transfer) -> PyResult<()> {
        let cancelled = self.engine.get(py)?.cancel(transfer.0);
        cancelled.map_err(|error| error.raise(py))
    }

    fn report<'py>(&self, py: Python<'py>, transfer: &Transfer) -> PyResult<Bound<'py, PyDict>> {
        let report = self.engine.get(py)?.report(transfer.0);
        let report = report.map_err(|error| error.raise(py))?;
        let operations = report.operations.iter().map(|status| match status {
            OperationStatus::Done => "done",
            OperationStatus::Failed => "failed",
            OperationStatus::NotPosted => "not_posted",
        });
        let all = PyDict::new(py);
        all.set_item("state", name_of(Status::Concluded(report.outcome)))?;
        all.set_item("operations", operations.collect::<Vec<_>>())?;
        all.set_item("bytes_landed", report.bytes_landed)?;
        all.set_item("remote_unknown", report.remote == Remote::Unknown)?;
        let first = report.first;
        let cause = first.and_then(|first| first.cause);
        all.set_item("operation", first.map(|first| first.operation))?;
        all.set_item("qp", first.and_then(|first| first.qp))?;
        all.set_item("rail", first.and_then(|first| first.rail))?;
        all.set_item("device", report.device)?;
        all.set_item("syndrome", cause.map(|cause| cause.syndrome))?;
        all.set_item("cause", cause.map(|cause| cause.to_string()))?;
        Ok(all)
    }

    fn release(&self, py: Python<'_>, transfer: &Transfer) -> PyResult<()> {
        let released = self.engine.get(py)?.release(transfer.0);
        released.map_err(|error| error.raise(py))
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.engine.get(py)?.statistics();
        let all = PyDict::new(py);
        all.set_item("submitted", found.submitted)?;
        all.set_item("refused", found.refused)?;
        all.set_item("done", found.done)?;
        all.set_item("failed", found.failed)?;
        all.set_item("cancelled", found.cancelled)?;
        all.set_item("timed_out", found.timed_out)?;
        all.set_item("done_bytes", found.done_bytes)?;
        all.set_item("queued", found.queued)?;
        all.set_item("retried", found.retried)?;
        all.set_item("not_posted", found.not_posted)?;
        all.set_item("slices", slice_counts(&found.slices))?;
        Ok(all)
    }

    fn rails<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let rails = self.engine.get(py)?.rails().into_iter();
        let rails = rails.map(|rail| {
            let all = PyDict::new(py);
            all.set_item("device", rail.device)?;
            all.set_item("port", rail.port)?;
            all.set_item("state", rail.state.to_string())?;
            all.set_item("rests", rail.rests)?;
            all.set_item("slices", slice_counts(&rail.slices))?;
            Ok(all)
        });
        rails.collect()
    }

    fn stalled<'py>(
        &self,
        py: Python<'py>,
        transfer: &Transfer,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let found = self.engine.get(py)?.stalled(transfer.0);
        let found = found.map_err(|error| error.raise(py))?.into_iter();
        let found = found.map(|rail| {
            let all = PyDict::new(py);
            all.set_item("rail", rail.rail)?;
            all.set_item("device", rail.device)?;
            all.set_item("in_flight", rail.in_flight)?;
            all.set_item("since_completion", rail.since_completion.as_secs_f64())?;
            Ok(all)
        });
        found.collect()
    }

    fn waits_for(&self, py: Python<'_>, transfer: &Transfer) -> PyResult<Option<String>> {
        let found = self.engine.get(py)?.waits_for(transfer.0);
        let found = found.map_err(|error| error.raise(py))?;
        Ok(found.map(|what| what.to_string()))
    }

    /// Returns what was left. A forked child closes nothing.
    fn close(&self, py: Python<'_>) -> PyResult<Option<Left>> {
        if !self.engine.origin.is_here() {
            return Ok(None);
        }
        let engine = self.engine.get(py)?;
        let left = py.detach(|| engine.close());
        let counts = (left.done, left.failed, left.cancelled, left.timed_out);
        Ok(Some((left.cut_off, counts.0, counts.1, counts.2, counts.3)))
    }
}

impl Engine {
    fn counter(&self, py: Python<'_>, id: u32) -> PyResult<Counter> {
        let counter = self.engine.get(py)?.counter(id);
        counter.map_err(|error| error.raise(py))
    }
}

fn parsed(py: Python<'_>, address: &str) -> PyResult<EngineAddress> {
    let parsed = address.parse::<EngineAddress>();
    parsed.map_err(|error| raise(py, "Refused", error.to_string()))
}

/// The store in which engines find each other.
fn names(
    py: Python<'_>,
    store: Option<String>,
    run_id: Option<String>,
) -> PyResult<Arc<dyn Store>> {
    // A rank of two, so that a store is named: one alone would meet itself in memory.
    let ranks = [("RANK", "0".to_owned()), ("RANKS", "2".to_owned())];
    let given = [("STORE", store), ("RUN_ID", run_id)];
    let given = given
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let all = given.chain(ranks);
    let all = all.map(|(name, value)| (format!("WARPVERBS_{name}"), value));
    let config = config(py, &all.collect())?;
    let opened = interrupt::detach(py, || native_store::open(&config))?;
    opened.map_err(|error| Error::from(error).raise(py))
}

/// Of slices: posted, their bytes, completed, failed, seconds stalled.
type Slices = (u64, u64, u64, u64, f64);

fn slice_counts(counts: &SliceCounts) -> Slices {
    let SliceCounts {
        posted,
        posted_bytes,
        completed,
        failed,
        stalled,
        ..
    } = *counts;
    (
        posted,
        posted_bytes,
        completed,
        failed,
        stalled.as_secs_f64(),
    )
}

/// The bytes of a grant that was made.
fn granted(py: Python<'_>, made: Result<Grant, HostError>) -> PyResult<Bound<'_, PyBytes>> {
    let grant = made.map_err(|error| error.raise(py))?;
    Ok(PyBytes::new(py, &grant.to_bytes()))
}

/// An operation of Python: whether it reads, local, remote, bytes.
type Given = (bool, u64, u64, u64);

#[pymethods]
impl Peer {
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.peer.get(py)?.name().to_owned())
    }

    #[getter]
    fn qps(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.peer.get(py)?.qps())
    }

    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.peer.get(py)?.path().to_string())
    }

    #[getter]
    fn open(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.peer.get(py)?.is_open())
    }

    /// Address and bytes of the region.
    fn import_region(&self, py: Python<'_>, descriptor: &[u8]) -> PyResult<(u64, u64)> {
        let peer = self.peer.get(py)?;
        let read = Descriptor::from_bytes(descriptor).map_err(|error| error.raise(py))?;
        peer.import(&read).map_err(|error| error.raise(py))?;
        Ok((read.address, read.bytes))
    }

    /// The bytes of the grant. `rights`: see [`Rights::number`]; `ttl`: seconds.
    fn grant<'py>(
        &self,
        py: Python<'py>,
        address: u64,
        bytes: u64,
        rights: u64,
        ttl: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let peer = self.peer.get(py)?;
        let Some(rights) = Rights::of_number(rights) else {
            let words = format!("rights are {rights}; they must be 1, 2 or 3");
            return Err(raise(py, "Refused", words));
        };
        let ttl = ttl.map(|ttl| seconds_of(py, "ttl", ttl)).transpose()?;
        let made = py.detach(|| peer.grant(address, bytes, rights, ttl));
        granted(py, made)
    }

    fn export<'py>(&self, py: Python<'py>, region: u64) -> PyResult<Bound<'py, PyBytes>> {
        let peer = self.peer.get(py)?;
        let made = py.detach(|| peer.export(RegionId::of_number(region)));
        granted(py, made)
    }

    /// Address and bytes, as operations name them.
    fn import_grant(&self, py: Python<'_>, grant: &[u8]) -> PyResult<(u64, u64)> {
        let peer = self.peer.get(py)?;
        let read = Grant::from_bytes(grant).map_err(|error| error.raise(py))?;
        peer.import_grant(&read).map_err(|error| error.raise(py))?;
        Ok((read.address, read.bytes))
    }

    fn forget(&self, py: Python<'_>, address: u64) -> PyResult<()> {
        self.peer.get(py)?.forget(address);
        Ok(())
    }

    /// Waits up to `wait` seconds for a slot, and for room for `notice`.
    fn submit(
        &self,
        py: Python<'_>,
        operations: Vec<Given>,
        deadline: Option<f64>,
        wait: f64,
        notice: Option<&[u8]>,
        counter: Option<u32>,
    ) -> PyResult<Transfer> {
        let peer = self.peer.get(py)?;
        let operations: Vec<Operation> = operations.into_iter().map(operation).collect();
        let options = options_of(py, deadline, counter, notice)?;
        begun(py, &options, wait, |options| {
            peer.submit(&operations, options)
        })
    }

    /// Sends a notice; waits up to `wait` seconds for room.
    fn notify(&self, py: Python<'_>, bytes: &[u8], wait: f64) -> PyResult<()> {
        let peer = self.peer.get(py)?;
        with_room(py, wait, |slice| peer.notify_wait(bytes, slice))
    }

    /// Plans a transfer once; `counting`: one that may count.
    fn prepare(
        &self,
        py: Python<'_>,
        operations: Vec<Given>,
        counting: bool,
    ) -> PyResult<Prepared> {
        let peer = self.peer.get(py)?;
        let operations: Vec<Operation> = operations.into_iter().map(operation).collect();
        let prepared = py.detach(|| match counting {
            true => peer.prepare_counting(&operations),
            false => peer.prepare(&operations),
        });
        Ok(Prepared(prepared.map_err(|error| error.raise(py))?))
    }

    /// Posts it once more; waits up to `wait` seconds for a slot, and for room for `notice`.
    fn post(
        &self,
        py: Python<'_>,
        prepared: &Prepared,
        deadline: Option<f64>,
        wait: f64,
        notice: Option<&[u8]>,
        counter: Option<u32>,
    ) -> PyResult<Transfer> {
        let peer = self.peer.get(py)?;
        let options = options_of(py, deadline, counter, notice)?;
        begun(py, &options, wait, |options| {
            peer.post(&prepared.0, options)
        })
    }

    /// Returns how many transfers were cut off.
    fn close(&self, py: Python<'_>) -> PyResult<u32> {
        let peer = self.peer.get(py)?;
        Ok(py.detach(|| peer.close()))
    }
}

/// Returns how a transfer is to run; `deadline` is in seconds.
fn options_of<'a>(
    py: Python<'_>,
    deadline: Option<f64>,
    counter: Option<u32>,
    notice: Option<&'a [u8]>,
) -> PyResult<Options<'a>> {
    let deadline = deadline.map(|seconds| seconds_of(py, "deadline", seconds));
    Ok(Options::default()
        .with_deadline(deadline.transpose()?)
        .with_counter(counter)
        .with_notice(notice))
}

/// Returns the transfer that `begin` begins as soon as a slot is free and there is room for its notice, within `wait` seconds.
fn begun(
    py: Python<'_>,
    options: &Options<'_>,
    wait: f64,
    begin: impl Send + Sync + Fn(&Options<'_>) -> Result<TransferId, EngineError>,
) -> PyResult<Transfer> {
    with_room(py, wait, |slice| begin(&options.with_wait(slice))).map(Transfer)
}

/// Calls `attempt` until it finds a slot and room, at most for `wait` seconds.
fn with_room<T: Send>(
    py: Python<'_>,
    wait: f64,
    attempt: impl Send + Sync + Fn(Duration) -> Result<T, EngineError>,
) -> PyResult<T> {
    let mut full = None;
    let done = in_slices(py, "wait", Some(wait), |slice| match attempt(slice) {
        Err(error @ (EngineError::WouldBlock { .. } | EngineError::InboxFull { .. })) => {
            full = Some(error);
            Ok(None)
        }
        other => other.map(Some),
    })?;
    done.ok_or_else(|| full.unwrap_or(EngineError::Closing).raise(py))
}

fn operation((reads, local, remote, bytes): Given) -> Operation {
    let kind = if reads { Kind::Read } else { Kind::Write };
    Operation {
        kind,
        local,
        remote,
        bytes,
    }
}

fn name_of(status: Status) -> &'static str {
    match status {
        Status::Pending => "pending",
        Status::Concluded(Outcome::Done) => "done",
        Status::Concluded(Outcome::Failed) => "failed",
        Status::Concluded(Outcome::Cancelled) => "cancelled",
        Status::Concluded(Outcome::TimedOut) => "timed_out",
        Status::Unknown => "unknown",
    }
}

/// Waits by `wait` without the GIL, up to `seconds`, in slices between which signals such as Ctrl-C are looked for.
fn in_slices<T: Send>(
    py: Python<'_>,
    name: &str,
    seconds: Option<f64>,
    mut wait: impl Send + FnMut(Duration) -> Result<Option<T>, EngineError>,
) -> PyResult<Option<T>> {
    let mut left = match seconds {
        Some(seconds) => seconds_of(py, name, seconds)?,
        None => Duration::MAX,
    };
    loop {
        let slice = left.min(SIGNALS);
        let found = py.detach(|| wait(slice)).map_err(|error| error.raise(py))?;
        left = left.saturating_sub(slice);
        if found.is_some() || left.is_zero() {
            return Ok(found);
        }
        py.check_signals()?;
    }
}
