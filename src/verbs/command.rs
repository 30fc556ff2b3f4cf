//! DevX commands and the objects they make.

// UNSAFETY: calls into libmlx5 with buffers of this process.
#![expect(unsafe_code, reason = "DevX calls into libmlx5")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;
use mlx5_prm::cmd::{CmdOut, Opcode, Status};

use super::context::{Context, OpenDevice, last_errno};
use super::error::{CommandError, VerbsError};
use super::events::Events;
use crate::sys::bindings::mlx5dv_devx_obj;

/// A reply buffer that shows if the HCA does not write it.
fn unwritten<Out: Pod>() -> Out {
    let mut out = Out::zeroed();
    bytemuck::bytes_of_mut(&mut out).fill(0xff);
    out
}

/// Success only if the call returned 0 *and* the reply says so.
fn check(input: &[u8], errno: i32, output: &[u8]) -> Result<(), CommandError> {
    if errno == 0 && CmdOut::from_prefix(output).result() == Status::OK {
        return Ok(());
    }
    Err(refusal(input, errno, output))
}

fn refusal(input: &[u8], errno: i32, output: &[u8]) -> CommandError {
    let out = CmdOut::from_prefix(output);
    CommandError {
        opcode: Opcode(u16::from_be_bytes([input[0], input[1]])),
        status: out.result(),
        syndrome: out.syndrome(),
        errno,
    }
}

/// Executes a command that makes no object.
pub(super) fn general<In: Pod, Out: Pod>(
    device: &OpenDevice,
    input: &In,
) -> Result<Out, VerbsError> {
    let (input, mut reply) = (bytemuck::bytes_of(input), unwritten::<Out>());
    let output = bytemuck::bytes_of_mut(&mut reply);
    device.count_command();
    // SAFETY: the context is open while `device` lives; both buffers are as long as stated and live through the call.
    let errno = unsafe {
        device.rdma().mlx5dv_devx_general_cmd(
            device.raw(),
            input.as_ptr().cast(),
            input.len(),
            output.as_mut_ptr().cast(),
            output.len(),
        )
    };
    check(input, errno, output).map_err(|source| device.refused(source))?;
    Ok(reply)
}

/// An object that a command made, and the memory `M` that the HCA uses for it.
///
/// Dropping it destroys the object and then drops `M`. If the HCA will not destroy it, `M` is kept for ever: memory that a device
/// may still write must not go to another owner.
pub(super) struct DevxObject<M> {
    context: Arc<Context>,
    raw: Option<NonNull<mlx5dv_devx_obj>>,
    /// Dropped with the object, unless that fails.
    memory: ManuallyDrop<M>,
}

// SAFETY: libmlx5's DevX calls may come from any thread, also at the same time; the object is a handle that only they use.
unsafe impl<M: Send> Send for DevxObject<M> {}
// SAFETY: as for Send.
unsafe impl<M: Sync> Sync for DevxObject<M> {}

impl<M> DevxObject<M> {
    /// Executes a command that makes an object. On failure `memory` is dropped, because no object uses it.
    pub(super) fn create<In: Pod, Out: Pod>(
        context: &Arc<Context>,
        input: &In,
        memory: M,
    ) -> Result<(Self, Out), VerbsError> {
        Self::create_with(context, bytemuck::bytes_of(input), memory)
    }

