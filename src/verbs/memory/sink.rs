//! Where results of atomics go that no caller asked for.

use std::sync::Arc;

use crate::verbs::error::VerbsError;
use crate::verbs::memory::heap::{ControlBlock, ControlHeap};
use crate::verbs::memory::mr::{Access, Mr};
use crate::verbs::memory::pd::Pd;

/// Bytes of the sink: a line of its own, of which 8 are used.
const SINK_BYTES: u64 = 128;

/// A line of a control heap that swallows the results of atomics, registered so that requests of any QP of its domain can name
/// it. No code ever reads it, so all QPs may share one: its address and lkey go into [`ImageAttr`](crate::verbs::ImageAttr). It outlives
/// them.
#[derive(Debug)]
pub struct AtomicSink {
    /// Taken down before the block goes back.
    mr: Mr,
    block: ControlBlock,
}

impl AtomicSink {
    /// Takes a line of `heap`, which the HCA must reach, and registers it.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Heap`] if it does not fit; [`VerbsError::BadArgument`] for a heap without UMEM or of another context;
    /// the registration's.
    pub fn new(pd: &Arc<Pd>, heap: &Arc<ControlHeap>) -> Result<Self, VerbsError> {
        heap.umem_id()?;
        if !Arc::ptr_eq(pd.context(), heap.context()) {
            return Err(VerbsError::argument(
                "control heap",
                heap.context().name(),
                format!("one of the context of the PD, {}", pd.context().name()),
            ));
        }
        let block = heap.alloc(SINK_BYTES, SINK_BYTES)?;
        let mr = block.register(pd, Access::LOCAL_WRITE)?;
        Ok(Self { mr, block })
    }

    /// Its address, as requests name it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.mr.addr()
    }

    /// Its key.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.mr.lkey()
    }

    /// Returns the heap that it lies in.
    #[must_use]
    pub fn heap(&self) -> &Arc<ControlHeap> {
        self.block.heap()
    }
}
