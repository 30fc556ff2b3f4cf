//! The control heap, from which QPs take their context, flags, send queue, CQE and doorbell records.
//!
//! A heap has one region, at most one UMEM, and one [`MemHeap`]. The region belongs to the caller. It is device memory of a GPU or of simt,
//! or host memory that kernels reach. This module never touches device memory. In host memory,
//! [`Qp::write_image`](crate::verbs::Qp::write_image) fills the blocks of its QP.

// UNSAFETY: registers memory with the HCA, and writes to host memory that the caller gave.
#![expect(unsafe_code, reason = "registered memory; words in host memory")]

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::setters;
use crate::memheap::{Block, HeapStats, MemHeap};
use crate::verbs::context::Context;
use crate::verbs::error::VerbsError;
use crate::verbs::limits::HEAP_ALIGN;
use crate::verbs::memory::export::{Dmabuf, Export, KeptDmabuf};
use crate::verbs::memory::mr::{Access, Mr};
use crate::verbs::memory::pd::Pd;
use crate::verbs::memory::umem::Umem;
use crate::verbs::rung::Rung;

/// The memory of a heap.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HeapRegion<'a> {
    /// Address of the first byte for kernels; in device memory for the HCA too.
    pub addr: u64,
    /// Address of the first byte of host memory in this process, which the HCA uses too. None for device memory.
    pub host_addr: Option<u64>,
    /// Length in bytes.
    pub bytes: usize,
    /// The region as dmabufs, the best first; empty if its owner exports none.
    pub dmabufs: &'a [Dmabuf<'a>],
    /// True if the HCA must reach the region. If false, the heap holds only contexts and flags of QPs with
    /// [`Queues::Host`](crate::verbs::Queues).
    pub umem: bool,
}

setters! {
    const HeapRegion<'a> {
        with_addr(addr: u64),
        with_host_addr(host_addr: Option<u64>),
        with_bytes(bytes: usize),
        with_dmabufs(dmabufs: &'a [Dmabuf<'a>]),
        with_umem(umem: bool),
    }
}

impl HeapRegion<'_> {
    /// Returns a region of device memory, with one address for the HCA and kernels.
    #[must_use]
    pub fn device(addr: u64, bytes: usize) -> Self {
        Self {
            addr,
            host_addr: None,
            bytes,
            dmabufs: &[],
            umem: true,
        }
    }

    /// Returns a region of host memory, at `addr` for kernels and at `host_addr` for this process and the HCA.
    #[must_use]
    pub fn host(addr: u64, host_addr: u64, bytes: usize) -> Self {
        Self {
            host_addr: Some(host_addr),
            ..Self::device(addr, bytes)
        }
    }

    /// Returns the rung of the region's address.
    pub(in crate::verbs) fn last(&self) -> Rung {
        match self.host_addr {
            Some(_) => Rung::Host,
            None => Rung::Address,
        }
    }

    pub(in crate::verbs) fn check(&self) -> Result<(), VerbsError> {
        let length = self.bytes as u64;
        for addr in [Some(self.addr), self.host_addr].into_iter().flatten() {
            let aligned = addr.is_multiple_of(HEAP_ALIGN);
            if length == 0 || !aligned || addr.checked_add(length).is_none() {
                return Err(VerbsError::argument(
                    "control heap",
                    format!("{length} bytes at {addr:#x}"),
                    format!("at least one byte at a multiple of {HEAP_ALIGN}"),
                ));
            }
        }
        Ok(())
    }
}

/// A control heap. Blocks, and the objects in them, keep it alive.
pub struct ControlHeap {
    addr: u64,
    host_addr: Option<u64>,
    bytes: u64,
    heap: Mutex<MemHeap>,
    umem: Option<Umem>,
    export: Option<Export>,
    /// The dmabuf from which the UMEM was made.
    dmabuf: Option<KeptDmabuf>,
    context: Arc<Context>,
    /// The owner of the region, if it was given. It is dropped last.
    _owner: Option<Owner>,
}

/// The owner of a region. Each heap that is tried in the region holds a reference.
pub(in crate::verbs) type Owner = Arc<Box<dyn Any + Send + Sync>>;