    /// The same with an input of any length: one with a list behind it.
    pub(super) fn create_with<Out: Pod>(
        context: &Arc<Context>,
        input: &[u8],
        memory: M,
    ) -> Result<(Self, Out), VerbsError> {
        let mut reply = unwritten::<Out>();
        let output = bytemuck::bytes_of_mut(&mut reply);
        context.count_command();
        // SAFETY: as in `general`.
        let raw = unsafe {
            context.rdma().mlx5dv_devx_obj_create(
                context.raw(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        let Some(raw) = NonNull::new(raw) else {
            return Err(context.refused(refusal(input, last_errno(), output)));
        };
        let object = Self {
            context: Arc::clone(context),
            raw: Some(raw),
            memory: ManuallyDrop::new(memory),
        };
        // An object whose reply says otherwise is taken down again by its drop.
        check(input, 0, output).map_err(|source| context.refused(source))?;
        Ok((object, reply))
    }

    /// Executes a command that changes the object.
    pub(super) fn modify<In: Pod, Out: Pod>(&self, input: &In) -> Result<Out, VerbsError> {
        let (input, mut reply) = (bytemuck::bytes_of(input), unwritten::<Out>());
        let output = bytemuck::bytes_of_mut(&mut reply);
        self.context.count_command();
        // SAFETY: the object is alive; both buffers are as long as stated and live through the call.
        let errno = unsafe {
            self.context.rdma().mlx5dv_devx_obj_modify(
                self.raw(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        check(input, errno, output).map_err(|source| self.context.refused(source))?;
        Ok(reply)
    }

    /// Executes a command that asks about the object.
    pub(super) fn query<In: Pod, Out: Pod>(&self, input: &In) -> Result<Out, VerbsError> {
        let (input, mut reply) = (bytemuck::bytes_of(input), unwritten::<Out>());
        let output = bytemuck::bytes_of_mut(&mut reply);
        self.context.count_command();
        // SAFETY: as in `modify`.
        let errno = unsafe {
            self.context.rdma().mlx5dv_devx_obj_query(
                self.raw(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        check(input, errno, output).map_err(|source| self.context.refused(source))?;
        Ok(reply)
    }

    /// Lets `events` tell of failures of the object, which is a QP.
    pub(super) fn subscribe(&self, events: &Events, cookie: u64) -> Result<(), VerbsError> {
        events.subscribe_qp(self.raw(), cookie)
    }

    /// Lets `events` tell with this cookie of the completions of this CQ.
    pub(super) fn subscribe_completions(
        &self,
        events: &Events,
        cookie: u64,
    ) -> Result<(), VerbsError> {
        events.subscribe_cq(self.raw(), cookie)
    }

    /// Destroys the object, and returns whether that worked.
    pub(super) fn destroy(mut self) -> Result<(), VerbsError> {
        self.take_down()
    }

    /// The same, for a caller that tries again where it has not worked. Does nothing when called again after it has.
    pub(super) fn try_destroy(&mut self) -> Result<(), VerbsError> {
        let raw = self.raw;
        self.take_down().inspect_err(|_| self.raw = raw)
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    fn raw(&self) -> *mut mlx5dv_devx_obj {
        self.raw.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// Does nothing when called again, unless `raw` was put back.
    fn take_down(&mut self) -> Result<(), VerbsError> {
        let Some(raw) = self.raw.take() else {
            return Ok(());
        };
        self.context.count_command();
        // SAFETY: the object is alive, and `raw` has been taken: no code names it again.
        match unsafe { self.context.rdma().mlx5dv_devx_obj_destroy(raw.as_ptr()) } {
            0 => {
                // SAFETY: reached at most once, as `raw` is taken and the object is gone. `memory` is private and only read while
                // `raw` is set.
                unsafe { ManuallyDrop::drop(&mut self.memory) };
                Ok(())
            }
            errno => {
                self.context.keep_adopted();
                Err(self.context.failed("mlx5dv_devx_obj_destroy", errno))
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

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::qp::{CreateQpIn, CreateQpOut};

    #[test]
    fn an_unwritten_reply_fails_even_if_the_call_returned_success() {
        let input = CreateQpIn::default().with_opcode(u32::from(Opcode::CREATE_QP.0));
        let reply: CreateQpOut = unwritten();
        let error = check(input.as_bytes(), 0, reply.as_bytes()).unwrap_err();
        assert_eq!(
            (error.opcode, error.status, error.errno),
            (Opcode::CREATE_QP, CommandError::NO_REPLY, 0)
        );
    }

    #[test]
    fn a_refused_command_carries_what_the_reply_says() {
        let input = CreateQpIn::default().with_opcode(u32::from(Opcode::CREATE_QP.0));
        let reply = CreateQpOut::default().with_status(3).with_syndrome(0x1234);
        let error = check(input.as_bytes(), 121, reply.as_bytes()).unwrap_err();
        assert_eq!(
            (error.status, error.syndrome, error.errno),
            (Status::BAD_PARAM, 0x1234, 121)
        );
        check(input.as_bytes(), 0, CreateQpOut::default().as_bytes()).unwrap();
    }
}
