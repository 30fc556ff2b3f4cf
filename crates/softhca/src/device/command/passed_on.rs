//! Commands that the kernel passes on to the firmware, which may not know them. A command in no list of the kernel never reaches the
//! firmware.
//!
//! Source: `devx_is_obj_create_cmd`, `devx_is_general_cmd` in Linux's mlx5_ib. Commands that change or read an object pass only with a
//! handle of an object of their kind. For kinds that the device lacks there is no such handle.

use crate::device::command::call::Class;
use mlx5_prm::cmd::{CmdIn, Opcode};

/// Opcodes that the interface leaves to the firmware to define.
const GENERAL: std::ops::Range<u16> = 0xb00..0xd00;

/// Returns whether the kernel passes `input` on, by calls of `class`.
pub(super) fn is_passed_on(class: Class, input: &[u8]) -> bool {
    let opcode = CmdIn::from_prefix(input).op();
    match class {
        Class::Create => is_create(opcode, input),
        Class::General => is_general(opcode),
        Class::Modify | Class::Query | Class::Destroy => false,
    }
}

fn is_create(opcode: Opcode, input: &[u8]) -> bool {
    match opcode {
        Opcode::CREATE_GENERAL_OBJECT
        | Opcode::CREATE_MKEY
        | Opcode::CREATE_CQ
        | Opcode::ALLOC_PD
        | Opcode::ALLOC_TRANSPORT_DOMAIN
        | Opcode::CREATE_RMP
        | Opcode::CREATE_SQ
        | Opcode::CREATE_RQ
        | Opcode::CREATE_RQT
        | Opcode::CREATE_TIR
        | Opcode::CREATE_TIS
        | Opcode::ALLOC_Q_COUNTER
        | Opcode::CREATE_FLOW_TABLE
        | Opcode::CREATE_FLOW_GROUP
        | Opcode::ALLOC_FLOW_COUNTER
        | Opcode::ALLOC_PACKET_REFORMAT_CONTEXT
        | Opcode::ALLOC_MODIFY_HEADER_CONTEXT
        | Opcode::CREATE_SCHEDULING_ELEMENT
        | Opcode::ADD_VXLAN_UDP_DPORT
        | Opcode::SET_L2_TABLE_ENTRY
        | Opcode::CREATE_QP
        | Opcode::CREATE_SRQ
        | Opcode::CREATE_XRC_SRQ
        | Opcode::CREATE_DCT
        | Opcode::CREATE_XRQ
        | Opcode::ATTACH_TO_MCG
        | Opcode::ALLOC_XRCD => true,
        // The command passes if it sets a new entry, not if it changes one.
        Opcode::SET_FLOW_TABLE_ENTRY => CmdIn::from_prefix(input).op_mod() == 0,
        // Byte 8 begins with the number of values, 4 bits. The command passes for one value only: of several values the kernel could not
        // end all.
        Opcode::CREATE_PSV => input.get(8).is_some_and(|byte| byte >> 4 == 1),
        _ => false,
    }
}

fn is_general(opcode: Opcode) -> bool {
    GENERAL.contains(&opcode.0)
        || matches!(
            opcode,
            Opcode::QUERY_HCA_CAP
                | Opcode::QUERY_HCA_VPORT_CONTEXT
                | Opcode::QUERY_ESW_VPORT_CONTEXT
                | Opcode::QUERY_VPORT_STATE
                | Opcode::QUERY_ADAPTER
                | Opcode::QUERY_ISSI
                | Opcode::QUERY_NIC_VPORT_CONTEXT
                | Opcode::QUERY_ROCE_ADDRESS
                | Opcode::QUERY_VNIC_ENV
                | Opcode::QUERY_VPORT_COUNTER
                | Opcode::GET_DROPPED_PACKET_LOG
                | Opcode::NOP
                | Opcode::QUERY_CONG_STATUS
                | Opcode::QUERY_CONG_PARAMS
                | Opcode::QUERY_CONG_STATISTICS
                | Opcode::QUERY_LAG
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(opcode: Opcode, op_mod: u32, byte_8: u8) -> Vec<u8> {
        let header = CmdIn::default()
            .with_opcode(opcode.0.into())
            .with_op_mod(op_mod);
        let mut input = header.as_bytes().to_vec();
        input[8] = byte_8;
        input
    }

    #[test]
    fn what_passes_depends_on_the_call_and_for_two_on_the_input() {
        let passes = |class, opcode| is_passed_on(class, &input(opcode, 0, 0));
        assert!(passes(Class::Create, Opcode::CREATE_TIR));
        assert!(!passes(Class::General, Opcode::CREATE_TIR));
        assert!(passes(Class::General, Opcode::NOP));
        assert!(!passes(Class::Create, Opcode::NOP));
        assert!(!passes(Class::General, Opcode::ACCESS_REG));
        for (number, expected) in [(0xaff, false), (0xb00, true), (0xcff, true), (0xd00, false)] {
            assert_eq!(passes(Class::General, Opcode(number)), expected);
        }
        let entry = |op_mod| {
            is_passed_on(
                Class::Create,
                &input(Opcode::SET_FLOW_TABLE_ENTRY, op_mod, 0),
            )
        };
        assert_eq!([entry(0), entry(1)], [true, false]);
        let values =
            |count: u8| is_passed_on(Class::Create, &input(Opcode::CREATE_PSV, 0, count << 4));
        assert_eq!([values(0), values(1), values(2)], [false, true, false]);
    }
}
