//! GPUs that an engine opens for memory that the program has on them.

use std::sync::{Arc, Mutex};

use crate::config::GpuSelector;
use crate::engine::error::{EngineError, HostError};
use crate::engine::host::{Engine, lock};
use crate::gpu::{Gpu, open_bare};
use crate::provider::ProviderError;

/// Those that are open, as the program has named them.
#[derive(Debug, Default)]
pub(super) struct Gpus(Mutex<Vec<(GpuSelector, Arc<dyn Gpu>)>>);

impl Engine {
    /// A GPU for [`GpuMemory`](crate::engine::GpuMemory), without kernels: opened once, and closed with the engine. `simt` stands for a
    /// GPU where there is none, and its memory is that of the process.
    ///
    /// # Errors
    /// [`EngineError::Closing`]; [`HostError::Provider`]: the driver's, or that there is no such GPU.
    pub fn gpu(&self, selector: GpuSelector) -> Result<Arc<dyn Gpu>, HostError> {
        if self.is_closed() {
            return Err(EngineError::Closing.into());
        }
        // Held while one is opened: of two threads that name it, one opens it.
        let mut gpus = lock(&self.inner.gpus.0);
        if let Some((_, gpu)) = gpus.iter().find(|(known, _)| *known == selector) {
            return Ok(Arc::clone(gpu));
        }
        let gpu = open_bare(selector, false).map_err(ProviderError::from)?;
        gpus.push((selector, Arc::clone(&gpu)));
        Ok(gpu)
    }
}
