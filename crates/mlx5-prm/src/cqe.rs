//! Completion queue entries.
//!
//! Source: PRM "Completion Queue Entry"; `struct mlx5_cqe64`, `struct mlx5_err_cqe` in rdma-core's mlx5dv.h.
//! The device writes bytes 0 to 59 first, then the last four (`wqe_counter`, signature, `op_own`) in one store.

use crate::be::{Be16, Be32, Be64};
use crate::open_enum::open_enum;
use bytemuck::{Pod, Zeroable};
use core::mem::size_of;

open_enum! {
    /// Kind of an entry, bits 7 to 4 of `op_own`.
    pub struct CqeOpcode(u8) {
        /// A send WQE has completed.
        REQ = 0x0,
        /// An RDMA WRITE with immediate has arrived.
        RESP_WR_IMM = 0x1,
        /// A SEND has arrived.
        RESP_SEND = 0x2,
        /// A SEND with immediate has arrived.
        RESP_SEND_IMM = 0x3,
        /// A SEND with invalidate has arrived.
        RESP_SEND_INV = 0x4,
        /// The ring ends here; the queue goes on in another one.
        RESIZE_CQ = 0x5,
        /// A send WQE has failed; the entry is an [`ErrCqe`].
        REQ_ERR = 0xd,
        /// A receive WQE has failed; the entry is an [`ErrCqe`].
        RESP_ERR = 0xe,
        /// Never written by the device.
        INVALID = 0xf,
    }
}

open_enum! {
    /// Why a WQE failed.
    pub struct Syndrome(u8) {
        /// A local segment is shorter or longer than the message needs.
        LOCAL_LENGTH_ERR = 0x01,
        /// The WQE itself is wrong.
        LOCAL_QP_OP_ERR = 0x02,
        /// A local key does not allow the access.
        LOCAL_PROT_ERR = 0x04,
        /// The queue pair is in error; the WQE was not run.
        WR_FLUSH_ERR = 0x05,
        /// Memory window bind failed.
        MW_BIND_ERR = 0x06,
        /// The peer's answer makes no sense.
        BAD_RESP_ERR = 0x10,
        /// A local access failed.
        LOCAL_ACCESS_ERR = 0x11,
        /// The peer does not accept such a request.
        REMOTE_INVAL_REQ_ERR = 0x12,
        /// The remote key does not allow the access.
        REMOTE_ACCESS_ERR = 0x13,
        /// The peer could not complete the request.
        REMOTE_OP_ERR = 0x14,
        /// The peer did not answer.
        TRANSPORT_RETRY_EXC_ERR = 0x15,
        /// The peer had no receive WQE.
        RNR_RETRY_EXC_ERR = 0x16,
        /// The peer gave the request up.
        REMOTE_ABORTED_ERR = 0x22,
    }
}

/// A good completion, 64 bytes. In a 128-byte entry it is the second half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Cqe64 {
    /// Zero, or fields of packets that RC does not use.
    pub reserved0: [u8; 17],
    /// Path bits of the LID that the packet was sent to (InfiniBand), in the low 7 bits.
    pub ml_path: u8,
    /// Zero.
    pub reserved18: [u8; 4],
    /// LID of the sender (InfiniBand).
    pub slid: Be16,
    /// Flags and the sender's queue pair (datagrams).
    pub flags_rqpn: Be32,
    /// Zero, or fields of Ethernet packets.
    pub reserved28: [u8; 4],
    /// Shared receive queue and user index of the queue pair: `srqn_uidx[23:0]`.
    pub srqn_uidx: Be32,
    /// Immediate data or invalidated key, as the peer's WQE had it.
    pub imm_inval_pkey: Be32,
    /// Tag-matching fields.
    pub app: Be32,
    /// Bytes moved.
    pub byte_cnt: Be32,
    /// Free-running clock of the device.
    pub timestamp: Be64,
    /// `opcode[31:24] | qpn[23:0]`: the opcode of the send WQE.
    pub sop_drop_qpn: Be32,
    /// Index of the WQE's first WQEBB.
    pub wqe_counter: Be16,
    /// Signature, if asked for.
    pub signature: u8,
    /// `opcode[7:4] | format[3:2] | solicited[1] | owner[0]`.
    pub op_own: u8,
}

