//! Send work queue elements: a control segment and, 16 bytes each, what the opcode asks for.
//!
//! Source: PRM "Send WQE"; `struct mlx5_wqe_*_seg` in rdma-core's mlx5dv.h. A WQE begins on a 64-byte boundary of the
//! ring (a WQEBB) and may wrap at the ring's end between any two 16-byte units.

use crate::be::{Be16, Be32, Be64};
use crate::open_enum::open_enum;
use bytemuck::{Pod, Zeroable};
use core::mem::size_of;

/// Bytes of a basic block, the unit of queue indices.
pub const WQEBB_BYTES: usize = 64;
/// Bytes of a segment unit, the unit of `ds`.
pub const SEG_BYTES: usize = 16;
/// Largest `ds` that the 6-bit field holds.
pub const MAX_DS: usize = 63;

open_enum! {
    /// What a send WQE asks for.
    pub struct WqeOpcode(u8) {
        /// Nothing.
        NOP = 0x00,
        /// Send and invalidate a key of the peer.
        SEND_INVAL = 0x01,
        /// Write remote memory.
        RDMA_WRITE = 0x08,
        /// Write remote memory and consume a receive WQE of the peer.
        RDMA_WRITE_IMM = 0x09,
        /// Send to a receive WQE of the peer.
        SEND = 0x0a,
        /// Send with immediate data.
        SEND_IMM = 0x0b,
        /// Read remote memory.
        RDMA_READ = 0x10,
        /// Compare and swap 8 bytes.
        ATOMIC_CS = 0x11,
        /// Fetch and add 8 bytes.
        ATOMIC_FA = 0x12,
        /// Compare and swap under masks.
        ATOMIC_MASKED_CS = 0x14,
        /// Fetch and add with field boundaries.
        ATOMIC_MASKED_FA = 0x15,
        /// Change a memory key.
        UMR = 0x25,
    }
}

/// Control segment: the first 16 bytes of every send WQE. Its first 8 bytes are also a doorbell value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CtrlSeg {
    /// `opmod[31:24] | wqe_index[23:8] | opcode[7:0]`; the index counts WQEBBs, modulo 2^16.
    pub opmod_idx_opcode: Be32,
    /// `qpn[31:8] | ds[5:0]`; `ds` is the length in 16-byte units, this segment included.
    pub qpn_ds: Be32,
    /// Signature, if the queue pair asks for it.
    pub signature: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// `fm[7:5] | ce[3:2] | se[1]`: fence mode, completion policy, solicited event.
    pub fm_ce_se: u8,
    /// Immediate data or key to invalidate.
    pub imm: Be32,
}

impl CtrlSeg {
    /// `fm_ce_se`: a completion only if the WQE fails.
    pub const CE_ON_ERROR: u8 = 0;
    /// `fm_ce_se`: a completion in any case.
    pub const CE_ALWAYS: u8 = 2 << 2;
    /// `fm_ce_se`: mask of the completion policy.
    pub const CE_MASK: u8 = 3 << 2;
    /// `fm_ce_se`: the receiver's completion is a solicited event.
    pub const SE: u8 = 1 << 1;
    /// `fm_ce_se`: mask of the fence mode.
    pub const FM_MASK: u8 = 7 << 5;

    /// Builds the fixed part; completion policy and immediate stay 0.
    ///
    /// # Panics
    ///
    /// If `qpn` has more than 24 bits or `ds` is not 1 to 63.
    #[must_use]
    pub fn new(opcode: WqeOpcode, index: u16, qpn: u32, ds: u8) -> Self {
        assert!(qpn < 1 << 24, "qpn {qpn:#x} has more than 24 bits");
        assert!(matches!(ds, 1..=63), "ds {ds} is not 1 to 63");
        Self {
            opmod_idx_opcode: Be32::new(u32::from(index) << 8 | u32::from(opcode.0)),
            qpn_ds: Be32::new(qpn << 8 | u32::from(ds)),
            ..Self::default()
        }
    }

