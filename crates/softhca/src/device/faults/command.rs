//! Faults of commands: commands fail because a test or a user wants it.

use crate::device::faults::spec::{CommandFault, CommandOutcome};
use mlx5_prm::cmd::Opcode;

/// A command failure that is to come.
///
/// Calls that the kernel turns into a command of its own count as that command. Opening a context is [`FailCommand::ALLOC_UCTX`].
/// `alloc_pd` is `ALLOC_PD` and `dealloc_pd` is `DEALLOC_PD`. Registering a region is `CREATE_MKEY` and ending it `DESTROY_MKEY`. A UMEM is
/// `CREATE_UMEM` and `DESTROY_UMEM`, a UAR page `ALLOC_UAR` and `DEALLOC_UAR`. Asking for an event queue is [`FailCommand::QUERY_EQN`],
/// which is not a command at all. Asking for DevX is [`FailCommand::DEVX`]. Only a failure that names this opcode makes it fail, not one of
/// any opcode; libmlx5 then opens the context without DevX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailCommand {
    /// The opcode of the commands that count; `None` is any opcode.
    pub opcode: Option<u16>,
    /// The number of the command that fails: 1 (or 0) is the next that counts, 2 the one after it. The commands before succeed.
    pub nth: u32,
    /// Status byte of the answer, not 0; see [`Status`](mlx5_prm::cmd::Status).
    pub status: u8,
    /// Syndrome of the answer.
    pub syndrome: u32,
}

impl FailCommand {
    /// Pseudo-opcode of opening a context.
    pub const ALLOC_UCTX: u16 = 0xa04;
    /// Pseudo-opcode of asking for the event queue of a completion vector.
    pub const QUERY_EQN: u16 = 0x302;
    /// Pseudo-opcode of giving a context the right to DevX. No manual has a command with it.
    pub const DEVX: u16 = 0xffff;
}

/// Returns whether a device that has failed for good still carries out a command. It carries out commands that end objects, so that
/// programs can clean up (`mlx5_internal_err_ret_value` of the kernel has the same list).
pub(crate) fn ends_something(opcode: Opcode) -> bool {
    matches!(
        opcode.0,
        0x202 // DESTROY_MKEY
            | 0x401 // DESTROY_CQ
            | 0x501 // DESTROY_QP
            | 0x507 // 2ERR_QP
            | 0x50a // 2RST_QP
            | 0x701 // DESTROY_SRQ
            | 0x706 // DESTROY_XRC_SRQ
            | 0x718 // DESTROY_XRQ
            | 0x801 // DEALLOC_PD
            | 0x803 // DEALLOC_UAR
            | 0x80f // DEALLOC_XRCD
            | 0x90e // DESTROY_RMP
            | 0xa03 // DESTROY_GENERAL_OBJECT
            | 0xa06 // DESTROY_UCTX
            | 0xa0a // DESTROY_UMEM
    )
}

impl From<FailCommand> for CommandFault {
    fn from(fault: FailCommand) -> Self {
        Self {
            opcode: fault.opcode,
            nth: fault.nth,
            outcome: CommandOutcome::Refused {
                status: fault.status,
                syndrome: fault.syndrome,
            },
        }
    }
}