impl ControlHeap {
    /// Makes a heap that the HCA reaches by `dmabuf`, or, without one, by the address. No other way is tried.
    ///
    /// # Safety
    ///
    /// As [`ControlHeap::over`].
    pub(in crate::verbs) unsafe fn made(
        context: &Arc<Context>,
        region: &HeapRegion<'_>,
        dmabuf: Option<&Dmabuf<'_>>,
        owner: Option<Owner>,
    ) -> Result<Arc<Self>, VerbsError> {
        let addr = region.host_addr.unwrap_or(region.addr);
        let rung = dmabuf.map_or(region.last(), Dmabuf::rung);
        let register = || {
            // SAFETY: the caller's promise.
            let umem = unsafe { Umem::register(context, addr, region.bytes, dmabuf) };
            umem.map_err(|refusal| refusal.on(rung))
        };
        let umem = region.umem.then(register).transpose()?;
        Ok(Arc::new(Self {
            addr: region.addr,
            host_addr: region.host_addr,
            bytes: region.bytes as u64,
            heap: Mutex::new(MemHeap::new(region.bytes as u64)),
            export: umem.as_ref().map(|_| Export::first_try(rung)),
            umem,
            dmabuf: dmabuf.map(KeptDmabuf::keep).transpose()?,
            context: Arc::clone(context),
            _owner: owner,
        }))
    }

    /// Takes a block at an address that is a multiple of `align` (a power of two, at most [`HEAP_ALIGN`]).
    ///
    /// # Errors
    ///
    /// [`VerbsError::Heap`] if the block does not fit, [`VerbsError::BadArgument`] for another alignment.
    pub fn alloc(self: &Arc<Self>, bytes: u64, align: u64) -> Result<ControlBlock, VerbsError> {
        if align > HEAP_ALIGN {
            return Err(VerbsError::argument(
                "alignment in the control heap",
                align,
                HEAP_ALIGN,
            ));
        }
        let block = self.lock().alloc(bytes, align)?;
        Ok(ControlBlock {
            heap: Arc::clone(self),
            block,
        })
    }

    /// Returns the address of the region's first byte for kernels.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the address of the region's first byte in this process, if the region is host memory.
    #[must_use]
    pub fn host_addr(&self) -> Option<u64> {
        self.host_addr
    }

    /// Returns the length of the region in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many bytes are taken and how many are free.
    #[must_use]
    pub fn stats(&self) -> HeapStats {
        self.lock().stats()
    }

    /// Returns a map of the heap for people: figures, then each live block and each free extent by offset.
    #[must_use]
    pub fn dump(&self) -> String {
        self.lock().dump()
    }

    /// Returns the id by which commands name the UMEM.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for a heap that the HCA does not reach.
    pub(crate) fn umem_id(&self) -> Result<u32, VerbsError> {
        self.umem.as_ref().map(Umem::id).ok_or_else(|| {
            VerbsError::argument(
                "heap for queues",
                "one without a UMEM",
                "a heap that the HCA reaches (HeapRegion::umem)",
            )
        })
    }

    /// Returns the way in which the HCA reaches the region. None if it does not reach it.
    #[must_use]
    pub fn export(&self) -> Option<&Export> {
        self.export.as_ref()
    }

    /// Sets the rung on which the region stands, and the rungs that were refused before.
    pub(in crate::verbs) fn set_export(&mut self, export: Export) {
        self.export = Some(export);
    }

    /// Returns the device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    fn lock(&self) -> MutexGuard<'_, MemHeap> {
        // MemHeap does not panic half-way through a change; a panic elsewhere under the lock leaves it whole.
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A live block of a control heap. Its drop gives the block back.
///
/// An owner that gives a block to the HCA drops it only after the HCA's object is gone.
pub struct ControlBlock {
    heap: Arc<ControlHeap>,
    block: Block,
}

impl ControlBlock {
    /// Returns the offset in the heap, and so in the UMEM.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.block.offset
    }