    /// A copy with the opcode modifier set.
    #[must_use]
    pub fn with_opmod(mut self, opmod: u8) -> Self {
        let rest = self.opmod_idx_opcode.get() & 0x00ff_ffff;
        self.opmod_idx_opcode = Be32::new(u32::from(opmod) << 24 | rest);
        self
    }

    /// Returns the operation that the segment asks for: bits 7:0 of its first word.
    #[must_use]
    pub const fn opcode(&self) -> WqeOpcode {
        WqeOpcode(self.opmod_idx_opcode.bytes()[3])
    }

    /// Opcode modifier.
    #[must_use]
    pub const fn opmod(&self) -> u8 {
        self.opmod_idx_opcode.bytes()[0]
    }

    /// Index of the WQE's first WQEBB, modulo 2^16.
    #[must_use]
    pub const fn index(&self) -> u16 {
        let b = self.opmod_idx_opcode.bytes();
        u16::from_be_bytes([b[1], b[2]])
    }

    /// Queue pair.
    #[must_use]
    pub const fn qpn(&self) -> u32 {
        self.qpn_ds.get() >> 8
    }

    /// Length in 16-byte units.
    #[must_use]
    pub const fn ds(&self) -> u8 {
        self.qpn_ds.bytes()[3] & 0x3f
    }
}

/// Remote address segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RaddrSeg {
    /// Address at the peer.
    pub raddr: Be64,
    /// Remote key.
    pub rkey: Be32,
    /// Zero.
    pub reserved: Be32,
}

/// Address vector of a datagram, the segment after the control segment of each WQE of a UD queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DatagramSeg {
    /// Queue key. With the most significant bit set, that of the queue pair is used instead.
    pub qkey: Be32,
    /// Zero.
    pub reserved4: Be32,
    /// `extended[31] | qpn[23:0]`: the destination; see [`Self::EXTENDED`].
    pub dqp_dct: Be32,
    /// Static rate and service level.
    pub stat_rate_sl: u8,
    /// Force loopback and source path bits.
    pub fl_mlid: u8,
    /// Remote LID; UDP source port for RoCE.
    pub rlid: Be16,
    /// Zero.
    pub reserved16: [u8; 4],
    /// MAC of the peer.
    pub rmac: [u8; 6],
    /// Traffic class.
    pub tclass: u8,
    /// IP time to live.
    pub hop_limit: u8,
    /// `grh[30] | gid_index[27:20] | flow_label[19:0]`.
    pub grh_gid_fl: Be32,
    /// GID of the peer.
    pub rgid: [u8; 16],
}

impl DatagramSeg {
    /// `dqp_dct`: the segment has all 48 bytes; otherwise only the first 16.
    pub const EXTENDED: u32 = 1 << 31;
    /// `qkey`: take the queue key of the queue pair.
    pub const OWN_QKEY: u32 = 1 << 31;
    /// `grh_gid_fl`: the packet carries a global route header (`InfiniBand`).
    pub const GRH: u32 = 1 << 30;
    /// `grh_gid_fl`: where the index of the sender's GID begins.
    const GID_SHIFT: u32 = 20;

    /// Returns the entry of the sender's GID table that the packet comes from (`src_addr_index`).
    pub fn source_gid(&self) -> u8 {
        (self.grh_gid_fl.get() >> Self::GID_SHIFT).to_le_bytes()[0]
    }

    /// As `source_gid`, from entry `index`.
    #[must_use]
    pub fn with_source_gid(mut self, index: u8) -> Self {
        let others = self.grh_gid_fl.get() & !(0xff << Self::GID_SHIFT);
        self.grh_gid_fl = Be32::new(others | u32::from(index) << Self::GID_SHIFT);
        self
    }
}

/// The segment after the control segment of each WQE of an XRC initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct XrcSeg {
    /// Shared receive queue of the peer.
    pub xrc_srqn: Be32,
    /// Zero.
    pub reserved: [u8; 12],
}

/// Header of a WQE of a shared receive queue; data segments follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct SrqNextSeg {
    /// Zero.
    pub reserved0: [u8; 2],
    /// Index of the WQE after this one in the list.
    pub next_wqe_index: Be16,
    /// Signature, if the queue asks for it.
    pub signature: u8,
    /// Zero.
    pub reserved5: [u8; 11],
}

