//! Errors of the device model, and the `errno` by which the kernel would report each.

use mlx5_prm::cmd::{Opcode, Status};
use thiserror::Error;

/// A refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has executed the command and refused it. The output holds status and syndrome.
    #[error("{opcode} failed: status {status}, syndrome {syndrome:#010x}: {}", syndrome_text(*.syndrome))]
    Refused {
        /// The opcode of the command.
        opcode: Opcode,
        /// Status byte of the output.
        status: Status,
        /// Syndrome of the output; see [`super::syndrome`].
        syndrome: u32,
    },
    /// A call that the kernel turns into a command of its own was refused, or failed because a test asked for it.
    #[error("the kernel's {opcode} failed: status {status}, syndrome {syndrome:#010x}: {}", syndrome_text(*.syndrome))]
    Failed {
        /// The opcode of the command.
        opcode: Opcode,
        /// The status of the command.
        status: Status,
        /// The syndrome of the command.
        syndrome: u32,
    },
    /// A call found no memory in the kernel, because a test asked for it.
    #[error("{opcode} found no memory, as asked for")]
    NoMemory {
        /// The opcode of the command.
        opcode: Opcode,
    },
    /// The device has failed for good. It still carries out only commands that end objects.
    #[error("{opcode} was not carried out: the device has failed")]
    Dead {
        /// The opcode of the command.
        opcode: Opcode,
    },
    /// The command may not be sent by this call (a create command through `general`, say), or names another object than that of the handle.
    #[error("{opcode} is not a command for this call")]
    WrongCommand {
        /// The opcode of the command.
        opcode: Opcode,
    },
    /// The command's input or output is shorter than the 16 bytes of a header.
    #[error("a command buffer of {bytes} bytes is shorter than a header of {limit} bytes")]
    ShortCommand {
        /// Bytes given.
        bytes: usize,
        /// Bytes of a header.
        limit: usize,
    },
    /// No object has this number, or the object belongs to another context.
    #[error("this context has no {what} {number:#x}")]
    NoObject {
        /// Kind of object.
        what: &'static str,
        /// The number that the call gave.
        number: u32,
    },
    /// No device has this name.
    #[error("no software HCA has this name")]
    NoDevice,
    /// Other objects use the object.
    #[error("{what} {number:#x} is used by {users} other objects")]
    Busy {
        /// Kind of object.
        what: &'static str,
        /// The number of the object that is in use.
        number: u32,
        /// The number of objects that use that object.
        users: usize,
    },
    /// The range is not memory of this process, as a whole.
    #[error("{bytes:#x} bytes at {address:#x} are not all mapped")]
    Fault {
        /// First address.
        address: u64,
        /// Length of the range in bytes.
        bytes: u64,
    },
    /// A value is out of range.
    #[error("{what} is {value:#x}, the limit is {limit:#x}")]
    Range {
        /// The name of the value.
        what: &'static str,
        /// Value given.
        value: u64,
        /// Largest value allowed.
        limit: u64,
    },
    /// No more objects of this kind can be made.
    #[error("no more than {limit} objects of kind {what}")]
    Full {
        /// Kind of object.
        what: &'static str,
        /// The most that can exist.
        limit: usize,
    },
    /// The operating system refused something.
    #[error("{call} failed with errno {errno}")]
    Os {
        /// The name of the call.
        call: &'static str,
        /// The error number of the call.
        errno: i32,
    },
}

impl DeviceError {
    /// Returns the error of a command that the kernel sent itself. The program sees neither status nor syndrome, only `errno`.
    #[must_use]
    pub(crate) fn of_kernel(self) -> Self {
        match self {
            Self::Refused {
                opcode,
                status,
                syndrome,
            } => Self::Failed {
                opcode,
                status,
                syndrome,
            },
            other => other,
        }
    }

    /// Returns the `errno` of the ioctl.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Refused { .. } => libc::EREMOTEIO,
            Self::Failed { status, .. } => status_errno(*status),
            Self::WrongCommand { .. } | Self::ShortCommand { .. } | Self::Range { .. } => {
                libc::EINVAL
            }
            Self::Dead { .. } => libc::EIO,
            Self::NoObject { .. } => libc::ENOENT,
            Self::NoDevice => libc::ENODEV,
            Self::Busy { .. } => libc::EBUSY,
            Self::Fault { .. } => libc::EFAULT,
            Self::Full { .. } | Self::NoMemory { .. } => libc::ENOMEM,
            Self::Os { errno, .. } => *errno,
        }
    }
}

/// Returns the `errno` that the kernel makes of the status of a command that it sent itself (`cmd_status_to_err` in mlx5_core).
fn status_errno(status: Status) -> i32 {
    match status {
        Status::INTERNAL_ERR
        | Status::BAD_SYS_STATE
        | Status::BAD_INP_LEN
        | Status::BAD_OUTP_LEN => libc::EIO,
        Status::RES_BUSY => libc::EBUSY,
        Status::LIM_ERR => libc::ENOMEM,
        Status::NO_RES => libc::EAGAIN,
        _ => libc::EINVAL,
    }
}

fn syndrome_text(value: u32) -> &'static str {
    super::syndrome::text(value)
}
