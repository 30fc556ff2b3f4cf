//! What `warpverbs.bench` measures the host's part of a call with: a CPU device on which nothing runs.
//!
//! A team that does work never gets such a device. No variable and no argument names it, and no function but the one here makes
//! it.

// UNSAFETY: implements `Gpu`, two of whose functions are unsafe to call.
#![expect(
    unsafe_code,
    reason = "the trait `Gpu` declares unsafe functions; none of them does anything unsafe here"
)]

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use warpverbs::gpu::simt::SimtGpu;
use warpverbs::gpu::{Event, Gpu, GpuError, Launch};
use warpverbs::team::{JoinOptions, MemoryStore, Store, TeamConfig, TeamError};
use warpverbs::verbs::{Context, DeviceSelector};

use crate::call::SendArguments;
use crate::error::Raise;
use crate::team::Team;

/// Longest wait for the event that stands for every launch.
const LONG: Duration = Duration::from_secs(10);

/// The memory and streams of [`SimtGpu`], and launches that have ended when they are made: their kernels do not run.
#[derive(Debug)]
struct Stubs {
    simt: Arc<SimtGpu>,
    ended: Event,
}

impl Stubs {
    fn open() -> Result<Self, GpuError> {
        let simt = SimtGpu::open()?;
        let ended = simt.default_stream().record()?;
        ended.wait(LONG)?;
        Ok(Self { simt, ended })
    }
}

/// A team of one rank whose kernels are stubs.
#[pyfunction]
pub(crate) fn team_of_stubs(py: Python<'_>) -> PyResult<Team> {
    let made = py.detach(|| {
        let device = Context::open(&DeviceSelector::Auto).map_err(TeamError::from)?;
        let gpu: Arc<dyn Gpu> = Arc::new(Stubs::open().map_err(TeamError::from)?);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        JoinOptions::new(TeamConfig::new(0, 1))
            .with_contexts([&device])
            .with_gpu(&gpu)
            .with_store(store)
            .join()
    });
    Ok(Team::of(made.map_err(|error| error.raise(py))?))
}

/// Takes what a dispatch takes, and gives the GIL back and takes it again, as a dispatch does. It does nothing else.
#[pyfunction]
pub(crate) fn cross(py: Python<'_>, input: SendArguments, stream: usize, used: Py<PyAny>) -> u64 {
    drop(used);
    py.detach(|| std::hint::black_box((input, stream)).0.0)
}

impl Gpu for Stubs {
    warpverbs::forward_gpu! { simt, device_id, buffer_id, map_mmio, resident_blocks }

    fn label(&self) -> String {
        "simt, kernels stubbed".to_owned()
    }

    unsafe fn launch(&self, _: &Launch<'_>, _: &[u8]) -> Result<Event, GpuError> {
        Ok(self.ended.clone())
    }
}