/// Data segment: a piece of local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DataSeg {
    /// Bytes, 31 bits. 0 in the only segment means 2^31.
    pub byte_count: Be32,
    /// Local key.
    pub lkey: Be32,
    /// Local address.
    pub addr: Be64,
}

impl DataSeg {
    /// Key that ends the list of a receive WQE.
    pub const INVALID_LKEY: u32 = 0x100;
}

/// Header of inline data: the payload follows at once and is padded to 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct InlineHeader {
    /// `1[31] | byte_count[9:0]`.
    pub inline_byte_count: Be32,
}

impl InlineHeader {
    /// Marks a segment as inline data.
    pub const INLINE: u32 = 1 << 31;
    /// Bits of the header that hold the length of the data in bytes.
    pub const LENGTH_MASK: u32 = 0x3ff;

    /// Header of `bytes` bytes of payload.
    ///
    /// # Panics
    ///
    /// If `bytes` exceeds 1023.
    #[must_use]
    pub fn new(bytes: u32) -> Self {
        assert!(
            bytes <= Self::LENGTH_MASK,
            "{bytes} inline bytes exceed 1023"
        );
        Self {
            inline_byte_count: Be32::new(Self::INLINE | bytes),
        }
    }
}

/// Operands of an 8-byte atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct AtomicSeg {
    /// New value of a swap, or the number to add.
    pub swap_add: Be64,
    /// Value to compare with.
    pub compare: Be64,
}

/// Opcode modifier of a masked atomic of 4 bytes.
pub const OPMOD_MASKED_4_BYTES: u8 = 8;
/// Opcode modifier of a masked atomic of 8 bytes.
pub const OPMOD_MASKED_8_BYTES: u8 = 9;

/// Operands of a 4-byte masked compare-and-swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MaskedCas32Seg {
    /// New value.
    pub swap: Be32,
    /// Value to compare with.
    pub compare: Be32,
    /// Which bits are replaced.
    pub swap_mask: Be32,
    /// Which bits are compared.
    pub compare_mask: Be32,
}

/// Operands of an 8-byte masked compare-and-swap: two segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MaskedCas64Seg {
    /// New value.
    pub swap: Be64,
    /// Value to compare with.
    pub compare: Be64,
    /// Which bits are replaced.
    pub swap_mask: Be64,
    /// Which bits are compared.
    pub compare_mask: Be64,
}

/// Operands of a 4-byte masked fetch-and-add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MaskedFa32Seg {
    /// Number to add.
    pub add: Be32,
    /// A 1 ends a field: no carry leaves that bit.
    pub field_boundary: Be32,
    /// Zero.
    pub reserved: Be64,
}

/// Operands of an 8-byte masked fetch-and-add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MaskedFa64Seg {
    /// Number to add.
    pub add: Be64,
    /// A 1 ends a field: no carry leaves that bit.
    pub field_boundary: Be64,
}

const _: () = {
    assert!(size_of::<CtrlSeg>() == 16 && size_of::<RaddrSeg>() == 16);
    assert!(size_of::<DataSeg>() == 16 && size_of::<InlineHeader>() == 4);
    assert!(size_of::<DatagramSeg>() == 48 && size_of::<XrcSeg>() == 16);
    assert!(size_of::<SrqNextSeg>() == 16 && size_of::<AtomicSeg>() == 16);
    assert!(size_of::<MaskedCas32Seg>() == 16 && size_of::<MaskedCas64Seg>() == 32);
    assert!(size_of::<MaskedFa32Seg>() == 16 && size_of::<MaskedFa64Seg>() == 16);
};

#[cfg(test)]
mod tests {
    use super::*;
    use memoffset::span_of;

