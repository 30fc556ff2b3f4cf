//! Memory for results of atomics that no caller asked for.

use std::sync::Arc;

use crate::verbs::error::VerbsError;
use crate::verbs::memory::heap::{ControlBlock, ControlHeap};
use crate::verbs::memory::mr::{Access, Mr};
use crate::verbs::memory::pd::Pd;

/// The number of bytes of the sink: a line of its own, of which 8 are used.
const SINK_BYTES: u64 = 128;

/// A line of a control heap that takes the unwanted results of atomics. It is registered so that requests of any QP of its domain can name
/// it. No code ever reads it, so all QPs may share a sink: its address and lkey go into [`ImageAttr`](crate::verbs::ImageAttr). The sink
/// outlives these QPs.
#[derive(Debug)]
pub struct AtomicSink {
    /// The registration, which is taken down before the block is given back.
    mr: Mr,
    block: ControlBlock,
}

impl AtomicSink {
    /// Takes a line of `heap`, which the HCA must reach, and registers it.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Heap`] if the line does not fit; [`VerbsError::BadArgument`] for a heap without UMEM or of another context; the errors
    /// of the registration.
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

    /// Returns the address by which requests name the sink.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.mr.addr()
    }

    /// Returns the key of the sink for local requests.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.mr.lkey()
    }

    /// Returns the heap in which the sink lies.
    #[must_use]
    pub fn heap(&self) -> &Arc<ControlHeap> {
        self.block.heap()
    }
}
