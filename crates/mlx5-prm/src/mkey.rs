//! Memory key commands and context.
//!
//! Source: PRM "Memory Key"; `struct mlx5_ifc_mkc_bits` and neighbours in rdma-core.

use crate::layout::layout;

pub use crate::cmd::CmdOut as DestroyMkeyOut;

layout! {
    /// Memory key context.
    pub struct Mkc[0x40] {
        /// The key exists but may not be used yet.
        free / with_free / set_free @ 0x01 : 1,
        /// Access mode, upper bits.
        access_mode_4_2 / with_access_mode_4_2 / set_access_mode_4_2 @ 0x03 : 3,
        /// Writes may be reordered on PCIe.
        relaxed_ordering_write / with_relaxed_ordering_write / set_relaxed_ordering_write @ 0x0d : 1,
        /// An operation that reads it fences small.
        small_fence_on_rdma_read_response / with_small_fence_on_rdma_read_response / set_small_fence_on_rdma_read_response @ 0x0f : 1,
        /// May be changed by UMR WQEs.
        umr_en / with_umr_en / set_umr_en @ 0x10 : 1,
        /// Remote atomics allowed.
        a / with_a / set_a @ 0x11 : 1,
        /// Remote writes allowed.
        rw / with_rw / set_rw @ 0x12 : 1,
        /// Remote reads allowed.
        rr / with_rr / set_rr @ 0x13 : 1,
        /// Local writes allowed.
        lw / with_lw / set_lw @ 0x14 : 1,
        /// Local reads allowed.
        lr / with_lr / set_lr @ 0x15 : 1,
        /// Access mode, lower bits: 0 physical, 1 MTT, 2 KLM.
        access_mode_1_0 / with_access_mode_1_0 / set_access_mode_1_0 @ 0x16 : 2,
        /// The only QP that may use the key; 0xffffff is any.
        qpn / with_qpn / set_qpn @ 0x20 : 24,
        /// Low byte of the key, chosen by software.
        mkey_7_0 / with_mkey_7_0 / set_mkey_7_0 @ 0x38 : 8,
        /// The key covers the whole address space.
        length64 / with_length64 / set_length64 @ 0x60 : 1,
        /// The key has a signature context (BSF).
        bsf_en / with_bsf_en / set_bsf_en @ 0x61 : 1,
        /// UMR WQEs are ordered with accesses.
        sync_umr / with_sync_umr / set_sync_umr @ 0x62 : 1,
        /// Peers may invalidate it by a SEND.
        en_rinval / with_en_rinval / set_en_rinval @ 0x67 : 1,
        /// Protection domain.
        pd / with_pd / set_pd @ 0x68 : 24,
        /// First address that the key covers.
        start_addr / with_start_addr / set_start_addr @ 0x80 : 64,
        /// Bytes that the key covers.
        len / with_len / set_len @ 0xc0 : 64,
        /// Length of the signature context, in 16-byte units.
        bsf_octword_size / with_bsf_octword_size / set_bsf_octword_size @ 0x100 : 32,
        /// Length of the translation table, in 16-byte units.
        translations_octword_size / with_translations_octword_size / set_translations_octword_size @ 0x1a0 : 32,
        /// Reads may be reordered on PCIe.
        relaxed_ordering_read / with_relaxed_ordering_read / set_relaxed_ordering_read @ 0x1d9 : 1,
        /// log2 of the page size; of a KSM list: of what an entry covers.
        log_page_size / with_log_page_size / set_log_page_size @ 0x1db : 5,
        /// The key has an encryption context.
        crypto_en / with_crypto_en / set_crypto_en @ 0x1e3 : 2,
    }
}

impl Mkc {
    /// Access mode: physical addresses.
    pub const ACCESS_MODE_PA: u32 = 0;
    /// Access mode: a list of pages.
    pub const ACCESS_MODE_MTT: u32 = 1;
    /// Access mode: a list of other keys.
    pub const ACCESS_MODE_KLM: u32 = 2;
    /// Access mode: a list of pieces, all of the same length, of other keys.
    pub const ACCESS_MODE_KSM: u32 = 3;
    /// `qpn`: any queue pair may use the key.
    pub const ANY_QP: u32 = 0x00ff_ffff;