    /// Returns the address of the block, for kernels and for the owner of the region.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.heap.addr + self.block.offset
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.block.bytes
    }

    /// Returns the heap of the block.
    #[must_use]
    pub fn heap(&self) -> &Arc<ControlHeap> {
        &self.heap
    }

    /// Returns whether the block is host memory.
    pub(in crate::verbs) fn is_host(&self) -> bool {
        self.heap.host_addr.is_some()
    }

    /// Writes to a block of host memory, from its byte `skip` on, in words of 8 bytes. Does nothing in device memory, and nothing beyond
    /// the block.
    pub(in crate::verbs) fn fill_host(&self, skip: u64, bytes: &[u8]) {
        let Some(host_addr) = self.heap.host_addr else {
            return;
        };
        let most = self.block.bytes.saturating_sub(skip) / 8;
        let first = host_addr + self.block.offset + skip / 8 * 8;
        for (word, at) in bytes.chunks_exact(8).zip(0..most) {
            let Ok(addr) = usize::try_from(first + at * 8) else {
                return;
            };
            let mut value = [0; 8];
            value.copy_from_slice(word);
            // SAFETY: the address lies inside the block, which is part of the region. The region is mapped here, writable and
            // aligned to a page, as the heap's maker promised. Blocks are aligned to 8 at least, and all code accesses the memory
            // by atomics or from outside.
            let place = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(addr)) };
            place.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
    }

    /// Reads a block of host memory, from its byte `skip` on, in words of 8 bytes. For device memory, and beyond the block, `out` stays as
    /// it was.
    pub(in crate::verbs) fn read_host(&self, skip: u64, out: &mut [u8]) {
        let Some(host_addr) = self.heap.host_addr else {
            return;
        };
        let most = self.block.bytes.saturating_sub(skip) / 8;
        let first = host_addr + self.block.offset + skip / 8 * 8;
        for (word, at) in out.chunks_exact_mut(8).zip(0..most) {
            let Ok(addr) = usize::try_from(first + at * 8) else {
                return;
            };
            // SAFETY: as in `fill_host`.
            let place = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(addr)) };
            word.copy_from_slice(&place.load(Ordering::Relaxed).to_le_bytes());
        }
    }

    /// Returns the words of the block in this process: all whole words of 8 bytes in host memory, none in device memory.
    ///
    /// The HCA reads and writes the words too, so the caller chooses the memory order of each access by the protocol.
    pub(in crate::verbs) fn words(&self) -> &[AtomicU64] {
        let Some(host_addr) = self.heap.host_addr else {
            return &[];
        };
        let place = usize::try_from(host_addr + self.block.offset);
        let count = usize::try_from(self.block.bytes / 8);
        let (Ok(place), Ok(count)) = (place, count) else {
            return &[];
        };
        let first = std::ptr::with_exposed_provenance::<AtomicU64>(place);
        // SAFETY: the block is part of the region. The region is mapped here, writable and aligned to a page, as the heap's maker
        // promised. It outlives the heap, which `self` keeps. Blocks are aligned to 8 at least, and all code accesses the memory
        // by atomics or from outside.
        unsafe { std::slice::from_raw_parts(first, count) }
    }

    /// Registers the block, on the rung of its heap, so that requests can name it.
    ///
    /// # Errors
    ///
    /// As [`Mr::register`].
    pub(in crate::verbs) fn register(
        &self,
        pd: &Arc<Pd>,
        access: Access,
    ) -> Result<Mr, VerbsError> {
        let offset = self.block.offset;
        let dmabuf = self.heap.dmabuf.as_ref().map(|kept| kept.from(offset));
        let addr = self.heap.host_addr.unwrap_or(self.heap.addr) + offset;
        // SAFETY: the heap's maker promised that the region outlives the heap, which the caller keeps with this block.
        unsafe { Mr::register_as(pd, addr, self.block.bytes, access, dmabuf.as_ref()) }
    }
}

impl Drop for ControlBlock {
    fn drop(&mut self) {
        if let Err(error) = self.heap.lock().free(self.block.offset) {
            tracing::error!("control heap: {error}");
        }
    }
}

impl fmt::Debug for ControlHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = self.export.as_ref().map(ToString::to_string);
        f.debug_struct("ControlHeap")
            .field("addr", &format_args!("{:#x}", self.addr))
            .field("umem_id", &self.umem.as_ref().map(Umem::id))
            .field("export", &export)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ControlBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.block, f)
    }
}
