//! Shared receive queues: receive memory pools (what verbs calls a basic SRQ), XRC shared receive queues, XRC domains.
//!
//! Source: PRM "Shared Receive Queue", "Receive Memory Pool", "XRC"; `struct mlx5_ifc_{wq,rmpc,xrc_srqc}_bits` and the commands
//! around them in Linux. The position of the ids of user memory in an XRC SRQ is not published. The fields marked so are this
//! project's reading of the gaps (offset, id and valid bit as in `CREATE_CQ`).

use crate::layout::layout;

pub use crate::cmd::{
    CmdOut as DestroyRmpOut, CmdOut as ModifyRmpOut, CmdOut as ArmXrcSrqOut,
    CreateOut as AllocXrcdOut, CreateOut as CreateRmpOut, CreateOut as CreateXrcSrqOut,
};

layout! {
    /// Work queue context, part of other contexts.
    pub struct Wq[0xc0] {
        /// See the constants of this type.
        wq_type / with_wq_type / set_wq_type @ 0x00 : 4,
        /// WQEs carry a signature.
        wq_signature / with_wq_signature / set_wq_signature @ 0x04 : 1,
        /// Padding of incoming data.
        end_padding_mode / with_end_padding_mode / set_end_padding_mode @ 0x05 : 2,
        /// Start of the ring in its first page, in units of 64 bytes.
        page_offset / with_page_offset / set_page_offset @ 0x2b : 5,
        /// Limit water mark: fewer WQEs than this raise an event, once; 0 is none.
        lwm / with_lwm / set_lwm @ 0x30 : 16,
        /// Protection domain.
        pd / with_pd / set_pd @ 0x48 : 24,
        /// UAR page of send queues.
        uar_page / with_uar_page / set_uar_page @ 0x68 : 24,
        /// Doorbell record: its offset in the UMEM.
        dbr_addr / with_dbr_addr / set_dbr_addr @ 0x80 : 64,
        /// WQEs that the device has taken. Output only.
        hw_counter / with_hw_counter / set_hw_counter @ 0xc0 : 32,
        /// WQEs that software has posted, as the device last read it. Output only.
        sw_counter / with_sw_counter / set_sw_counter @ 0xe0 : 32,
        /// log2 of the bytes of a WQE.
        log_wq_stride / with_log_wq_stride / set_log_wq_stride @ 0x10c : 4,
        /// log2 of the page size, in units of 4 KiB.
        log_wq_pg_sz / with_log_wq_pg_sz / set_log_wq_pg_sz @ 0x113 : 5,
        /// log2 of the number of WQEs.
        log_wq_sz / with_log_wq_sz / set_log_wq_sz @ 0x11b : 5,
        /// The doorbell record lies in `dbr_umem_id`.
        dbr_umem_valid / with_dbr_umem_valid / set_dbr_umem_valid @ 0x120 : 1,
        /// The ring lies in `wq_umem_id`.
        wq_umem_valid / with_wq_umem_valid / set_wq_umem_valid @ 0x121 : 1,
        /// UMEM that holds the doorbell record.
        dbr_umem_id / with_dbr_umem_id / set_dbr_umem_id @ 0x140 : 32,
        /// UMEM that holds the ring.
        wq_umem_id / with_wq_umem_id / set_wq_umem_id @ 0x160 : 32,
        /// Start of the ring in its UMEM, in bytes.
        wq_umem_offset / with_wq_umem_offset / set_wq_umem_offset @ 0x180 : 64,
    }
}

impl Wq {
    /// `wq_type`: each WQE names the next; they may be taken back in any order.
    pub const TYPE_LINKED_LIST: u32 = 0;
    /// `wq_type`: a ring.
    pub const TYPE_CYCLIC: u32 = 1;
}

layout! {
    /// Receive memory pool context.
    pub struct Rmpc[0xf0] {
        /// See the constants of this type.
        state / with_state / set_state @ 0x08 : 4,
        /// Receive WQEs of a ring have no header.
        basic_cyclic_rcv_wqe / with_basic_cyclic_rcv_wqe / set_basic_cyclic_rcv_wqe @ 0x20 : 1,
        /// The queue.
        wq / with_wq / wq_mut @ 0x180 : Wq,
    }
}

impl Rmpc {
    /// `state`: ready.
    pub const STATE_RDY: u32 = 1;
    /// `state`: in error.
    pub const STATE_ERR: u32 = 3;
}

