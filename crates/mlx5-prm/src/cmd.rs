//! Command interface: opcodes, status values, and the header that every input and every output begins with.
//!
//! Source: PRM "Command Reference"; `enum` of `MLX5_CMD_OP_*` and `struct mlx5_ifc_mbox_{in,out}_bits` in rdma-core.

use crate::layout::layout;
use crate::open_enum::open_enum;

open_enum! {
    /// Command opcode, bits 0 to 15 of a command input.
    pub struct Opcode(u16) {
        /// Capabilities of the device.
        QUERY_HCA_CAP = 0x100,
        /// What the board is.
        QUERY_ADAPTER = 0x101,
        /// Versions of the command interface.
        QUERY_ISSI = 0x10a,
        /// Makes a memory key.
        CREATE_MKEY = 0x200,
        /// Reads a memory key's context.
        QUERY_MKEY = 0x201,
        /// Ends a memory key.
        DESTROY_MKEY = 0x202,
        /// Makes a completion queue.
        CREATE_CQ = 0x400,
        /// Ends a completion queue.
        DESTROY_CQ = 0x401,
        /// Reads a completion queue's context.
        QUERY_CQ = 0x402,
        /// Changes a completion queue.
        MODIFY_CQ = 0x403,
        /// Makes a queue pair, in Reset.
        CREATE_QP = 0x500,
        /// Ends a queue pair.
        DESTROY_QP = 0x501,
        /// Reset to Init.
        RST2INIT_QP = 0x502,
        /// Init to ready-to-receive.
        INIT2RTR_QP = 0x503,
        /// Ready-to-receive to ready-to-send.
        RTR2RTS_QP = 0x504,
        /// Changes attributes in ready-to-send.
        RTS2RTS_QP = 0x505,
        /// Send-queue error back to ready-to-send.
        SQERR2RTS_QP = 0x506,
        /// Any state to Error.
        TO_ERR_QP = 0x507,
        /// Ready-to-send to send-queue drained.
        RTS2SQD_QP = 0x508,
        /// Send-queue drained to ready-to-send, in older manuals.
        SQD2RTS_QP = 0x509,
        /// Any state to Reset.
        TO_RST_QP = 0x50a,
        /// Reads a queue pair's context.
        QUERY_QP = 0x50b,
        /// Send-queue drained to ready-to-send.
        SQD_RTS_QP = 0x50c,
        /// Changes attributes in Init.
        INIT2INIT_QP = 0x50e,
        /// Makes signature values.
        CREATE_PSV = 0x600,
        /// Makes a shared receive queue on devices without receive memory pools.
        CREATE_SRQ = 0x700,
        /// Makes a shared receive queue of an XRC domain.
        CREATE_XRC_SRQ = 0x705,
        /// Ends one.
        DESTROY_XRC_SRQ = 0x706,
        /// Reads its context.
        QUERY_XRC_SRQ = 0x707,
        /// Sets its limit.
        ARM_XRC_SRQ = 0x708,
        /// Makes a target of dynamic connections.
        CREATE_DCT = 0x710,
        /// Makes a shared receive queue with offloads.
        CREATE_XRQ = 0x717,
        /// State of a virtual port.
        QUERY_VPORT_STATE = 0x750,
        /// Context of the e-switch's virtual port.
        QUERY_ESW_VPORT_CONTEXT = 0x752,
        /// Context of the NIC's virtual port.
        QUERY_NIC_VPORT_CONTEXT = 0x754,
        /// One entry of the RoCE address table.
        QUERY_ROCE_ADDRESS = 0x760,
        /// Context of a virtual port of InfiniBand.
        QUERY_HCA_VPORT_CONTEXT = 0x762,
        /// Counters of a virtual function.
        QUERY_VNIC_ENV = 0x76f,
        /// Counters of a virtual port.
        QUERY_VPORT_COUNTER = 0x770,
        /// Makes a set of queue counters.
        ALLOC_Q_COUNTER = 0x771,
        /// Ends a set of queue counters.
        DEALLOC_Q_COUNTER = 0x772,
        /// Reads a set of queue counters.
        QUERY_Q_COUNTER = 0x773,
        /// Makes an element of the scheduling hierarchy.
        CREATE_SCHEDULING_ELEMENT = 0x782,
        /// Makes a protection domain.
        ALLOC_PD = 0x800,
        /// Ends a protection domain.
        DEALLOC_PD = 0x801,
        /// Makes a UAR page.
        ALLOC_UAR = 0x802,
        /// Ends a UAR page.
        DEALLOC_UAR = 0x803,
        /// Reads or writes a device register.
        ACCESS_REG = 0x805,
        /// Attaches a queue pair to a multicast group.
        ATTACH_TO_MCG = 0x806,
        /// Log of dropped packets.
        GET_DROPPED_PACKET_LOG = 0x80a,
        /// Does nothing.
        NOP = 0x80d,
        /// Makes an XRC domain.
        ALLOC_XRCD = 0x80e,
        /// Ends an XRC domain.
        DEALLOC_XRCD = 0x80f,
        /// Makes a transport domain.
        ALLOC_TRANSPORT_DOMAIN = 0x816,
        /// Whether congestion control is on.
        QUERY_CONG_STATUS = 0x822,
        /// Parameters of congestion control.
        QUERY_CONG_PARAMS = 0x824,
        /// Counters of congestion control.
        QUERY_CONG_STATISTICS = 0x826,
        /// Makes a UDP port one of VXLAN.
        ADD_VXLAN_UDP_DPORT = 0x827,
        /// Sets an entry of the MAC table.
        SET_L2_TABLE_ENTRY = 0x829,
        /// Link aggregation of the device.
        QUERY_LAG = 0x842,
        /// Makes a receiver of a transport interface.
        CREATE_TIR = 0x900,
        /// Makes a send queue.
        CREATE_SQ = 0x904,
        /// Makes a receive queue.
        CREATE_RQ = 0x908,
        /// Makes a receive memory pool: a shared receive queue.
        CREATE_RMP = 0x90c,
        /// Sets its limit.
        MODIFY_RMP = 0x90d,
        /// Ends one.
        DESTROY_RMP = 0x90e,
        /// Reads its context.
        QUERY_RMP = 0x90f,
        /// Makes a sender of a transport interface.
        CREATE_TIS = 0x912,
        /// Makes a table of receive queues.
        CREATE_RQT = 0x916,
        /// Makes a flow table.
        CREATE_FLOW_TABLE = 0x930,
        /// Makes a group of flow table entries.
        CREATE_FLOW_GROUP = 0x933,
        /// Sets an entry of a flow table.
        SET_FLOW_TABLE_ENTRY = 0x936,
        /// Makes a flow counter.
        ALLOC_FLOW_COUNTER = 0x939,
        /// Makes headers to add to packets.
        ALLOC_PACKET_REFORMAT_CONTEXT = 0x93d,
        /// Makes a list of changes to headers.
        ALLOC_MODIFY_HEADER_CONTEXT = 0x940,
        /// Makes a general object.
        CREATE_GENERAL_OBJECT = 0xa00,
        /// Makes a user memory object.
        CREATE_UMEM = 0xa08,
        /// Ends a user memory object.
        DESTROY_UMEM = 0xa0a,
    }
}

