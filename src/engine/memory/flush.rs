//! GPUs whose memory is registered and which show an HCA's writes only after a flush.
//!
//! A thread flushes before it reports bytes: a worker before it counts, the thread of a connection before it delivers a notice, and a
//! thread that concludes a transfer with READs before it concludes. Without such a GPU each thread only loads one word.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::engine::lock::lock;
use crate::gpu::{Gpu, GpuError};
use crate::provider::AnyMemory;

/// The GPUs of an engine that are flushed.
#[derive(Debug, Default)]
pub(in crate::engine) struct Flushes {
    gpus: Mutex<Vec<FlushedGpu>>,
    count: AtomicUsize,
}

/// A GPU that is flushed.
#[derive(Debug)]
struct FlushedGpu {
    /// The id of the device.
    id: String,
    gpu: Arc<dyn Gpu>,
    /// The number of registrations of its memory.
    registrations: usize,
}

/// A registration of memory of such a GPU, until it is dropped.
#[derive(Debug)]
pub(in crate::engine) struct Flushed {
    flushes: Arc<Flushes>,
    /// The id of the GPU.
    id: String,
}

impl Flushes {
    /// Adds the GPU of this memory to those that are flushed, if it needs flushes.
    pub(in crate::engine) fn enter(self: &Arc<Self>, memory: &AnyMemory) -> Option<Flushed> {
        let memory = memory.gpu().filter(|memory| memory.needs_flush())?;
        let id = memory.gpu().device_id();
        let mut gpus = lock(&self.gpus);
        match gpus.iter_mut().find(|known| known.id == id) {
            Some(known) => known.registrations += 1,
            None => gpus.push(FlushedGpu {
                id: id.clone(),
                gpu: Arc::clone(memory.gpu()),
                registrations: 1,
            }),
        }
        self.count.store(gpus.len(), Ordering::SeqCst);
        Some(Flushed {
            flushes: Arc::clone(self),
            id,
        })
    }

    /// Returns whether there is a GPU that is flushed.
    pub(in crate::engine) fn is_needed(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Flushes all GPUs. After that kernels see what HCAs have written whose completions this thread has seen.
    pub(in crate::engine) fn flush(&self) -> Result<(), GpuError> {
        if !self.is_needed() {
            return Ok(());
        }
        // The flush runs without the lock, so that regions may come and go meanwhile.
        let gpus: Vec<Arc<dyn Gpu>> = {
            let known = lock(&self.gpus);
            known.iter().map(|known| Arc::clone(&known.gpu)).collect()
        };
        gpus.iter().try_for_each(|gpu| gpu.flush_writes())
    }
}

impl Drop for Flushed {
    fn drop(&mut self) {
        let mut gpus = lock(&self.flushes.gpus);
        if let Some(known) = gpus.iter_mut().find(|known| known.id == self.id) {
            known.registrations -= 1;
        }
        gpus.retain(|known| known.registrations > 0);
        self.flushes.count.store(gpus.len(), Ordering::SeqCst);
    }
}