layout! {
    /// Input of `CREATE_RMP`.
    pub struct CreateRmpIn[0x110] {
        /// `CREATE_RMP`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// The context.
        ctx / with_ctx / ctx_mut @ 0x100 : Rmpc,
    }
}

layout! {
    /// Input of `MODIFY_RMP`.
    pub struct ModifyRmpIn[0x110] {
        /// `MODIFY_RMP`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// State that the queue is in.
        rmp_state / with_rmp_state / set_rmp_state @ 0x40 : 4,
        /// Which queue.
        rmpn / with_rmpn / set_rmpn @ 0x48 : 24,
        /// `lwm` of the context is meant.
        bitmask_lwm / with_bitmask_lwm / set_bitmask_lwm @ 0xbf : 1,
        /// The context.
        ctx / with_ctx / ctx_mut @ 0x100 : Rmpc,
    }
}

layout! {
    /// Input of the commands that name an SRQ and nothing else: `DESTROY_RMP`, `QUERY_RMP`, `DESTROY_XRC_SRQ`,
    /// `QUERY_XRC_SRQ`, `DEALLOC_XRCD`.
    pub struct NumberIn[0x10] {
        /// Which command.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Which object.
        number / with_number / set_number @ 0x48 : 24,
    }
}

layout! {
    /// Output of `QUERY_RMP`.
    pub struct QueryRmpOut[0x110] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// The context.
        rmp_context / with_rmp_context / rmp_context_mut @ 0x100 : Rmpc,
    }
}

layout! {
    /// XRC shared receive queue context.
    pub struct XrcSrqc[0x40] {
        /// See the constants of this type.
        state / with_state / set_state @ 0x00 : 4,
        /// log2 of the number of WQEs.
        log_xrc_srq_size / with_log_xrc_srq_size / set_log_xrc_srq_size @ 0x04 : 4,
        /// WQEs carry a signature.
        wq_signature / with_wq_signature / set_wq_signature @ 0x20 : 1,
        /// A container of other queues.
        cont_srq / with_cont_srq / set_cont_srq @ 0x21 : 1,
        /// The reserved lkey may be used.
        rlky / with_rlky / set_rlky @ 0x23 : 1,
        /// Receive WQEs of a ring have no header.
        basic_cyclic_rcv_wqe / with_basic_cyclic_rcv_wqe / set_basic_cyclic_rcv_wqe @ 0x24 : 1,
        /// log2 of the bytes of a WQE, in units of 16.
        log_rq_stride / with_log_rq_stride / set_log_rq_stride @ 0x25 : 3,
        /// XRC domain.
        xrcd / with_xrcd / set_xrcd @ 0x28 : 24,
        /// Start of the ring in its first page, in units of 64 bytes.
        page_offset / with_page_offset / set_page_offset @ 0x40 : 6,
        /// The doorbell record lies in `dbr_umem_id`.
        dbr_umem_valid / with_dbr_umem_valid / set_dbr_umem_valid @ 0x47 : 1,
        /// Completion queue.
        cqn / with_cqn / set_cqn @ 0x48 : 24,
        /// UMEM that holds the doorbell record. Not published.
        dbr_umem_id / with_dbr_umem_id / set_dbr_umem_id @ 0x60 : 32,
        /// Completions carry the number of the queue instead of `user_index`.
        user_index_equal_xrc_srqn / with_user_index_equal_xrc_srqn / set_user_index_equal_xrc_srqn @ 0x80 : 1,
        /// log2 of the page size, in units of 4 KiB.
        log_page_size / with_log_page_size / set_log_page_size @ 0x82 : 6,
        /// Number that completions carry (CQE version 1).
        user_index / with_user_index / set_user_index @ 0x88 : 24,
        /// Protection domain.
        pd / with_pd / set_pd @ 0xc8 : 24,
        /// Limit water mark: fewer WQEs than this raise an event, once; 0 is none.
        lwm / with_lwm / set_lwm @ 0xe0 : 16,
        /// WQEs that the queue holds now. Output only.
        wqe_cnt / with_wqe_cnt / set_wqe_cnt @ 0xf0 : 16,
        /// Doorbell record: its offset in the UMEM, of which the lowest two bits are 0.
        dbr_addr / with_dbr_addr / set_dbr_addr @ 0x140 : 64,
    }
}

