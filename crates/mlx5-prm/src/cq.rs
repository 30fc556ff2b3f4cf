//! Completion queue commands and context.
//!
//! Source: PRM "Completion Queue"; `struct mlx5_ifc_cqc_bits` and neighbours in Linux and rdma-core.

use crate::layout::layout;

pub use crate::cmd::{CmdOut as DestroyCqOut, CmdOut as ModifyCqOut};

layout! {
    /// Completion queue context.
    pub struct Cqc[0x40] {
        /// 0 OK, 9 overrun, 10 wrong producer.
        status / with_status / set_status @ 0x00 : 4,
        /// The doorbell record lies in `dbr_umem_id`.
        dbr_umem_valid / with_dbr_umem_valid / set_dbr_umem_valid @ 0x06 : 1,
        /// Length of an entry: 0 is 64 bytes, 1 is 128 bytes.
        cqe_sz / with_cqe_sz / set_cqe_sz @ 0x08 : 3,
        /// Collapsed: every completion goes to entry 0.
        cc / with_cc / set_cc @ 0x0b : 1,
        /// Solicited completions break moderation.
        scqe_break_moderation_en / with_scqe_break_moderation_en / set_scqe_break_moderation_en @ 0x0d : 1,
        /// Overrun is ignored: the device does not compare producer with consumer.
        oi / with_oi / set_oi @ 0x0e : 1,
        /// How moderation counts.
        cq_period_mode / with_cq_period_mode / set_cq_period_mode @ 0x0f : 2,
        /// Compressed entries are allowed.
        cqe_compression_en / with_cqe_compression_en / set_cqe_compression_en @ 0x11 : 1,
        /// Format of compressed entries.
        mini_cqe_res_format / with_mini_cqe_res_format / set_mini_cqe_res_format @ 0x12 : 2,
        /// Event delivery state: 6 solicited armed, 9 armed, 10 fired.
        st / with_st / set_st @ 0x14 : 4,
        /// UMEM that holds the doorbell record.
        dbr_umem_id / with_dbr_umem_id / set_dbr_umem_id @ 0x20 : 32,
        /// Start of the ring in its first page, in units of 64 bytes.
        page_offset / with_page_offset / set_page_offset @ 0x54 : 6,
        /// log2 of the number of entries.
        log_cq_size / with_log_cq_size / set_log_cq_size @ 0x63 : 5,
        /// UAR page in which this queue is armed.
        uar_page / with_uar_page / set_uar_page @ 0x68 : 24,
        /// Moderation: microseconds.
        cq_period / with_cq_period / set_cq_period @ 0x84 : 12,
        /// Moderation: completions.
        cq_max_count / with_cq_max_count / set_cq_max_count @ 0x90 : 16,
        /// Event queue for completion events.
        c_eqn / with_c_eqn / set_c_eqn @ 0xb8 : 8,
        /// log2 of the page size, in units of 4 KiB.
        log_page_size / with_log_page_size / set_log_page_size @ 0xc3 : 5,
        /// Entry of the last event.
        last_notified_index / with_last_notified_index / set_last_notified_index @ 0x108 : 24,
        /// Entry of the last solicited event.
        last_solicit_index / with_last_solicit_index / set_last_solicit_index @ 0x128 : 24,
        /// Entries that software has consumed, as the device last read it.
        consumer_counter / with_consumer_counter / set_consumer_counter @ 0x148 : 24,
        /// Entries that the device has written.
        producer_counter / with_producer_counter / set_producer_counter @ 0x168 : 24,
        /// Doorbell record: its offset in the UMEM.
        dbr_addr / with_dbr_addr / set_dbr_addr @ 0x1c0 : 64,
    }
}

