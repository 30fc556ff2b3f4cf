//! UMR WQEs: a send WQE that changes a memory key, and the lists that such keys consist of.
//!
//! Source: PRM "User-Mode Memory Registration"; `struct mlx5_wqe_umr_*` in rdma-core's mlx5dv.h. After the control segment
//! (whose `imm` is the key) come an [`UmrCtrlSeg`] of 48 bytes and a memory key context of 64 (see [`crate::mkey::Mkc`]). The new
//! list follows in units of 64 bytes: inline, or where a data segment says.

use crate::be::{Be16, Be32, Be64};
use bytemuck::{Pod, Zeroable};
use core::mem::size_of;

/// What to change of the key, and under which conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct UmrCtrlSeg {
    /// See the constants `FLAG_*`.
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Length of the list, in entries of 16 bytes.
    pub klm_octowords: Be16,
    /// With [`Self::FLAG_TRANSLATION_OFFSET`]: the first entry that is replaced; else length of the signature context.
    pub translation_offset: Be16,
    /// Which fields of the context are taken; see the constants `MASK_*`.
    pub mkey_mask: Be64,
    /// Zero.
    pub reserved1: [u8; 32],
}

impl UmrCtrlSeg {
    /// `flags`: the list is in the WQE.
    pub const FLAG_INLINE: u8 = 1 << 7;
    /// `flags`: fail if the key is free.
    pub const FLAG_FAIL_IF_FREE: u8 = 1 << 6;
    /// `flags`: fail if the key is in use (`CHECK_FREE` in rdma-core).
    pub const FLAG_FAIL_IF_NOT_FREE: u8 = 1 << 5;
    /// `flags`: `translation_offset` counts.
    pub const FLAG_TRANSLATION_OFFSET: u8 = 1 << 4;
    /// `flags`: fail if the key belongs to another queue pair.
    pub const FLAG_CHECK_QPN: u8 = 1 << 3;

    /// `mkey_mask`: length.
    pub const MASK_LEN: u64 = 1 << 0;
    /// `mkey_mask`: size of an entry.
    pub const MASK_PAGE_SIZE: u64 = 1 << 1;
    /// `mkey_mask`: first address.
    pub const MASK_START_ADDR: u64 = 1 << 6;
    /// `mkey_mask`: protection domain.
    pub const MASK_PD: u64 = 1 << 7;
    /// `mkey_mask`: whether peers may invalidate it.
    pub const MASK_EN_RINVAL: u64 = 1 << 8;
    /// `mkey_mask`: count of signature errors.
    pub const MASK_SIG_ERR: u64 = 1 << 9;
    /// `mkey_mask`: signature or encryption.
    pub const MASK_BSF_ENABLE: u64 = 1 << 12;
    /// `mkey_mask`: low byte of the key.
    pub const MASK_MKEY: u64 = 1 << 13;
    /// `mkey_mask`: the queue pair that it belongs to.
    pub const MASK_QPN: u64 = 1 << 14;
    /// `mkey_mask`: local reads.
    pub const MASK_LOCAL_READ: u64 = 1 << 17;
    /// `mkey_mask`: local writes.
    pub const MASK_LOCAL_WRITE: u64 = 1 << 18;
    /// `mkey_mask`: remote reads.
    pub const MASK_REMOTE_READ: u64 = 1 << 19;
    /// `mkey_mask`: remote writes.
    pub const MASK_REMOTE_WRITE: u64 = 1 << 20;
    /// `mkey_mask`: atomics.
    pub const MASK_ATOMIC: u64 = 1 << 21;
    /// `mkey_mask`: fence behaviour.
    pub const MASK_SMALL_FENCE: u64 = 1 << 23;
    /// `mkey_mask`: relaxed ordering of writes.
    pub const MASK_RELAXED_WRITE: u64 = 1 << 25;
    /// `mkey_mask`: whether the key is free.
    pub const MASK_FREE: u64 = 1 << 29;
    /// `mkey_mask`: relaxed ordering of reads.
    pub const MASK_RELAXED_READ: u64 = 1 << 47;
}

/// An entry of a list: a piece of another key. In a KSM list all entries have the key's entity size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Klm {
    /// Bytes, at most 2^31; 0 is padding.
    pub byte_count: Be32,
    /// Key.
    pub mkey: Be32,
    /// Address in that key.
    pub address: Be64,
}

/// First entry of a list that repeats: all of it is gone through `repeat_count` times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RepeatBlock {
    /// Bytes of one repetition.
    pub byte_count: Be32,
    /// [`Self::OP`], where another entry would have its key.
    pub op: Be32,
    /// Repetitions.
    pub repeat_count: Be32,
    /// Zero.
    pub reserved: Be16,
    /// [`RepeatEntry`]s that follow.
    pub num_ent: Be16,
}

impl RepeatBlock {
    /// Marks the block.
    pub const OP: u32 = 0x400;
}

/// A piece that each repetition moves on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RepeatEntry {
    /// From one repetition to the next, in bytes.
    pub stride: Be16,
    /// Bytes of the piece.
    pub byte_count: Be16,
    /// Key.
    pub memkey: Be32,
    /// Address in that key, of the first repetition.
    pub va: Be64,
}

const _: () = {
    assert!(size_of::<UmrCtrlSeg>() == 48);
    assert!(size_of::<Klm>() == 16 && size_of::<RepeatBlock>() == 16);
    assert!(size_of::<RepeatEntry>() == 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_has_the_bytes_that_libmlx5_builds() {
        let ctrl = UmrCtrlSeg {
            flags: UmrCtrlSeg::FLAG_INLINE | UmrCtrlSeg::FLAG_TRANSLATION_OFFSET,
            klm_octowords: Be16::new(4),
            mkey_mask: Be64::new(UmrCtrlSeg::MASK_FREE | UmrCtrlSeg::MASK_MKEY),
            ..UmrCtrlSeg::default()
        };
        let bytes = bytemuck::bytes_of(&ctrl);
        assert_eq!(bytes[..8], [0x90, 0, 0, 0, 0, 4, 0, 0]);
        assert_eq!(bytes[8..16], [0, 0, 0, 0, 0x20, 0, 0x20, 0]);
        let klm = Klm {
            byte_count: Be32::new(8),
            mkey: Be32::new(0x1234),
            address: Be64::new(0x40),
        };
        let expected = [0, 0, 0, 8, 0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0x40];
        assert_eq!(bytemuck::bytes_of(&klm), expected);
    }

    #[test]
    fn a_repeat_block_stands_where_a_klm_has_its_key() {
        let block = RepeatBlock {
            op: Be32::new(RepeatBlock::OP),
            num_ent: Be16::new(2),
            ..RepeatBlock::default()
        };
        let klm: Klm = bytemuck::cast(block);
        assert_eq!(klm.mkey.get(), RepeatBlock::OP);
        assert_eq!(bytemuck::bytes_of(&block)[14..], [0, 2]);
    }
}
