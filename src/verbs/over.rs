//! Control heaps over a region of memory. A way to the memory that the HCA refuses is passed over.

// UNSAFETY: hands memory of the caller to the HCA.
#![expect(unsafe_code, reason = "registered memory")]

use std::any::Any;
use std::sync::Arc;

use crate::verbs::context::Context;
use crate::verbs::error::VerbsError;
use crate::verbs::limits::LOG_MIN_DEPTH;
use crate::verbs::memory::export::{Dmabuf, climb};
use crate::verbs::memory::heap::{ControlHeap, HeapRegion};
use crate::verbs::memory::pd::Pd;
use crate::verbs::qp::cq::{Cq, CqPlace};
use crate::verbs::qp::shape::QpConfig;
use crate::verbs::qp::states::Qp;

impl ControlHeap {
    /// Registers `bytes` bytes at `addr`, an address for the HCA and kernels, as one UMEM. The HCA may read and write the region; peers may
    /// not.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for a region that is empty, wraps around or is not aligned to [`HEAP_ALIGN`](crate::verbs::HEAP_ALIGN);
    /// [`VerbsError::Call`] if it cannot be registered.
    ///
    /// # Safety
    ///
    /// The region stays allocated until the heap and everything in it is dropped, and no code holds a Rust reference to any of the region.
    /// The HCA reads and writes the blocks of each QP at any time while the QP lives.
    pub unsafe fn new(
        context: &Arc<Context>,
        addr: u64,
        bytes: usize,
    ) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { Self::over(context, &HeapRegion::device(addr, bytes), None) }
    }

    /// Makes a heap as [`ControlHeap::new`] does, and keeps `owner`, which holds the region, as long as the heap. That may be for ever: a
    /// QP that the HCA refuses to destroy keeps both.
    ///
    /// # Errors
    ///
    /// As [`ControlHeap::new`]; `owner` is dropped.
    ///
    /// # Safety
    ///
    /// The region stays allocated until `owner` is dropped, and no code holds a Rust reference to any of it.
    pub unsafe fn owning(
        context: &Arc<Context>,
        addr: u64,
        bytes: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<Arc<Self>, VerbsError> {
        let region = HeapRegion::device(addr, bytes);
        // SAFETY: the region lives as long as `owner`, which the heap keeps.
        unsafe { Self::over(context, &region, Some(Box::new(owner))) }
    }

    /// Makes a heap in any kind of region. It passes over a dmabuf that the HCA does not register, and a dmabuf in which the HCA makes no
    /// queue. [`ControlHeap::export`] returns the way that the heap took.
    ///
    /// # Errors
    ///
    /// As [`ControlHeap::new`]; [`VerbsError::Export`] with each rung's reason if more than one was tried. `owner` is dropped.
    ///
    /// # Safety
    ///
    /// As [`ControlHeap::new`]; if `owner` is given, the region stays allocated until `owner` is dropped. `host_addr`, if given, is where
    /// the region is mapped in this process, writable; each dmabuf is the same memory.
    pub unsafe fn over(
        context: &Arc<Context>,
        region: &HeapRegion<'_>,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Arc<Self>, VerbsError> {
        region.check()?;
        let owner = owner.map(Arc::new);
        let made = |dmabuf: Option<&Dmabuf<'_>>| {
            // SAFETY: the caller's promise.
            let heap = unsafe { Self::made(context, region, dmabuf, owner.clone()) }?;
            if dmabuf.is_some() {
                probe(&heap)?;
            }
            Ok(heap)
        };
        if !region.umem {
            return made(None);
        }
        let (mut heap, export) = climb(region.dmabufs, region.last(), made)?;
        if let Some(heap) = Arc::get_mut(&mut heap) {
            heap.set_export(export);
        }
        Ok(heap)
    }

    /// Makes a heap that the HCA reaches by `dmabuf`, or, without one, by the address. No other way is tried.
    ///
    /// # Errors
    ///
    /// As [`ControlHeap::new`]; `owner` is dropped.
    ///
    /// # Safety
    ///
    /// As [`ControlHeap::over`].
    pub(crate) unsafe fn on(
        context: &Arc<Context>,
        region: &HeapRegion<'_>,
        dmabuf: Option<&Dmabuf<'_>>,
    ) -> Result<Arc<Self>, VerbsError> {
        region.check()?;
        // SAFETY: the caller's promise.
        unsafe { Self::made(context, region, dmabuf, None) }
    }
}

/// Checks that the HCA makes a CQ and a QP in this memory. Some HCAs register memory in which they then refuse one. If the heap is too
/// short for a QP, only a CQ is tried.
fn probe(heap: &Arc<ControlHeap>) -> Result<(), VerbsError> {
    let context = heap.context();
    let shape = QpConfig {
        log_depth: LOG_MIN_DEPTH,
        own_counters: false,
        ..QpConfig::default()
    };
    if heap.bytes() >= shape.control_bytes() {
        return Qp::create(&Pd::new(context)?, heap, &shape)?.destroy();
    }
    let register = context.registers().alloc()?;
    let place = CqPlace {
        umem_id: heap.umem_id()?,
        cqe_offset: 0,
        log_entries: None,
        dbrec_offset: 64,
        uar_page: register.page_id(),
        counts_consumption: false,
    };
    Cq::create(context, &place, register)?.destroy()
}