/// A failed completion, 64 bytes. It shares its last 8 bytes and `srqn_uidx` with [`Cqe64`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ErrCqe {
    /// Zero.
    pub reserved0: [u8; 32],
    /// Shared receive queue and user index of the queue pair.
    pub srqn_uidx: Be32,
    /// Zero.
    pub reserved36: [u8; 18],
    /// The device's own reason.
    pub vendor_err_synd: u8,
    /// Reason; see [`Syndrome`].
    pub syndrome: u8,
    /// `opcode[31:24] | qpn[23:0]`: the opcode of the send WQE.
    pub s_wqe_opcode_qpn: Be32,
    /// Index of the WQE's first WQEBB.
    pub wqe_counter: Be16,
    /// Signature, if asked for.
    pub signature: u8,
    /// `opcode[7:4] | format[3:2] | solicited[1] | owner[0]`.
    pub op_own: u8,
}

const _: () = assert!(size_of::<Cqe64>() == 64 && size_of::<ErrCqe>() == 64);

impl Cqe64 {
    /// Kind of the entry.
    #[must_use]
    pub const fn opcode(&self) -> CqeOpcode {
        CqeOpcode(self.op_own >> 4)
    }

    /// Owner bit: 0 in the device's first pass over the ring, then alternating.
    #[must_use]
    pub const fn owner(&self) -> bool {
        self.op_own & 1 != 0
    }

    /// The entry read as a failed completion; meaningful for `REQ_ERR` and `RESP_ERR`.
    #[must_use]
    pub fn as_error(&self) -> &ErrCqe {
        bytemuck::cast_ref(self)
    }
}

impl ErrCqe {
    /// Reason, typed.
    #[must_use]
    pub const fn reason(&self) -> Syndrome {
        Syndrome(self.syndrome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memoffset::span_of;

    #[test]
    fn every_field_has_the_bytes_of_the_manual() {
        assert_eq!(span_of!(Cqe64, ml_path), 17..18);
        assert_eq!(span_of!(Cqe64, slid), 22..24);
        assert_eq!(span_of!(Cqe64, flags_rqpn), 24..28);
        assert_eq!(span_of!(Cqe64, srqn_uidx), 32..36);
        assert_eq!(span_of!(Cqe64, imm_inval_pkey), 36..40);
        assert_eq!(span_of!(Cqe64, byte_cnt), 44..48);
        assert_eq!(span_of!(Cqe64, timestamp), 48..56);
        assert_eq!(span_of!(Cqe64, sop_drop_qpn), 56..60);
        assert_eq!(span_of!(Cqe64, wqe_counter), 60..62);
        assert_eq!(span_of!(Cqe64, op_own), 63..64);
        assert_eq!(span_of!(ErrCqe, srqn_uidx), 32..36);
        assert_eq!(span_of!(ErrCqe, vendor_err_synd), 54..55);
        assert_eq!(span_of!(ErrCqe, syndrome), 55..56);
        assert_eq!(span_of!(ErrCqe, s_wqe_opcode_qpn), 56..60);
        assert_eq!(span_of!(ErrCqe, wqe_counter), 60..62);
    }

    #[test]
    fn a_good_entry_reads_from_literal_bytes() {
        let mut b = [0u8; 64];
        b[32..36].copy_from_slice(&[0, 0, 0x12, 0x34]);
        b[44..48].copy_from_slice(&[0, 0, 0x10, 0]);
        b[56..64].copy_from_slice(&[0x08, 0, 0x01, 0x02, 0xff, 0xfe, 0, 0x01]);
        let cqe: Cqe64 = bytemuck::cast(b);
        assert_eq!(cqe.opcode(), CqeOpcode::REQ);
        assert!(cqe.owner());
        assert_eq!(cqe.srqn_uidx.get(), 0x1234);
        assert_eq!(cqe.byte_cnt.get(), 4096);
        assert_eq!(cqe.sop_drop_qpn.get(), 0x0800_0102);
        assert_eq!(cqe.wqe_counter.get(), 0xfffe);
    }

    #[test]
    fn an_error_entry_has_the_literal_bytes_of_the_manual() {
        let err = ErrCqe {
            vendor_err_synd: 0x77,
            syndrome: Syndrome::REMOTE_ACCESS_ERR.0,
            s_wqe_opcode_qpn: Be32::new(0x0800_0102),
            wqe_counter: Be16::new(7),
            op_own: CqeOpcode::REQ_ERR.0 << 4,
            ..ErrCqe::default()
        };
        let b: [u8; 64] = bytemuck::cast(err);
        assert_eq!(b[54..], [0x77, 0x13, 0x08, 0, 0x01, 0x02, 0, 7, 0, 0xd0]);
        let cqe: Cqe64 = bytemuck::cast(b);
        assert_eq!(cqe.as_error().reason(), Syndrome::REMOTE_ACCESS_ERR);
    }
}
