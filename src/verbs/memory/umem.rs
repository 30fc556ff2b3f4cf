//! UMEMs: memory that commands can name.

// UNSAFETY: registers memory with the HCA.
#![expect(unsafe_code, reason = "calls into libmlx5")]

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sys::bindings::{IBV_ACCESS_LOCAL_WRITE, mlx5dv_devx_umem, mlx5dv_devx_umem_in};
use crate::verbs::context::Context;
use crate::verbs::error::{VerbsError, last_errno};
use crate::verbs::limits::HEAP_ALIGN;
use crate::verbs::memory::export::Dmabuf;

/// `MLX5DV_UMEM_MASK_DMABUF`: `dmabuf_fd` counts, and `addr` is an offset in it.
const MASK_DMABUF: u64 = 1 << 0;

/// A registered UMEM, which the HCA may read and write and peers may not.
pub(in crate::verbs) struct Umem {
    context: Arc<Context>,
    raw: NonNull<mlx5dv_devx_umem>,
    id: u32,
}

// SAFETY: DevX calls may come from any thread; the handle is only named in its deregistration.
unsafe impl Send for Umem {}
// SAFETY: as for Send.
unsafe impl Sync for Umem {}

impl Umem {
    /// Registers `bytes` bytes of `dmabuf`, or, without one, at `addr`.
    ///
    /// # Safety
    ///
    /// The memory stays allocated until the result is dropped, and no code holds a Rust reference to any of it.
    pub(in crate::verbs) unsafe fn register(
        context: &Arc<Context>,
        addr: u64,
        bytes: usize,
        dmabuf: Option<&Dmabuf<'_>>,
    ) -> Result<Self, VerbsError> {
        let (start, comp_mask, dmabuf_fd) = match dmabuf {
            Some(dmabuf) => (dmabuf.offset, MASK_DMABUF, dmabuf.fd.as_raw_fd()),
            None => (addr, 0, -1),
        };
        let start = usize::try_from(start)
            .map_err(|_| VerbsError::argument("control heap", start, usize::MAX))?;
        let mut input = mlx5dv_devx_umem_in {
            addr: std::ptr::with_exposed_provenance_mut(start),
            size: bytes,
            access: IBV_ACCESS_LOCAL_WRITE,
            pgsz_bitmap: HEAP_ALIGN,
            comp_mask,
            dmabuf_fd,
        };
        let rdma = context.rdma();
        let extended = rdma.has("mlx5dv_devx_umem_reg_ex");
        let (call, raw) = match extended {
            // Releases before 44 know no DMA-BUFs, and choose the page size themselves.
            Err(_) if dmabuf.is_none() => {
                let (start, access) = (input.addr, input.access);
                context.count_command();
                // SAFETY: the context is open, and the memory is the caller's, which keeps it.
                let raw = unsafe { rdma.mlx5dv_devx_umem_reg(context.raw(), start, bytes, access) };
                ("mlx5dv_devx_umem_reg", raw)
            }
            extended => {
                extended?;
                context.count_command();
                // SAFETY: the context is open, `input` lives through the call, and the memory is the caller's, which keeps it.
                let raw = unsafe { rdma.mlx5dv_devx_umem_reg_ex(context.raw(), &raw mut input) };
                ("mlx5dv_devx_umem_reg_ex", raw)
            }
        };
        let raw = NonNull::new(raw).ok_or_else(|| context.failed(call, last_errno()))?;
        // SAFETY: libmlx5 returned a UMEM, whose id does not change.
        let id = unsafe { raw.as_ref().umem_id };
        Ok(Self {
            context: Arc::clone(context),
            raw,
            id,
        })
    }

    pub(in crate::verbs) fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        self.context.count_command();
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
            self.context.device().keep_adopted();
        }
    }
}
