//! Queue pair commands: create, destroy, query, and all transitions.
//!
//! Source: PRM "Queue Pair"; `struct mlx5_ifc_*_qp_{in,out}_bits` in rdma-core. The transitions share one layout.

use crate::layout::layout;
pub use crate::qpc::{Ads, Qpc};

pub use crate::cmd::CmdOut as DestroyQpOut;

/// Input of `RST2INIT_QP`.
pub type Rst2InitQpIn = QpModifyIn;
/// Input of `INIT2INIT_QP`.
pub type Init2InitQpIn = QpModifyIn;
/// Input of `INIT2RTR_QP`.
pub type Init2RtrQpIn = QpModifyIn;
/// Input of `RTR2RTS_QP`.
pub type Rtr2RtsQpIn = QpModifyIn;
/// Input of `RTS2RTS_QP`.
pub type Rts2RtsQpIn = QpModifyIn;

crate::open_enum::open_enum! {
    /// State of a queue pair, as `QUERY_QP` reports it.
    pub struct QpState(u8) {
        /// Just made or reset: takes no work.
        RST = 0,
        /// Receive work may be posted.
        INIT = 1,
        /// Ready to receive.
        RTR = 2,
        /// Ready to send.
        RTS = 3,
        /// Send queue in error; receive side runs.
        SQER = 4,
        /// Send queue drained.
        SQD = 5,
        /// Error: outstanding work is flushed.
        ERR = 6,
        /// Send queue draining.
        SQ_DRAINING = 7,
    }
}

layout! {
    /// Input of `CREATE_QP`.
    pub struct CreateQpIn[0x110] {
        /// `CREATE_QP`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Wanted number, if the device can choose QPs by name.
        input_qpn / with_input_qpn / set_input_qpn @ 0x48 : 24,
        /// Which optional fields of the context are set.
        opt_param_mask / with_opt_param_mask / set_opt_param_mask @ 0x80 : 32,
        /// Enhanced connection establishment options.
        ece / with_ece / set_ece @ 0xa0 : 32,
        /// The context.
        qpc / with_qpc / qpc_mut @ 0xc0 : Qpc,
        /// Start of the work queues in their UMEM, in bytes: the receive queue, then the send queue.
        wq_umem_offset / with_wq_umem_offset / set_wq_umem_offset @ 0x800 : 64,
        /// UMEM of the work queues.
        wq_umem_id / with_wq_umem_id / set_wq_umem_id @ 0x840 : 32,
        /// The work queues lie in `wq_umem_id`.
        wq_umem_valid / with_wq_umem_valid / set_wq_umem_valid @ 0x860 : 1,
    }
}

layout! {
    /// Output of `CREATE_QP`.
    pub struct CreateQpOut[0x10] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// Number of the new queue pair.
        qpn / with_qpn / set_qpn @ 0x48 : 24,
        /// Enhanced connection establishment options that it has.
        ece / with_ece / set_ece @ 0x60 : 32,
    }
}

layout! {
    /// Input of `DESTROY_QP`.
    pub struct DestroyQpIn[0x10] {
        /// `DESTROY_QP`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Which queue pair.
        qpn / with_qpn / set_qpn @ 0x48 : 24,
    }
}

layout! {
    /// Input of every transition. `2ERR_QP` and `2RST_QP` need only the first 16 bytes.
    pub struct QpModifyIn[0x110] {
        /// Which transition.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Which queue pair.
        qpn / with_qpn / set_qpn @ 0x48 : 24,
        /// Which optional fields of the context are set; see the constants of this type.
        opt_param_mask / with_opt_param_mask / set_opt_param_mask @ 0x80 : 32,
        /// Enhanced connection establishment options.
        ece / with_ece / set_ece @ 0xa0 : 32,
        /// The context.
        qpc / with_qpc / qpc_mut @ 0xc0 : Qpc,
    }
}

layout! {
    /// Output of every transition.
    pub struct QpModifyOut[0x10] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// Enhanced connection establishment options that are accepted.
        ece / with_ece / set_ece @ 0x60 : 32,
    }
}

