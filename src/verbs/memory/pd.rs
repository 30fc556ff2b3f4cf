//! Protection domains.

// UNSAFETY: calls into libibverbs and libmlx5 with the domain.
#![expect(unsafe_code, reason = "calls into libibverbs and libmlx5")]

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sys::bindings::{MLX5DV_OBJ_PD, ibv_pd, mlx5dv_obj, mlx5dv_pd};
use crate::verbs::context::Context;
use crate::verbs::device::adopt::{self, Adoption};
use crate::verbs::error::{VerbsError, last_errno};

/// A protection domain. A QP may use only memory that is registered in its domain.
pub struct Pd {
    context: Arc<Context>,
    raw: NonNull<ibv_pd>,
    pdn: u32,
    /// The use of the application's domain. None if the domain was made here.
    adopted: Option<Adoption>,
}

// SAFETY: libibverbs objects may be used from any thread; this one is only named in calls.
unsafe impl Send for Pd {}
// SAFETY: as for Send.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a domain.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        context.count_command();
        // SAFETY: the context is open.
        let raw = unsafe { context.rdma().ibv_alloc_pd(context.raw()) };
        let raw = NonNull::new(raw).ok_or_else(|| context.failed("ibv_alloc_pd", last_errno()))?;
        let mut pd = Self {
            context: Arc::clone(context),
            raw,
            pdn: 0,
            adopted: None,
        };
        pd.pdn = pd.query_pdn()?;
        Ok(Arc::new(pd))
    }

    /// Takes a domain that the application has allocated, on a context that it has handed over by [`Context::adopt`]. The application
    /// deallocates the domain once [`adopted`](crate::verbs::adopted) returns 0 for it. Objects that this library makes in the domain
    /// may use memory that the application has registered in it. The application's QPs may use memory that this library registers in it.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for null, or a domain of another context; [`VerbsError::Call`], [`VerbsError::BadReply`].
    ///
    /// # Safety
    ///
    /// `raw` is null or a `struct ibv_pd *` that is allocated, and stays allocated until the result, and everything that was made
    /// through it, has been dropped.
    pub unsafe fn adopt(context: &Arc<Context>, raw: *mut c_void) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the caller's promise.
        let raw = unsafe { adopt::domain_of(context.raw(), context.name(), raw) }?;
        let mut pd = Self {
            context: Arc::clone(context),
            raw,
            pdn: 0,
            adopted: Some(Adoption::of_domain(raw)),
        };
        pd.pdn = pd.query_pdn()?;
        Ok(Arc::new(pd))
    }

    /// Returns the number by which commands name the domain.
    #[must_use]
    pub(crate) fn pdn(&self) -> u32 {
        self.pdn
    }

    /// Returns the context of the device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(in crate::verbs) fn raw(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }

    /// Notes that an object is left in the domain that the HCA refuses to destroy. If the application has handed the domain over, it counts
    /// as used for ever, so the application keeps it. A domain that was made here ends with its context.
    pub(in crate::verbs) fn keep_adopted(self: &Arc<Self>) {
        if self.adopted.is_some() {
            std::mem::forget(Arc::clone(self));
        }
    }

    fn query_pdn(&self) -> Result<u32, VerbsError> {
        let mut out = mlx5dv_pd {
            pdn: u32::MAX,
            comp_mask: 0,
        };
        // SAFETY: all fields are pointers, for which zero is null.
        let mut object: mlx5dv_obj = unsafe { std::mem::zeroed() };
        object.pd.in_ = self.raw();
        object.pd.out = &raw mut out;
        let rdma = self.context.rdma();
        // SAFETY: the domain is alive and `out` lives through the call; no other kind of object is asked for.
        let errno = unsafe { rdma.mlx5dv_init_obj(&raw mut object, u64::from(MLX5DV_OBJ_PD)) };
        if errno != 0 {
            return Err(self.context.failed("mlx5dv_init_obj(PD)", errno));
        }
        if out.pdn >= 1 << 24 {
            return Err(self
                .context
                .device()
                .bad_reply("pdn", out.pdn, "a number of 24 bits"));
        }
        Ok(out.pdn)
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if self.adopted.is_some() {
            return;
        }
        self.context.count_command();
        // SAFETY: the domain is alive; MRs and QPs in it hold a reference to `self`, so none is left.
        let errno = unsafe { self.context.rdma().ibv_dealloc_pd(self.raw()) };
        if errno != 0 {
            tracing::error!("leaked: {}", self.context.failed("ibv_dealloc_pd", errno));
        }
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pd")
            .field("device", &self.context.name())
            .field("pdn", &self.pdn)
            .finish_non_exhaustive()
    }
}