    /// Returns the access mode, put together.
    #[must_use]
    pub fn access_mode(&self) -> u32 {
        self.access_mode_4_2() << 2 | self.access_mode_1_0()
    }

    /// Returns whether the key covers no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.length64() == 0
    }
}

layout! {
    /// Input of `CREATE_MKEY`.
    ///
    /// After it comes the translation list, in entries of 16 bytes.
    pub struct CreateMkeyIn[0x110] {
        /// `CREATE_MKEY`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Wanted index, if the device can choose keys by name.
        input_mkey_index / with_input_mkey_index / set_input_mkey_index @ 0x48 : 24,
        /// Page-granular access.
        pg_access / with_pg_access / set_pg_access @ 0x60 : 1,
        /// The memory lies in `mkey_umem_id`.
        mkey_umem_valid / with_mkey_umem_valid / set_mkey_umem_valid @ 0x61 : 1,
        /// The context.
        mkc / with_mkc / mkc_mut @ 0x80 : Mkc,
        /// Length of the translation table that follows, in 16-byte units.
        translations_octword_actual_size / with_translations_octword_actual_size / set_translations_octword_actual_size @ 0x300 : 32,
        /// UMEM of the memory.
        mkey_umem_id / with_mkey_umem_id / set_mkey_umem_id @ 0x320 : 32,
        /// Start of the memory in its UMEM, in bytes.
        mkey_umem_offset / with_mkey_umem_offset / set_mkey_umem_offset @ 0x340 : 64,
    }
}

layout! {
    /// Output of `CREATE_MKEY`. The key is `mkey_index << 8 | mkey_7_0`.
    pub struct CreateMkeyOut[0x10] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// Index of the new key.
        mkey_index / with_mkey_index / set_mkey_index @ 0x48 : 24,
    }
}

layout! {
    /// Input of `DESTROY_MKEY`.
    pub struct DestroyMkeyIn[0x10] {
        /// `DESTROY_MKEY`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Which key.
        mkey_index / with_mkey_index / set_mkey_index @ 0x48 : 24,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_literal_bytes_of_the_manual() {
        let mkc = Mkc::default()
            .with_rw(1)
            .with_lw(1)
            .with_lr(1)
            .with_access_mode_1_0(Mkc::ACCESS_MODE_MTT)
            .with_qpn(0x00ff_ffff)
            .with_mkey_7_0(0x42)
            .with_pd(7)
            .with_start_addr(0x7f00_0000_1000)
            .with_len(0x2000);
        let b = mkc.as_bytes();
        assert_eq!(b[..8], [0, 0, 0b0010_1101, 0, 0xff, 0xff, 0xff, 0x42]);
        assert_eq!(b[12..16], [0, 0, 0, 7]);
        assert_eq!(
            b[16..32],
            [0, 0, 0x7f, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0]
        );
        assert_eq!(Mkc::from_bytes(b).unwrap().access_mode(), 1);
    }

    #[test]
    fn the_list_of_an_indirect_key_begins_behind_the_input() {
        let mkc = Mkc::default()
            .with_access_mode_1_0(Mkc::ACCESS_MODE_KLM)
            .with_rr(1)
            .with_lr(1)
            .with_translations_octword_size(4);
        let input = CreateMkeyIn::default()
            .with_opcode(0x200)
            .with_mkc(mkc)
            .with_translations_octword_actual_size(1);
        let b = input.as_bytes();
        // `klm_pas_mtt` of `struct mlx5_ifc_create_mkey_in_bits`.
        assert_eq!(b.len(), 0x880 / 8);
        assert_eq!(b[0x10..0x14], [0, 0, 0b0001_0110, 0]);
        assert_eq!(b[0x44..0x48], [0, 0, 0, 4]);
        assert_eq!(b[0x60..0x64], [0, 0, 0, 1]);
        assert_eq!(Mkc::from_bytes(&b[0x10..0x50]).unwrap().access_mode(), 2);
    }
}