layout! {
    /// Input of `CREATE_CQ`.
    pub struct CreateCqIn[0x110] {
        /// `CREATE_CQ`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// The context.
        cqc / with_cqc / cqc_mut @ 0x80 : Cqc,
        /// Start of the ring in its UMEM, in bytes.
        cq_umem_offset / with_cq_umem_offset / set_cq_umem_offset @ 0x280 : 64,
        /// UMEM of the ring.
        cq_umem_id / with_cq_umem_id / set_cq_umem_id @ 0x2c0 : 32,
        /// The ring lies in `cq_umem_id`.
        cq_umem_valid / with_cq_umem_valid / set_cq_umem_valid @ 0x2e0 : 1,
    }
}

layout! {
    /// Output of `CREATE_CQ`.
    pub struct CreateCqOut[0x10] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// Number of the new queue.
        cqn / with_cqn / set_cqn @ 0x48 : 24,
    }
}

layout! {
    /// Input of `DESTROY_CQ`.
    pub struct DestroyCqIn[0x10] {
        /// `DESTROY_CQ`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Which queue.
        cqn / with_cqn / set_cqn @ 0x48 : 24,
    }
}

layout! {
    /// Input of `QUERY_CQ`.
    pub struct QueryCqIn[0x10] {
        /// `QUERY_CQ`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Which queue.
        cqn / with_cqn / set_cqn @ 0x48 : 24,
    }
}

layout! {
    /// Output of `QUERY_CQ`.
    pub struct QueryCqOut[0x110] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// The context.
        cqc / with_cqc / cqc_mut @ 0x80 : Cqc,
    }
}

layout! {
    /// Input of `MODIFY_CQ`.
    pub struct ModifyCqIn[0x110] {
        /// `MODIFY_CQ`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier; 1 resizes.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Which queue.
        cqn / with_cqn / set_cqn @ 0x48 : 24,
        /// Which fields of the context to take: bit 0 period, 1 max count, 2 oi, 3 c_eqn, 4 period mode.
        modify_field_select / with_modify_field_select / set_modify_field_select @ 0x60 : 32,
        /// The context.
        cqc / with_cqc / cqc_mut @ 0x80 : Cqc,
        /// Start of the new ring in its UMEM, in bytes.
        cq_umem_offset / with_cq_umem_offset / set_cq_umem_offset @ 0x280 : 64,
        /// UMEM of the new ring.
        cq_umem_id / with_cq_umem_id / set_cq_umem_id @ 0x2c0 : 32,
        /// The new ring lies in `cq_umem_id`.
        cq_umem_valid / with_cq_umem_valid / set_cq_umem_valid @ 0x2e0 : 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::Opcode;

    #[test]
    fn a_collapsed_one_entry_queue_has_the_literal_bytes_of_the_manual() {
        let cqc = Cqc::default()
            .with_cc(1)
            .with_oi(1)
            .with_dbr_umem_valid(1)
            .with_dbr_umem_id(0x11)
            .with_uar_page(0x123)
            .with_c_eqn(5)
            .with_dbr_addr(0x40);
        let input = CreateCqIn::default()
            .with_opcode(u32::from(Opcode::CREATE_CQ.0))
            .with_cqc(cqc)
            .with_cq_umem_offset(0x1000)
            .with_cq_umem_id(0x11)
            .with_cq_umem_valid(1);
        let b = input.as_bytes();
        assert_eq!(b[..2], [0x04, 0x00]);
        assert_eq!(b[0x10..0x14], [0x02, 0b0001_0010, 0, 0]);
        assert_eq!(b[0x14..0x18], [0, 0, 0, 0x11]);
        assert_eq!(b[0x1c..0x20], [0, 0, 0x01, 0x23]);
        assert_eq!(b[0x24..0x28], [0, 0, 0, 5]);
        assert_eq!(b[0x48..0x50], [0, 0, 0, 0, 0, 0, 0, 0x40]);
        assert_eq!(b[0x50..0x58], [0, 0, 0, 0, 0, 0, 0x10, 0]);
        assert_eq!(b[0x58..0x60], [0, 0, 0, 0x11, 0x80, 0, 0, 0]);
        assert_eq!(CreateCqIn::from_bytes(b).unwrap().cqc().cc(), 1);
    }
}
