//! GPUs that an engine opens for memory that the program has on them.

use std::sync::{Arc, Mutex};

use crate::config::GpuSelector;
use crate::engine::lock::lock;
use crate::gpu::{Gpu, GpuError, open_bare};

/// The GPUs that are open, by the name that the program has given.
#[derive(Debug, Default)]
pub(in crate::engine) struct Gpus(Mutex<Vec<(GpuSelector, Arc<dyn Gpu>)>>);

impl Gpus {
    /// Returns the GPU of that name, without kernels. The GPU is opened once.
    pub(in crate::engine) fn open(&self, selector: GpuSelector) -> Result<Arc<dyn Gpu>, GpuError> {
        // The lock is held while a GPU is opened. So if two threads name a GPU, only one of them opens it.
        let mut gpus = lock(&self.0);
        if let Some((_, gpu)) = gpus.iter().find(|(known, _)| *known == selector) {
            return Ok(Arc::clone(gpu));
        }
        let gpu = open_bare(selector, false)?;
        gpus.push((selector, Arc::clone(&gpu)));
        Ok(gpu)
    }
}
