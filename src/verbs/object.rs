//! Objects that DevX commands make.

// UNSAFETY: calls into libmlx5 with buffers of this process.
#![expect(unsafe_code, reason = "DevX calls into libmlx5")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use crate::sys::bindings::mlx5dv_devx_obj;
use crate::verbs::device::command::{check, refusal, unwritten};
use crate::verbs::device::open::OpenDevice;
use crate::verbs::error::{VerbsError, last_errno};

/// An object of the HCA that a command made, and the memory `M` that the HCA uses for it.
///
/// Its drop destroys the object and then drops `M`. If the HCA refuses to destroy the object, `M` is kept for ever: memory that a device
/// may still write must not go to another owner.
pub(super) struct DevxObject<M> {
    device: Arc<OpenDevice>,
    raw: Option<NonNull<mlx5dv_devx_obj>>,
    /// The memory. It is dropped after the object is destroyed, and kept if that fails.
    memory: ManuallyDrop<M>,
}

// SAFETY: libmlx5's DevX calls may come from any thread, also at the same time; the object is a handle that only they use.
unsafe impl<M: Send> Send for DevxObject<M> {}

// SAFETY: as for Send.
unsafe impl<M: Sync> Sync for DevxObject<M> {}

impl<M> DevxObject<M> {
    /// Executes a command that makes an object. If it fails, `memory` is dropped, because no object uses it.
    pub(super) fn create<In: Pod, Out: Pod>(
        device: &Arc<OpenDevice>,
        input: &In,
        memory: M,
    ) -> Result<(Self, Out), VerbsError> {
        Self::create_with(device, bytemuck::bytes_of(input), memory)
    }

    /// Executes a command as `create` does, with an input of any length, such as one with a list at its end.
    pub(super) fn create_with<Out: Pod>(
        device: &Arc<OpenDevice>,
        input: &[u8],
        memory: M,
    ) -> Result<(Self, Out), VerbsError> {
        let mut reply = unwritten::<Out>();
        let output = bytemuck::bytes_of_mut(&mut reply);
        device.count_command();
        // SAFETY: the context is open while `device` lives; both buffers are as long as stated and live through the call.
        let raw = unsafe {
            device.rdma().mlx5dv_devx_obj_create(
                device.raw(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        let Some(raw) = NonNull::new(raw) else {
            return Err(device.refused(refusal(input, last_errno(), output)));
        };
        let object = Self {
            device: Arc::clone(device),
            raw: Some(raw),
            memory: ManuallyDrop::new(memory),
        };
        // If the reply reports a failure, the drop of the object takes the object down again.
        check(input, 0, output).map_err(|source| device.refused(source))?;
        Ok((object, reply))
    }

    /// Executes a command that changes the object.
    pub(super) fn modify<In: Pod, Out: Pod>(&self, input: &In) -> Result<Out, VerbsError> {
        let (input, mut reply) = (bytemuck::bytes_of(input), unwritten::<Out>());
        let output = bytemuck::bytes_of_mut(&mut reply);
        self.device.count_command();
        // SAFETY: the object is alive; both buffers are as long as stated and live through the call.
        let errno = unsafe {
            self.device.rdma().mlx5dv_devx_obj_modify(
                self.raw(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        check(input, errno, output).map_err(|source| self.device.refused(source))?;
        Ok(reply)
    }

    /// Executes a command that asks about the object.
    pub(super) fn query<In: Pod, Out: Pod>(&self, input: &In) -> Result<Out, VerbsError> {
        let (input, mut reply) = (bytemuck::bytes_of(input), unwritten::<Out>());
        let output = bytemuck::bytes_of_mut(&mut reply);
        self.device.count_command();
        // SAFETY: as in `modify`.
        let errno = unsafe {
            self.device.rdma().mlx5dv_devx_obj_query(
                self.raw(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        check(input, errno, output).map_err(|source| self.device.refused(source))?;
        Ok(reply)
    }

    /// Destroys the object. Returns an error if that failed.
    pub(super) fn destroy(mut self) -> Result<(), VerbsError> {
        self.take_down()
    }

    /// Destroys the object as `destroy` does, but the caller may try again after a failure. After a success this does nothing.
    pub(super) fn try_destroy(&mut self) -> Result<(), VerbsError> {
        let raw = self.raw;
        self.take_down().inspect_err(|_| self.raw = raw)
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the handle of the object. Null once the object has been destroyed.
    pub(super) fn raw(&self) -> *mut mlx5dv_devx_obj {
        self.raw.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// Destroys the object. Does nothing when called again, unless `raw` was put back.
    fn take_down(&mut self) -> Result<(), VerbsError> {
        let Some(raw) = self.raw.take() else {
            return Ok(());
        };
        self.device.count_command();
        // SAFETY: the object is alive, and `raw` has been taken: no code names it again.
        match unsafe { self.device.rdma().mlx5dv_devx_obj_destroy(raw.as_ptr()) } {
            0 => {
                // SAFETY: reached at most once, as `raw` is taken and the object is gone. `memory` is private and only read while
                // `raw` is set.
                unsafe { ManuallyDrop::drop(&mut self.memory) };
                Ok(())
            }
            errno => {
                self.device.keep_adopted();
                Err(self.device.failed("mlx5dv_devx_obj_destroy", errno))
            }
        }
    }
}

impl<M: fmt::Debug> fmt::Debug for DevxObject<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.raw.map(|_| &*self.memory);
        f.debug_tuple("DevxObject").field(&memory).finish()
    }
}

impl<M> Drop for DevxObject<M> {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            tracing::error!("an object and its memory are lost: {error}");
        }
    }
}