open_enum! {
    /// Status byte of a command output; 0 is success.
    pub struct Status(u8) {
        /// Done.
        OK = 0x00,
        /// Internal error.
        INTERNAL_ERR = 0x01,
        /// Unknown opcode or opcode modifier.
        BAD_OP = 0x02,
        /// A parameter is out of its range or inconsistent.
        BAD_PARAM = 0x03,
        /// Not in this state of the device.
        BAD_SYS_STATE = 0x04,
        /// A resource that the command names does not exist.
        BAD_RES = 0x05,
        /// The resource is used by another one.
        RES_BUSY = 0x06,
        /// A limit of the device is reached.
        LIM_ERR = 0x08,
        /// The resource is in a wrong state.
        BAD_RES_STATE = 0x09,
        /// Index out of range.
        IX_ERR = 0x0a,
        /// No resource of this kind is left.
        NO_RES = 0x0f,
        /// The QP's state does not allow the transition.
        BAD_QP_STATE = 0x10,
        /// Input too short.
        BAD_INP_LEN = 0x50,
        /// Output too short.
        BAD_OUTP_LEN = 0x51,
    }
}

layout! {
    /// What every command input begins with.
    pub struct CmdIn[0x10] {
        /// Command opcode.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context; the kernel sets it.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
    }
}

layout! {
    /// What every command output begins with, and all of it when a command fails.
    pub struct CmdOut[0x10] {
        /// Status byte; see [`Status`].
        status / with_status / set_status @ 0x00 : 8,
        /// What exactly the device objected to; a number of the firmware's own.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
    }
}

impl CmdIn {
    /// Returns the opcode, typed.
    #[must_use]
    pub fn op(&self) -> Opcode {
        Opcode(u16::from_be_bytes([self.as_bytes()[0], self.as_bytes()[1]]))
    }
}

impl CmdOut {
    /// Returns the status, typed.
    #[must_use]
    pub fn result(&self) -> Status {
        Status(self.as_bytes()[0])
    }
}

layout! {
    /// Output of a command that makes one object: the number of the object.
    pub struct CreateOut[0x10] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// Number of the new object (qpn, cqn, mkey index, pd, …).
        number / with_number / set_number @ 0x48 : 24,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_the_literal_bytes_of_the_manual() {
        let input = CmdIn::default()
            .with_opcode(0x502)
            .with_uid(7)
            .with_op_mod(1);
        assert_eq!(input.as_bytes()[..8], [0x05, 0x02, 0, 7, 0, 0, 0, 1]);
        assert_eq!(input.op(), Opcode::RST2INIT_QP);

        let reply = [
            0x03, 0, 0, 0, 0x00, 0xab, 0xcd, 0xef, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let reply = CmdOut::from_bytes(&reply).unwrap();
        assert_eq!(
            (reply.result(), reply.syndrome()),
            (Status::BAD_PARAM, 0x00ab_cdef)
        );
    }
}
