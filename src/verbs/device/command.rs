//! DevX commands, and the checks of their replies.

// UNSAFETY: calls into libmlx5 with buffers of this process.
#![expect(unsafe_code, reason = "DevX calls into libmlx5")]

use bytemuck::Pod;
use mlx5_prm::cmd::{CmdOut, Opcode, Status};

use crate::verbs::device::open::OpenDevice;
use crate::verbs::error::{CommandError, VerbsError};

/// Returns a reply buffer filled with 0xff, so that it shows if the HCA does not write it.
pub(in crate::verbs) fn unwritten<Out: Pod>() -> Out {
    let mut out = Out::zeroed();
    bytemuck::bytes_of_mut(&mut out).fill(0xff);
    out
}

/// Returns success only if the call returned 0 *and* the reply reports success.
pub(in crate::verbs) fn check(input: &[u8], errno: i32, output: &[u8]) -> Result<(), CommandError> {
    if errno == 0 && CmdOut::from_prefix(output).result() == Status::OK {
        return Ok(());
    }
    Err(refusal(input, errno, output))
}

pub(in crate::verbs) fn refusal(input: &[u8], errno: i32, output: &[u8]) -> CommandError {
    let out = CmdOut::from_prefix(output);
    CommandError {
        opcode: Opcode(u16::from_be_bytes([input[0], input[1]])),
        status: out.result(),
        syndrome: out.syndrome(),
        errno,
    }
}

/// Executes a command that makes no object.
pub(in crate::verbs) fn general<In: Pod, Out: Pod>(
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