impl XrcSrqc {
    /// `state`: in use.
    pub const STATE_GOOD: u32 = 0;
    /// `state`: the queue is in error and takes no more WQEs.
    pub const STATE_ERROR: u32 = 1;
}

layout! {
    /// Input of `CREATE_XRC_SRQ`.
    pub struct CreateXrcSrqIn[0x110] {
        /// `CREATE_XRC_SRQ`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// The context.
        xrc_srq_context_entry / with_xrc_srq_context_entry / xrc_srq_context_entry_mut @ 0x80 : XrcSrqc,
        /// Start of the ring in its UMEM, in bytes. Not published.
        xrc_srq_umem_offset / with_xrc_srq_umem_offset / set_xrc_srq_umem_offset @ 0x280 : 64,
        /// UMEM of the ring. Not published.
        xrc_srq_umem_id / with_xrc_srq_umem_id / set_xrc_srq_umem_id @ 0x2c0 : 32,
        /// The ring lies in `xrc_srq_umem_id`.
        xrc_srq_umem_valid / with_xrc_srq_umem_valid / set_xrc_srq_umem_valid @ 0x2e0 : 1,
    }
}

layout! {
    /// Input of `ARM_XRC_SRQ`.
    pub struct ArmXrcSrqIn[0x10] {
        /// `ARM_XRC_SRQ`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// 1: an XRC SRQ.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Which queue.
        xrc_srqn / with_xrc_srqn / set_xrc_srqn @ 0x48 : 24,
        /// Limit water mark.
        lwm / with_lwm / set_lwm @ 0x70 : 16,
    }
}

layout! {
    /// Output of `QUERY_XRC_SRQ`.
    pub struct QueryXrcSrqOut[0x50] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// The context.
        xrc_srq_context_entry / with_xrc_srq_context_entry / xrc_srq_context_entry_mut @ 0x80 : XrcSrqc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_memory_pool_has_the_literal_bytes_of_the_manual() {
        let wq = Wq::default()
            .with_pd(0x0012_3456)
            .with_lwm(0x0102)
            .with_log_wq_stride(6)
            .with_log_wq_sz(9)
            .with_dbr_umem_id(0xa)
            .with_wq_umem_id(0xb)
            .with_wq_umem_offset(0x1000);
        let rmpc = Rmpc::default().with_state(Rmpc::STATE_RDY).with_wq(wq);
        let input = CreateRmpIn::default().with_opcode(0x90c).with_ctx(rmpc);
        let b = input.as_bytes();
        assert_eq!(b[..2], [0x09, 0x0c]);
        assert_eq!(b[0x21], 0x10);
        let wq = &b[0x50..];
        assert_eq!(wq[6..8], [1, 2]);
        assert_eq!(wq[8..12], [0, 0x12, 0x34, 0x56]);
        assert_eq!(wq[0x20..0x24], [0, 6, 0, 9]);
        assert_eq!(wq[0x28..0x30], [0, 0, 0, 0xa, 0, 0, 0, 0xb]);
        assert_eq!(wq[0x30..0x38], [0, 0, 0, 0, 0, 0, 0x10, 0]);
    }

    #[test]
    fn an_xrc_srq_has_the_literal_bytes_of_the_manual() {
        let srqc = XrcSrqc::default()
            .with_log_xrc_srq_size(7)
            .with_log_rq_stride(2)
            .with_xrcd(0x42)
            .with_cqn(0x43)
            .with_user_index(0x44)
            .with_pd(0x45);
        let input = CreateXrcSrqIn::default()
            .with_opcode(0x705)
            .with_xrc_srq_context_entry(srqc);
        let b = &input.as_bytes()[0x10..];
        assert_eq!(b[..8], [7, 0, 0, 0, 2, 0, 0, 0x42]);
        assert_eq!(b[8..12], [0, 0, 0, 0x43]);
        assert_eq!(b[0x10..0x14], [0, 0, 0, 0x44]);
        assert_eq!(b[0x18..0x1c], [0, 0, 0, 0x45]);
        let arm = ArmXrcSrqIn::default().with_xrc_srqn(0x99).with_lwm(3);
        assert_eq!(arm.as_bytes()[8..], [0, 0, 0, 0x99, 0, 0, 0, 3]);
    }
}
