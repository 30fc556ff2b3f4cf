//! The context of libibverbs through which everything of a device is made.

// UNSAFETY: calls into libibverbs and libmlx5 with the device's context.
#![expect(unsafe_code, reason = "calls into libibverbs and libmlx5")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::Rdma;
use crate::sys::bindings::{
    MLX5DV_CONTEXT_FLAGS_DEVX, ibv_context, ibv_device, mlx5dv_context_attr,
};
use crate::verbs::device::adopt::Adoption;
use crate::verbs::error::{CommandError, OPEN_WITH_DEVX, VerbsError, last_errno};

/// The context of libibverbs. Its drop closes the context, unless the application closes it.
pub(in crate::verbs) struct OpenDevice {
    rdma: &'static Rdma,
    raw: NonNull<ibv_context>,
    /// The use of the application's context. None if the context was opened here.
    adoption: Option<Adoption>,
    name: String,
    /// Number of commands to the HCA so far.
    commands: AtomicU64,
}

// SAFETY: libibverbs contexts may be used from any thread, also at the same time (ibv_open_device(3), "thread safe").
unsafe impl Send for OpenDevice {}

// SAFETY: as for Send.
unsafe impl Sync for OpenDevice {}

impl OpenDevice {
    /// Opens `device` with DevX.
    pub(in crate::verbs) fn open(
        device: NonNull<ibv_device>,
        name: &str,
    ) -> Result<Arc<Self>, VerbsError> {
        let rdma = Rdma::load()?;
        let mut attr = mlx5dv_context_attr {
            flags: MLX5DV_CONTEXT_FLAGS_DEVX,
            comp_mask: 0,
        };
        // SAFETY: `device` is in a list that the caller has not freed; `attr` lives through the call.
        let raw = unsafe { rdma.mlx5dv_open_device(device.as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::Call {
            call: OPEN_WITH_DEVX,
            device: name.to_owned(),
            errno: last_errno(),
            memory: None,
        })?;
        Ok(Self::of(rdma, raw, None, name))
    }

    /// Opens `device` by libibverbs alone, whose functions are `rdma`. Nothing of libmlx5 may be called with the result.
    pub(in crate::verbs) fn open_plain(
        rdma: &'static Rdma,
        device: NonNull<ibv_device>,
        name: &str,
    ) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: `device` is in a list that the caller has not freed.
        let raw = unsafe { rdma.ibv_open_device(device.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::Call {
            call: "ibv_open_device",
            device: name.to_owned(),
            errno: last_errno(),
            memory: None,
        })?;
        Ok(Self::of(rdma, raw, None, name))
    }

    /// Takes a context that the application has opened, and that the application closes.
    pub(in crate::verbs) fn adopt(
        rdma: &'static Rdma,
        raw: NonNull<ibv_context>,
        name: &str,
    ) -> Result<Arc<Self>, VerbsError> {
        let adoption = Adoption::of_context(raw, name)?;
        Ok(Self::of(rdma, raw, Some(adoption), name))
    }

    fn of(
        rdma: &'static Rdma,
        raw: NonNull<ibv_context>,
        adoption: Option<Adoption>,
        name: &str,
    ) -> Arc<Self> {
        Arc::new(Self {
            rdma,
            raw,
            adoption,
            name: name.to_owned(),
            commands: AtomicU64::new(0),
        })
    }

    pub(in crate::verbs) fn name(&self) -> &str {
        &self.name
    }

    pub(in crate::verbs) fn rdma(&self) -> &'static Rdma {
        self.rdma
    }

    pub(in crate::verbs) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// Counts a command that goes to the HCA now, whatever the answer is.
    pub(in crate::verbs) fn count_command(&self) {
        self.commands.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of commands so far.
    pub(in crate::verbs) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Returns the number of the event queue on which CQs are created.
    pub(in crate::verbs) fn event_queue(&self) -> Result<u32, VerbsError> {
        let mut eqn = u32::MAX;
        // SAFETY: the context is open, and `eqn` lives through the call.
        let errno = unsafe { self.rdma.mlx5dv_devx_query_eqn(self.raw(), 0, &raw mut eqn) };
        match errno {
            0 if eqn < 1 << 8 => Ok(eqn),
            0 => Err(self.bad_reply("eqn", eqn, "a number of 8 bits")),
            errno => Err(self.failed("mlx5dv_devx_query_eqn", errno)),
        }
    }

    /// Notes that an object is left on the device that the HCA refuses to destroy. If the application has handed the context over, it
    /// counts as used for ever, so the application keeps it open. If the context was opened here, the kernel ends the object when the
    /// context is closed.
    pub(in crate::verbs) fn keep_adopted(self: &Arc<Self>) {
        if self.adoption.is_some() {
            std::mem::forget(Arc::clone(self));
        }
    }

    /// Returns the error of a failed call of libibverbs on this device.
    pub(in crate::verbs) fn failed(&self, call: &'static str, errno: i32) -> VerbsError {
        VerbsError::Call {
            call,
            device: self.name.clone(),
            errno,
            memory: None,
        }
    }

    /// Returns the error of a refused command of this device.
    pub(in crate::verbs) fn refused(&self, source: CommandError) -> VerbsError {
        VerbsError::Command {
            device: self.name.clone(),
            source,
        }
    }

    /// Returns the error of an impossible reply of this device.
    pub(in crate::verbs) fn bad_reply(
        &self,
        what: &'static str,
        value: impl ToString,
        limit: impl ToString,
    ) -> VerbsError {
        VerbsError::BadReply {
            device: self.name.clone(),
            what,
            value: value.to_string(),
            limit: limit.to_string(),
        }
    }

    /// Returns the error of a capability that the device lacks.
    pub(in crate::verbs) fn lacks(
        &self,
        what: &'static str,
        has: impl ToString,
        needed: impl ToString,
    ) -> VerbsError {
        VerbsError::Capability {
            device: self.name.clone(),
            what,
            has: has.to_string(),
            needed: needed.to_string(),
        }
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        if self.adoption.is_some() {
            return;
        }
        // SAFETY: the context is open, and every object of it holds a reference to `self`, so none is left.
        let errno = unsafe { self.rdma.ibv_close_device(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!("{}", self.failed("ibv_close_device", errno));
        }
    }
}
