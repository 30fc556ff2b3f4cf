//! Host memory that engines of other processes of this machine and user may map.

use std::sync::Arc;

use pyo3::prelude::*;
use warpverbs::engine::HostMemory;

use crate::error::Raise;

/// The memory. `warpverbs.SharedMemory` wraps it. A forked child has the same pages, as of any mapping of a file.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct SharedMemory(pub(crate) Arc<HostMemory>);

#[pymethods]
impl SharedMemory {
    #[new]
    fn new(py: Python<'_>, bytes: u64) -> PyResult<Self> {
        let memory = HostMemory::shared(bytes).map_err(|error| error.raise(py))?;
        Ok(Self(Arc::new(memory)))
    }

    #[getter]
    fn address(&self) -> u64 {
        self.0.address()
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}