/// Bits of [`QpModifyIn::opt_param_mask`] (PRM "Optional parameters of QP transitions"; `enum mlx5_qp_optpar`).
impl QpModifyIn {
    /// `log_rra_max`, `log_sra_max`: alternate path.
    pub const OPT_ALT_ADDR_PATH: u32 = 1 << 0;
    /// `rre`: remote reads allowed.
    pub const OPT_RRE: u32 = 1 << 1;
    /// `rae`: remote atomics allowed.
    pub const OPT_RAE: u32 = 1 << 2;
    /// `rwe`: remote writes allowed.
    pub const OPT_RWE: u32 = 1 << 3;
    /// `pkey_index` of the primary path.
    pub const OPT_PKEY_INDEX: u32 = 1 << 4;
    /// The command changes `q_key`.
    pub const OPT_Q_KEY: u32 = 1 << 5;
    /// `min_rnr_nak`.
    pub const OPT_RNR_TIMEOUT: u32 = 1 << 6;
    /// The whole primary address path.
    pub const OPT_PRIMARY_ADDR_PATH: u32 = 1 << 7;
    /// `log_sra_max`.
    pub const OPT_SRA_MAX: u32 = 1 << 8;
    /// `log_rra_max`.
    pub const OPT_RRA_MAX: u32 = 1 << 9;
    /// The command changes `pm_state`.
    pub const OPT_PM_STATE: u32 = 1 << 10;
    /// The command changes `retry_count`.
    pub const OPT_RETRY_COUNT: u32 = 1 << 12;
    /// The command changes `rnr_retry`.
    pub const OPT_RNR_RETRY: u32 = 1 << 13;
    /// The command changes `ack_timeout`.
    pub const OPT_ACK_TIMEOUT: u32 = 1 << 14;
    /// `lag_tx_port_affinity`: the port of a link aggregation group.
    pub const OPT_LAG_TX_AFF: u32 = 1 << 15;
}

layout! {
    /// Input of `QUERY_QP`.
    pub struct QueryQpIn[0x10] {
        /// `QUERY_QP`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Which queue pair.
        qpn / with_qpn / set_qpn @ 0x48 : 24,
    }
}

layout! {
    /// Output of `QUERY_QP`.
    pub struct QueryQpOut[0x110] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// Which optional fields are set.
        opt_param_mask / with_opt_param_mask / set_opt_param_mask @ 0x80 : 32,
        /// Enhanced connection establishment options.
        ece / with_ece / set_ece @ 0xa0 : 32,
        /// The context.
        qpc / with_qpc / qpc_mut @ 0xc0 : Qpc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::Opcode;

    #[test]
    fn create_qp_has_the_literal_bytes_of_the_manual() {
        let qpc = Qpc::default()
            .with_pd(0x000a_bcde)
            .with_log_sq_size(10)
            .with_rq_type(Qpc::RQ_TYPE_NONE)
            .with_cqn_snd(0x22)
            .with_dbr_umem_valid(1)
            .with_dbr_umem_id(0x33)
            .with_dbr_addr(0x1_0000_0040);
        let input = CreateQpIn::default()
            .with_opcode(u32::from(Opcode::CREATE_QP.0))
            .with_qpc(qpc)
            .with_wq_umem_offset(0x2000)
            .with_wq_umem_id(0x33);
        let b = input.as_bytes();
        assert_eq!(b[..2], [0x05, 0x00]);
        assert_eq!(b[0x1c..0x20], [0x00, 0x0a, 0xbc, 0xde]);
        assert_eq!(b[0x20..0x24], [0, 0, 10 << 3, 0]);
        assert_eq!(b[0x100..0x108], [0, 0, 0, 0, 0, 0, 0x20, 0]);
        assert_eq!(b[0x108..0x10c], [0, 0, 0, 0x33]);
        assert_eq!(
            CreateQpIn::from_bytes(b).unwrap().qpc().dbr_addr(),
            0x1_0000_0040
        );
    }

    #[test]
    fn a_transition_names_its_queue_pair_in_the_third_dword() {
        let input = QpModifyIn::default()
            .with_opcode(u32::from(Opcode::TO_RST_QP.0))
            .with_qpn(0x0012_3456);
        assert_eq!(
            input.as_bytes()[..12],
            [0x05, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56]
        );
    }
}
