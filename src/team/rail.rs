//! One rail: an HCA of this rank, with its protection domain and its control heap.

// UNSAFETY: gives device memory that the rail owns to the control heap.
#![expect(unsafe_code, reason = "control heap over memory that the rail owns")]

use std::sync::Arc;

use super::{TeamConfig, TeamError};
use crate::gpu::{DeviceMemory, Gpu};
use crate::verbs::{Context, ControlHeap, HEAP_ALIGN, Pd};

/// Everything on one HCA that QPs and registrations are made from.
#[derive(Debug)]
pub(super) struct Rail {
    pd: Arc<Pd>,
    control: Control,
}

impl Rail {
    /// A rail on the device `context`, with room for `qps` QPs.
    pub(super) fn new(
        context: &Arc<Context>,
        gpu: &dyn Gpu,
        config: &TeamConfig,
        rail: u32,
        rails: u32,
    ) -> Result<Self, TeamError> {
        Ok(Self {
            pd: Pd::new(context)?,
            control: Control::new(context, gpu, config.control_bytes_of(rail, rails))?,
        })
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.pd.context()
    }

    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    pub(super) fn heap(&self) -> &Arc<ControlHeap> {
        self.control.heap.as_ref().expect("taken in drop only")
    }
}

/// The control heap and the memory it lies in.
#[derive(Debug)]
struct Control {
    heap: Option<Arc<ControlHeap>>,
    memory: Option<DeviceMemory>,
}

impl Control {
    fn new(context: &Arc<Context>, gpu: &dyn Gpu, bytes: u64) -> Result<Self, TeamError> {
        let length = usize::try_from(bytes)
            .map_err(|_| TeamError::limit("control_bytes", bytes, usize::MAX))?;
        let align = usize::try_from(HEAP_ALIGN).expect("a page");
        let memory = gpu.alloc(length, align)?;
        // SAFETY: `memory` is device memory, to which no Rust reference exists; `drop` frees it after the heap, or never.
        let heap = unsafe { ControlHeap::new(context, memory.addr(), length) }?;
        Ok(Self {
            heap: Some(heap),
            memory: Some(memory),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let left = self
            .heap
            .take()
            .map_or(0, |heap| Arc::strong_count(&heap) - 1);
        if left != 0 {
            // A QP that the HCA would not destroy still uses its rings, so they are never given to anybody else.
            tracing::error!("{left} users of the control heap are left: its memory is kept");
            std::mem::forget(self.memory.take());
        }
    }
}
