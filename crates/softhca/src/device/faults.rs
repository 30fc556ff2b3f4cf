//! Commands that fail because a test asked for it.

use mlx5_prm::cmd::{Opcode, Status};

/// A failure to come.
///
/// Calls that the kernel turns into a command of its own count as that command: opening a context is
/// [`FailCommand::ALLOC_UCTX`], `alloc_pd` is `ALLOC_PD`, `dealloc_pd` `DEALLOC_PD`, registering a region `CREATE_MKEY` and
/// ending it `DESTROY_MKEY`, a UMEM `CREATE_UMEM` and `DESTROY_UMEM`, a UAR page `ALLOC_UAR` and `DEALLOC_UAR`, and asking
/// for an event queue [`FailCommand::QUERY_EQN`], which is no command at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailCommand {
    /// Only commands with this opcode; `None` is any.
    pub opcode: Option<u16>,
    /// Which of them: 1 (or 0) is the next, 2 the one after it. Those before succeed.
    pub nth: u32,
    /// Status byte of the answer, not 0; see [`Status`].
    pub status: u8,
    /// Syndrome of the answer.
    pub syndrome: u32,
}

impl FailCommand {
    /// Pseudo-opcode of opening a context.
    pub const ALLOC_UCTX: u16 = 0xa04;
    /// Pseudo-opcode of asking for the event queue of a vector.
    pub const QUERY_EQN: u16 = 0x302;
}

/// Whether a device that has failed for good still carries a command out: those that end objects, so that programs can let
/// go (`mlx5_internal_err_ret_value` of the kernel has the same list).
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

/// Failures that wait for their command.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    waiting: Vec<FailCommand>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: FailCommand) {
        self.waiting.push(fault);
    }

    /// Counts a command; what it shall fail with, if so.
    pub(crate) fn strike(&mut self, opcode: Opcode) -> Option<(Status, u32)> {
        let mut struck = None;
        for fault in &mut self.waiting {
            if fault.opcode.is_none_or(|only| only == opcode.0) {
                fault.nth = fault.nth.saturating_sub(1);
                if fault.nth == 0 && struck.is_none() {
                    struck = Some(*fault);
                }
            }
        }
        let struck = struck?;
        let at = self.waiting.iter().position(|fault| *fault == struck)?;
        self.waiting.remove(at);
        Some((Status(struck.status), struck.syndrome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(opcode: Option<u16>, nth: u32) -> FailCommand {
        FailCommand {
            opcode,
            nth,
            status: 5,
            syndrome: 77,
        }
    }

    #[test]
    fn the_nth_matching_command_fails_once() {
        let mut faults = Faults::default();
        faults.add(fault(Some(0x500), 2));
        let seen: Vec<bool> = [0x500, 0x400, 0x500, 0x500]
            .map(|opcode| faults.strike(Opcode(opcode)).is_some())
            .to_vec();
        assert_eq!(seen, [false, false, true, false]);
    }

    #[test]
    fn any_opcode_matches_where_none_is_named() {
        let mut faults = Faults::default();
        faults.add(fault(None, 1));
        assert_eq!(faults.strike(Opcode(0x1234)), Some((Status(5), 77)));
        assert_eq!(faults.strike(Opcode(0x1234)), None);
    }
}
