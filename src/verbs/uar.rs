//! Doorbell registers.
//!
//! A UAR page of 4 KiB holds two registers. Every QP gets one of its own: silicon takes two QPs behind one register, but a
//! software HCA sees plain memory, in which the second store overwrites the first before it looked.

// UNSAFETY: calls into libmlx5; the register itself is only ever named by its address.
#![expect(unsafe_code, reason = "calls into libmlx5")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use mlx5_prm::doorbell::uar;

use super::context::{Context, last_errno};
use super::error::VerbsError;
use crate::sys::bindings::mlx5dv_devx_uar;

/// `MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED` (rdma-core 48 and later): not cached, and not shared with libmlx5's other users.
const NC_DEDICATED: u32 = 1 << 31;
/// `MLX5DV_UAR_ALLOC_TYPE_BF`: BlueFlame; libmlx5 hands out one register of a page at a time. (The plain non-cached kind is
/// one page per context that all askers share, so it is not here.)
const BF: u32 = 0;

/// Kinds of page in the order of preference. Non-cached pages give four registers, which the software HCA takes for two.
fn kinds(soft: bool) -> &'static [u32] {
    if soft { &[BF] } else { &[NC_DEDICATED, BF] }
}

/// One doorbell register. libmlx5 counts the users of its page and unmaps it with the device.
pub struct DoorbellRegister {
    context: Arc<Context>,
    raw: NonNull<mlx5dv_devx_uar>,
    page_id: u32,
    page_addr: u64,
    addr: u64,
}

// SAFETY: DevX calls may come from any thread; the handle is only named when it is freed.
unsafe impl Send for DoorbellRegister {}
// SAFETY: as for Send.
unsafe impl Sync for DoorbellRegister {}

impl DoorbellRegister {
    /// Takes a register that nobody else in this process uses.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`] if there is none left, [`VerbsError::BadReply`] if libmlx5 hands out one that is in use or is not
    /// inside a page.
    pub fn alloc(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        let mut errno = 0;
        for kind in kinds(context.info().is_soft()) {
            // SAFETY: the context is open.
            let raw = unsafe { context.rdma().mlx5dv_devx_alloc_uar(context.raw(), *kind) };
            match NonNull::new(raw) {
                Some(raw) => return Self::claim(context, raw),
                None => errno = last_errno(),
            }
        }
        Err(context.failed("mlx5dv_devx_alloc_uar", errno))
    }

    /// The register that all who ask for a shared one get.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Capability`] on the software HCA, which would lose doorbells; else as [`DoorbellRegister::alloc`].
    pub fn shared(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        if context.info().is_soft() {
            return Err(context.device().lacks(
                "a doorbell register shared by QPs",
                "not possible on the software HCA",
                "one register per QP: share_doorbell_register = false",
            ));
        }
        let mut shared = context
            .shared_register
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(register) = shared.upgrade() {
            return Ok(register);
        }
        let register = Self::alloc(context)?;
        *shared = Arc::downgrade(&register);
        Ok(register)
    }

    /// Number of the page, as commands name it.
    #[must_use]
    pub fn page_id(&self) -> u32 {
        self.page_id
    }

    /// Where the page of [`uar::PAGE_BYTES`] is mapped in this process, write-only.
    #[must_use]
    pub fn page_addr(&self) -> u64 {
        self.page_addr
    }

    /// Where the register is: the doorbell is one 8-byte store to it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    fn claim(
        context: &Arc<Context>,
        raw: NonNull<mlx5dv_devx_uar>,
    ) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: libmlx5 returned it, and does not change it while it is allocated.
        let uar = unsafe { raw.as_ref() };
        let page_addr = uar.base_addr.expose_provenance() as u64;
        let addr = uar.reg_addr.expose_provenance() as u64;
        let offset = addr.wrapping_sub(page_addr);
        if !context.registers().insert(addr) {
            // Freeing it would take it from the QP that has it.
            let value = format!("{offset:#x} in page {:#x}", uar.page_id);
            return Err(context.bad_reply("doorbell register", value, "one not in use"));
        }
        let register = Self {
            context: Arc::clone(context),
            raw,
            page_id: uar.page_id,
            page_addr,
            addr,
        };
        let inside = offset < uar::PAGE_BYTES as u64 && offset.is_multiple_of(8);
        if !inside || register.page_id >= 1 << 24 {
            let value = format!("{offset:#x} in page {:#x}", register.page_id);
            let limit = "inside a page with a number of 24 bits";
            return Err(context.bad_reply("doorbell register", value, limit));
        }
        Ok(Arc::new(register))
    }
}

impl Drop for DoorbellRegister {
    fn drop(&mut self) {
        self.context.registers().remove(&self.addr);
        // SAFETY: it is allocated, and only this call frees it; QPs that ring it hold it, so none is left.
        unsafe { self.context.rdma().mlx5dv_devx_free_uar(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for DoorbellRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorbellRegister")
            .field("page_id", &self.page_id)
            .field(
                "offset",
                &format_args!("{:#x}", self.addr.wrapping_sub(self.page_addr)),
            )
            .finish_non_exhaustive()
    }
}
