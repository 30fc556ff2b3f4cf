//! Protection domains of devices without DevX.

// UNSAFETY: calls into libibverbs with the domain.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sys::bindings::ibv_pd;
use crate::verbs::error::{VerbsError, last_errno};
use crate::verbs::plain::context::PlainContext;

/// A protection domain. A QP may use only memory that is registered in its domain.
pub(crate) struct PlainPd {
    context: Arc<PlainContext>,
    raw: NonNull<ibv_pd>,
}

// SAFETY: libibverbs objects may be used from any thread; this one is only named in calls.
unsafe impl Send for PlainPd {}
// SAFETY: as for Send.
unsafe impl Sync for PlainPd {}

impl PlainPd {
    /// Allocates a domain.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub(crate) fn new(context: &Arc<PlainContext>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = unsafe { context.rdma().ibv_alloc_pd(context.raw()) };
        let raw = NonNull::new(raw).ok_or_else(|| context.failed("ibv_alloc_pd", last_errno()))?;
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            raw,
        }))
    }

    /// Returns the context of the device.
    pub(crate) fn context(&self) -> &Arc<PlainContext> {
        &self.context
    }

    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for PlainPd {
    fn drop(&mut self) {
        // SAFETY: the domain is alive; regions and QPs in it hold a reference to `self`, so none is left.
        let errno = unsafe { self.context.rdma().ibv_dealloc_pd(self.raw()) };
        if errno != 0 {
            tracing::error!("leaked: {}", self.context.failed("ibv_dealloc_pd", errno));
        }
    }
}

impl fmt::Debug for PlainPd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainPd({})", self.context.name())
    }
}