    #[test]
    fn every_field_has_the_bytes_of_the_manual() {
        assert_eq!(span_of!(CtrlSeg, opmod_idx_opcode), 0..4);
        assert_eq!(span_of!(CtrlSeg, qpn_ds), 4..8);
        assert_eq!(span_of!(CtrlSeg, fm_ce_se), 11..12);
        assert_eq!(span_of!(CtrlSeg, imm), 12..16);
        assert_eq!(span_of!(RaddrSeg, raddr), 0..8);
        assert_eq!(span_of!(RaddrSeg, rkey), 8..12);
        assert_eq!(span_of!(DataSeg, byte_count), 0..4);
        assert_eq!(span_of!(DataSeg, lkey), 4..8);
        assert_eq!(span_of!(DataSeg, addr), 8..16);
        assert_eq!(span_of!(DatagramSeg, qkey), 0..4);
        assert_eq!(span_of!(DatagramSeg, dqp_dct), 8..12);
        assert_eq!(span_of!(DatagramSeg, rlid), 14..16);
        assert_eq!(span_of!(DatagramSeg, rmac), 20..26);
        assert_eq!(span_of!(DatagramSeg, hop_limit), 27..28);
        assert_eq!(span_of!(DatagramSeg, rgid), 32..48);
        assert_eq!(span_of!(XrcSeg, xrc_srqn), 0..4);
        assert_eq!(span_of!(SrqNextSeg, next_wqe_index), 2..4);
        assert_eq!(span_of!(AtomicSeg, compare), 8..16);
        assert_eq!(span_of!(MaskedCas32Seg, swap_mask), 8..12);
        assert_eq!(span_of!(MaskedCas64Seg, swap_mask), 16..24);
        assert_eq!(span_of!(MaskedFa32Seg, field_boundary), 4..8);
        assert_eq!(span_of!(MaskedFa64Seg, field_boundary), 8..16);
    }

    #[test]
    fn a_write_has_the_literal_bytes_of_the_manual() {
        let mut ctrl = CtrlSeg::new(WqeOpcode::RDMA_WRITE, 0xfffe, 0x0001_0203, 3);
        ctrl.fm_ce_se = CtrlSeg::CE_ALWAYS;
        assert_eq!(
            bytemuck::bytes_of(&ctrl),
            [0, 0xff, 0xfe, 0x08, 1, 2, 3, 3, 0, 0, 0, 0x08, 0, 0, 0, 0]
        );
        let raddr = RaddrSeg {
            raddr: Be64::new(0x1122_3344_5566_7788),
            rkey: Be32::new(0x99aa_bbcc),
            ..RaddrSeg::default()
        };
        assert_eq!(
            bytemuck::bytes_of(&raddr)[..12],
            [
                0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc
            ]
        );
        let data: DataSeg =
            bytemuck::cast([0, 0, 0x10, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0x40u8]);
        assert_eq!(
            (data.byte_count.get(), data.lkey.get(), data.addr.get()),
            (4096, 0x1234, 0x40)
        );
    }

    #[test]
    fn a_control_segment_reads_back_what_was_put_in() {
        let ctrl = CtrlSeg::new(WqeOpcode::ATOMIC_MASKED_CS, 7, 0x00ff_ffff, 63)
            .with_opmod(OPMOD_MASKED_8_BYTES);
        assert_eq!(ctrl.opcode(), WqeOpcode::ATOMIC_MASKED_CS);
        assert_eq!(
            (ctrl.opmod(), ctrl.index(), ctrl.qpn(), ctrl.ds()),
            (9, 7, 0x00ff_ffff, 63)
        );
    }

    #[test]
    fn the_index_of_a_datagrams_gid_stands_between_its_neighbours() {
        let before = DatagramSeg {
            grh_gid_fl: Be32::new(DatagramSeg::GRH | 0x0ff0_1234),
            ..DatagramSeg::default()
        };
        assert_eq!(before.source_gid(), 0xff);
        let after = before.with_source_gid(3);
        assert_eq!(after.source_gid(), 3);
        assert_eq!(after.grh_gid_fl.get(), DatagramSeg::GRH | 0x0030_1234);
    }

    #[test]
    fn an_inline_header_marks_its_length() {
        assert_eq!(bytemuck::bytes_of(&InlineHeader::new(16)), [0x80, 0, 0, 16]);
    }
}
