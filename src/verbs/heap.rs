//! The control heap: where QPs take their context, flags, send queue, CQE and doorbell records from.
//!
//! One region, one UMEM, one [`MemHeap`]. The region belongs to the caller (device memory of a GPU, or of simt); neither
//! the heap nor anything else here ever touches it.

// UNSAFETY: registers memory with the HCA.
#![expect(unsafe_code, reason = "calls into libmlx5")]

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::{Context, last_errno};
use super::error::VerbsError;
use crate::memheap::{Block, HeapStats, MemHeap};
use crate::sys::bindings::{IBV_ACCESS_LOCAL_WRITE, mlx5dv_devx_umem, mlx5dv_devx_umem_in};

/// What the region must be aligned to, and the page that the UMEM is made of: a CQ's place in its page is 6 bits of 64 bytes.
pub const HEAP_ALIGN: u64 = 4096;

/// A control heap. Blocks and the objects in them keep it alive.
pub struct ControlHeap {
    addr: u64,
    bytes: u64,
    heap: Mutex<MemHeap>,
    umem: Umem,
    /// Holds the region, if it was given; dropped last.
    _owner: Option<Box<dyn Any + Send + Sync>>,
}

impl ControlHeap {
    /// Registers `bytes` bytes at `addr`, as the HCA and kernels address them, as one UMEM that the HCA may read and write
    /// and peers may not.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for a region that is empty, wraps around or is not aligned to [`HEAP_ALIGN`];
    /// [`VerbsError::Call`] if it cannot be registered.
    ///
    /// # Safety
    ///
    /// The region stays allocated until the heap and everything in it is dropped, and nobody holds a Rust reference to any of
    /// it: the HCA reads and writes the blocks of each QP at any time while the QP lives.
    pub unsafe fn new(
        context: &Arc<Context>,
        addr: u64,
        bytes: usize,
    ) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { Self::build(context, addr, bytes, None) }
    }

    /// As [`ControlHeap::new`], and keeps `owner`, which holds the region, as long as the heap: also when a QP that the HCA
    /// would not destroy keeps both for ever.
    ///
    /// # Errors
    ///
    /// As [`ControlHeap::new`]; `owner` is dropped.
    ///
    /// # Safety
    ///
    /// The region stays allocated until `owner` is dropped, and nobody holds a Rust reference to any of it.
    pub unsafe fn owning(
        context: &Arc<Context>,
        addr: u64,
        bytes: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the region lives as long as `owner`, which the heap keeps.
        unsafe { Self::build(context, addr, bytes, Some(Box::new(owner))) }
    }

    /// # Safety
    ///
    /// As [`ControlHeap::new`], unless `owner` keeps the region.
    unsafe fn build(
        context: &Arc<Context>,
        addr: u64,
        bytes: usize,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Arc<Self>, VerbsError> {
        let length = bytes as u64;
        if length == 0 || !addr.is_multiple_of(HEAP_ALIGN) || addr.checked_add(length).is_none() {
            return Err(VerbsError::argument(
                "control heap",
                format!("{length} bytes at {addr:#x}"),
                format!("at least one byte at a multiple of {HEAP_ALIGN}"),
            ));
        }
        // SAFETY: the caller's promise.
        let umem = unsafe { Umem::register(context, addr, bytes) }?;
        Ok(Arc::new(Self {
            addr,
            bytes: length,
            heap: Mutex::new(MemHeap::new(length)),
            umem,
            _owner: owner,
        }))
    }

    /// Takes a block, at an address that is a multiple of `align` (a power of two, at most [`HEAP_ALIGN`]).
    ///
    /// # Errors
    ///
    /// [`VerbsError::Heap`] if it does not fit, [`VerbsError::BadArgument`] for another alignment.
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

    /// First byte of the region.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length of the region in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is taken and what is left.
    #[must_use]
    pub fn stats(&self) -> HeapStats {
        self.lock().stats()
    }

    /// Id of the UMEM, as commands name it.
    #[must_use]
    pub fn umem_id(&self) -> u32 {
        self.umem.id
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.umem.context
    }

    fn lock(&self) -> MutexGuard<'_, MemHeap> {
        // MemHeap does not panic half-way; a panic elsewhere under the lock leaves it whole.
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A live block of a control heap; dropping it gives it back.
///
/// Whoever gives a block to the HCA drops it only after the HCA's object is gone.
pub struct ControlBlock {
    heap: Arc<ControlHeap>,
    block: Block,
}

impl ControlBlock {
    /// Offset in the heap, and so in the UMEM.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.block.offset
    }

    /// Address, for kernels and for the owner of the region.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.heap.addr + self.block.offset
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.block.bytes
    }
}

impl Drop for ControlBlock {
    fn drop(&mut self) {
        if let Err(error) = self.heap.lock().free(self.block.offset) {
            tracing::error!("control heap: {error}");
        }
    }
}

/// Memory that commands can name.
struct Umem {
    context: Arc<Context>,
    raw: NonNull<mlx5dv_devx_umem>,
    id: u32,
}

// SAFETY: DevX calls may come from any thread; the handle is only named in its deregistration.
unsafe impl Send for Umem {}
// SAFETY: as for Send.
unsafe impl Sync for Umem {}

impl Umem {
    /// # Safety
    ///
    /// As [`ControlHeap::new`].
    unsafe fn register(
        context: &Arc<Context>,
        addr: u64,
        bytes: usize,
    ) -> Result<Self, VerbsError> {
        let start = usize::try_from(addr)
            .map_err(|_| VerbsError::argument("control heap", addr, usize::MAX))?;
        let mut input = mlx5dv_devx_umem_in {
            addr: std::ptr::with_exposed_provenance_mut(start),
            size: bytes,
            access: IBV_ACCESS_LOCAL_WRITE,
            pgsz_bitmap: HEAP_ALIGN,
            comp_mask: 0,
            dmabuf_fd: 0,
        };
        let rdma = context.rdma();
        // SAFETY: the context is open, `input` lives through the call, and the memory is the caller's, who keeps it.
        let raw = unsafe { rdma.mlx5dv_devx_umem_reg_ex(context.raw(), &raw mut input) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| context.failed("mlx5dv_devx_umem_reg_ex", last_errno()))?;
        // SAFETY: libmlx5 returned a UMEM, whose id does not change.
        let id = unsafe { raw.as_ref().umem_id };
        Ok(Self {
            context: Arc::clone(context),
            raw,
            id,
        })
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the UMEM is registered, and only this call takes it down; objects in it hold its heap, so none is left.
        let errno = unsafe {
            self.context
                .rdma()
                .mlx5dv_devx_umem_dereg(self.raw.as_ptr())
        };
        if errno != 0 {
            tracing::error!(
                "leaked: {}",
                self.context.failed("mlx5dv_devx_umem_dereg", errno)
            );
        }
    }
}

impl fmt::Debug for ControlHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlHeap")
            .field("addr", &format_args!("{:#x}", self.addr))
            .field("umem_id", &self.umem.id)
            .field("stats", &self.stats())
            .finish()
    }
}

impl fmt::Debug for ControlBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.block, f)
    }
}
