//! Queue pair context and address path.
//!
//! Source: PRM "Queue Pair Context"; `struct mlx5_ifc_qpc_bits`, `struct mlx5_ifc_ads_bits` in rdma-core.

use crate::layout::layout;

layout! {
    /// Address path: how packets reach the peer.
    pub struct Ads[0x2c] {
        /// Force loopback.
        fl / with_fl / set_fl @ 0x00 : 1,
        /// Which partition key.
        pkey_index / with_pkey_index / set_pkey_index @ 0x10 : 16,
        /// A global route header is used (InfiniBand).
        grh / with_grh / set_grh @ 0x28 : 1,
        /// Source path bits.
        mlid / with_mlid / set_mlid @ 0x29 : 7,
        /// Remote LID (InfiniBand); UDP source port for RoCE in older firmware.
        rlid / with_rlid / set_rlid @ 0x30 : 16,
        /// Retransmission timeout is 4.096 us * 2^n; 0 is never.
        ack_timeout / with_ack_timeout / set_ack_timeout @ 0x40 : 5,
        /// Own GID index.
        src_addr_index / with_src_addr_index / set_src_addr_index @ 0x48 : 8,
        /// Static rate.
        stat_rate / with_stat_rate / set_stat_rate @ 0x54 : 4,
        /// IP time to live.
        hop_limit / with_hop_limit / set_hop_limit @ 0x58 : 8,
        /// Traffic class.
        tclass / with_tclass / set_tclass @ 0x64 : 8,
        /// Flow label.
        flow_label / with_flow_label / set_flow_label @ 0x6c : 20,
        /// GID of the peer.
        rgid_rip / with_rgid_rip / set_rgid_rip @ 0x80 : 128,
        /// `dscp` is forced.
        f_dscp / with_f_dscp / set_f_dscp @ 0x104 : 1,
        /// `ecn` is forced.
        f_ecn / with_f_ecn / set_f_ecn @ 0x105 : 1,
        /// `eth_prio` is forced.
        f_eth_prio / with_f_eth_prio / set_f_eth_prio @ 0x107 : 1,
        /// ECN bits.
        ecn / with_ecn / set_ecn @ 0x108 : 2,
        /// DSCP bits.
        dscp / with_dscp / set_dscp @ 0x10a : 6,
        /// UDP source port of RoCEv2.
        udp_sport / with_udp_sport / set_udp_sport @ 0x110 : 16,
        /// Ethernet priority.
        eth_prio / with_eth_prio / set_eth_prio @ 0x121 : 3,
        /// Service level.
        sl / with_sl / set_sl @ 0x124 : 4,
        /// Port.
        vhca_port_num / with_vhca_port_num / set_vhca_port_num @ 0x128 : 8,
        /// MAC of the peer, first two bytes.
        rmac_47_32 / with_rmac_47_32 / set_rmac_47_32 @ 0x130 : 16,
        /// MAC of the peer, last four bytes.
        rmac_31_0 / with_rmac_31_0 / set_rmac_31_0 @ 0x140 : 32,
    }
}

impl Ads {
    /// MAC of the peer.
    #[must_use]
    pub fn rmac(&self) -> [u8; 6] {
        let mut mac = [0; 6];
        mac.copy_from_slice(&self.as_bytes()[0x26..0x2c]);
        mac
    }

    /// A copy with the MAC of the peer set.
    #[must_use]
    pub fn with_rmac(mut self, mac: [u8; 6]) -> Self {
        self.as_bytes_mut()[0x26..0x2c].copy_from_slice(&mac);
        self
    }
}

layout! {
    /// Queue pair context.
    pub struct Qpc[0xe8] {
        /// State; see [`crate::qp::QpState`]. Output only.
        state / with_state / set_state @ 0x00 : 4,
        /// Port of a link aggregation group; 0 is any.
        lag_tx_port_affinity / with_lag_tx_port_affinity / set_lag_tx_port_affinity @ 0x04 : 4,
        /// Transport service: 0 RC, 1 UC, 2 UD, 3 XRC, 5 DCI.
        st / with_st / set_st @ 0x08 : 8,
        /// Path migration; 3 is migrated.
        pm_state / with_pm_state / set_pm_state @ 0x13 : 2,
        /// Padding of incoming data.
        end_padding_mode / with_end_padding_mode / set_end_padding_mode @ 0x1c : 2,
        /// WQEs carry a signature.
        wq_signature / with_wq_signature / set_wq_signature @ 0x20 : 1,
        /// Multicast is not looped back.
        block_lb_mc / with_block_lb_mc / set_block_lb_mc @ 0x21 : 1,
        /// Atomics may be done as plain writes.
        atomic_like_write_en / with_atomic_like_write_en / set_atomic_like_write_en @ 0x22 : 1,
        /// The order of data is that of `dp_ordering_1` (0: as posted), whatever the device would choose.
        dp_ordering_force / with_dp_ordering_force / set_dp_ordering_force @ 0x27 : 1,
        /// Protection domain.
        pd / with_pd / set_pd @ 0x28 : 24,
        /// Path MTU: 1 is 256 bytes, 5 is 4096 bytes.
        mtu / with_mtu / set_mtu @ 0x40 : 3,
        /// log2 of the largest message.
        log_msg_max / with_log_msg_max / set_log_msg_max @ 0x43 : 5,
        /// log2 of the number of receive WQEs.
        log_rq_size / with_log_rq_size / set_log_rq_size @ 0x49 : 4,
        /// log2 of the receive stride, in units of 16 bytes.
        log_rq_stride / with_log_rq_stride / set_log_rq_stride @ 0x4d : 3,
        /// The QP has no send queue.
        no_sq / with_no_sq / set_no_sq @ 0x50 : 1,
        /// log2 of the send queue's length, in WQEBBs.
        log_sq_size / with_log_sq_size / set_log_sq_size @ 0x51 : 4,
        /// Clock of completion timestamps.
        ts_format / with_ts_format / set_ts_format @ 0x58 : 2,
        /// Payload is written in order.
        data_in_order / with_data_in_order / set_data_in_order @ 0x5a : 1,
        /// The reserved lkey may be used.
        rlky / with_rlky / set_rlky @ 0x5b : 1,
        /// Stateless offloads.
        ulp_stateless_offload_mode / with_ulp_stateless_offload_mode / set_ulp_stateless_offload_mode @ 0x5c : 4,
        /// Counter set.
        counter_set_id / with_counter_set_id / set_counter_set_id @ 0x60 : 8,
        /// UAR page through which the queue pair is rung.
        uar_page / with_uar_page / set_uar_page @ 0x68 : 24,
        /// Doorbell record of the send queue: 0 used, 1 unused (the doorbell says it all), 2 internal.
        send_dbr_mode / with_send_dbr_mode / set_send_dbr_mode @ 0x80 : 2,
        /// Number that completions carry (CQE version 1).
        user_index / with_user_index / set_user_index @ 0x88 : 24,
        /// log2 of the page size, in units of 4 KiB.
        log_page_size / with_log_page_size / set_log_page_size @ 0xa3 : 5,
        /// Queue pair of the peer.
        remote_qpn / with_remote_qpn / set_remote_qpn @ 0xa8 : 24,
        /// Path to the peer.
        primary_address_path / with_primary_address_path / primary_address_path_mut @ 0xc0 : Ads,
        /// Alternate path.
        secondary_address_path / with_secondary_address_path / secondary_address_path_mut @ 0x220 : Ads,
        /// log2 of packets between requests for an acknowledgement; 0 is each message only.
        log_ack_req_freq / with_log_ack_req_freq / set_log_ack_req_freq @ 0x380 : 4,
        /// log2 of outstanding reads and atomics as requester.
        log_sra_max / with_log_sra_max / set_log_sra_max @ 0x388 : 3,
        /// Retries after a timeout or sequence error.
        retry_count / with_retry_count / set_retry_count @ 0x38d : 3,
        /// Retries after receiver-not-ready; 7 is forever.
        rnr_retry / with_rnr_retry / set_rnr_retry @ 0x390 : 3,
        /// Fast registration allowed.
        fre / with_fre / set_fre @ 0x394 : 1,
        /// Receiver-not-ready retries left.
        cur_rnr_retry / with_cur_rnr_retry / set_cur_rnr_retry @ 0x395 : 3,
        /// Retries left.
        cur_retry_count / with_cur_retry_count / set_cur_retry_count @ 0x398 : 3,
        /// Sequence number of the next packet sent.
        next_send_psn / with_next_send_psn / set_next_send_psn @ 0x3c8 : 24,
        /// Completion queue of sends.
        cqn_snd / with_cqn_snd / set_cqn_snd @ 0x3e8 : 24,
        /// Source queue pair of datagrams.
        deth_sqpn / with_deth_sqpn / set_deth_sqpn @ 0x408 : 24,
        /// Last acknowledged sequence number.
        last_acked_psn / with_last_acked_psn / set_last_acked_psn @ 0x448 : 24,
        /// Send sequence number (messages).
        ssn / with_ssn / set_ssn @ 0x468 : 24,
        /// log2 of outstanding reads and atomics as responder.
        log_rra_max / with_log_rra_max / set_log_rra_max @ 0x488 : 3,
        /// Widest atomic: 0 none, 1 IB spec, 2 only 8 bytes, 3 up to 8 bytes.
        atomic_mode / with_atomic_mode / set_atomic_mode @ 0x48c : 4,
        /// Remote reads allowed.
        rre / with_rre / set_rre @ 0x490 : 1,
        /// Remote writes allowed.
        rwe / with_rwe / set_rwe @ 0x491 : 1,
        /// Remote atomics allowed.
        rae / with_rae / set_rae @ 0x492 : 1,
        /// Start of the work queues in their first page, in units of 64 bytes.
        page_offset / with_page_offset / set_page_offset @ 0x494 : 6,
        /// Everything may be placed out of order.
        dp_ordering_1 / with_dp_ordering_1 / set_dp_ordering_1 @ 0x49c : 1,
        /// Receive queue managed by another queue.
        cd_slave_receive / with_cd_slave_receive / set_cd_slave_receive @ 0x49d : 1,
        /// Send queue managed by another queue.
        cd_slave_send / with_cd_slave_send / set_cd_slave_send @ 0x49e : 1,
        /// May manage other queues.
        cd_master / with_cd_master / set_cd_master @ 0x49f : 1,
        /// Time that a receiver-not-ready answer asks for, encoded.
        min_rnr_nak / with_min_rnr_nak / set_min_rnr_nak @ 0x4a3 : 5,
        /// Sequence number of the next packet expected.
        next_rcv_psn / with_next_rcv_psn / set_next_rcv_psn @ 0x4a8 : 24,
        /// XRC domain.
        xrcd / with_xrcd / set_xrcd @ 0x4c8 : 24,
        /// Completion queue of receives.
        cqn_rcv / with_cqn_rcv / set_cqn_rcv @ 0x4e8 : 24,
        /// Doorbell record: its offset in the UMEM.
        dbr_addr / with_dbr_addr / set_dbr_addr @ 0x500 : 64,
        /// Key of datagrams.
        q_key / with_q_key / set_q_key @ 0x540 : 32,
        /// Receive queue: see the constants of this type.
        rq_type / with_rq_type / set_rq_type @ 0x565 : 3,
        /// Shared receive queue.
        srqn_rmpn_xrqn / with_srqn_rmpn_xrqn / set_srqn_rmpn_xrqn @ 0x568 : 24,
        /// Receive message sequence number.
        rmsn / with_rmsn / set_rmsn @ 0x588 : 24,
        /// WQEBBs that the device has taken from the send queue.
        hw_sq_wqebb_counter / with_hw_sq_wqebb_counter / set_hw_sq_wqebb_counter @ 0x5a0 : 16,
        /// WQEBBs that software has posted, as the device last read it.
        sw_sq_wqebb_counter / with_sw_sq_wqebb_counter / set_sw_sq_wqebb_counter @ 0x5b0 : 16,
        /// Receive WQEs that the device has taken.
        hw_rq_counter / with_hw_rq_counter / set_hw_rq_counter @ 0x5c0 : 32,
        /// Receive WQEs that software has posted, as the device last read it.
        sw_rq_counter / with_sw_rq_counter / set_sw_rq_counter @ 0x5e0 : 32,
        /// Scatter to CQE, requester side: 0 never, 0x11 up to 32 bytes, 0x22 up to 64 bytes.
        cs_req / with_cs_req / set_cs_req @ 0x630 : 8,
        /// Scatter to CQE, responder side.
        cs_res / with_cs_res / set_cs_res @ 0x638 : 8,
        /// Access key of dynamically connected transport.
        dc_access_key / with_dc_access_key / set_dc_access_key @ 0x640 : 64,
        /// The doorbell record lies in `dbr_umem_id`.
        dbr_umem_valid / with_dbr_umem_valid / set_dbr_umem_valid @ 0x683 : 1,
        /// UMEM that holds the doorbell record.
        dbr_umem_id / with_dbr_umem_id / set_dbr_umem_id @ 0x720 : 32,
    }
}

impl Qpc {
    /// `st`: reliable connection.
    pub const ST_RC: u32 = 0;
    /// `st`: unreliable connection.
    pub const ST_UC: u32 = 1;
    /// `st`: unreliable datagram.
    pub const ST_UD: u32 = 2;
    /// `st`: extended reliable connection: the initiator, or without a send queue the target.
    pub const ST_XRC: u32 = 3;
    /// `send_dbr_mode`: the doorbell record says how far to run.
    pub const SEND_DBR_MODE_RECORD: u32 = 0;
    /// `send_dbr_mode`: the send queue has no record; the doorbell that software rings says how far to run.
    pub const SEND_DBR_MODE_NONE: u32 = 1;
    /// `pm_state`: migrated, the only one without alternate paths.
    pub const PM_STATE_MIGRATED: u32 = 3;
    /// `rq_type`: a receive queue of its own.
    pub const RQ_TYPE_REGULAR: u32 = 0;
    /// `rq_type`: a shared receive queue.
    pub const RQ_TYPE_SRQ: u32 = 1;
    /// `rq_type`: no receive queue.
    pub const RQ_TYPE_NONE: u32 = 3;
    /// `atomic_mode`: atomics of up to 8 bytes.
    pub const ATOMIC_MODE_UP_TO_8B: u32 = 3;
    /// `mtu`: 4096 bytes.
    pub const MTU_4096: u32 = 5;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_literal_bytes_of_the_manual() {
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 9];
        let ads = Ads::default()
            .with_ack_timeout(14)
            .with_src_addr_index(3)
            .with_hop_limit(64)
            .with_rgid_rip(gid)
            .with_udp_sport(0xc123)
            .with_vhca_port_num(1)
            .with_rmac([2, 3, 4, 5, 6, 7]);
        let b = ads.as_bytes();
        assert_eq!(b[8..12], [14 << 3, 3, 0, 64]);
        assert_eq!(b[16..32], gid);
        assert_eq!(b[34..36], [0xc1, 0x23]);
        assert_eq!(b[37], 1);
        assert_eq!(b[38..44], [2, 3, 4, 5, 6, 7]);
        assert_eq!((ads.rmac_47_32(), ads.rmac_31_0()), (0x0203, 0x0405_0607));
    }

    #[test]
    fn contexts_read_back_the_fields_that_end_to_end_clients_confirmed() {
        let mut b = [0; Qpc::BYTES];
        b[0x79..0x7c].copy_from_slice(&[0x12, 0x34, 0x56]);
        b[0x92] = 0b1110_0000;
        b[0xb4..0xb6].copy_from_slice(&[0xab, 0xcd]);
        let qpc = Qpc::from_bytes(&b).unwrap();
        assert_eq!(qpc.next_send_psn(), 0x0012_3456);
        assert_eq!((qpc.rre(), qpc.rwe(), qpc.rae()), (1, 1, 1));
        assert_eq!(qpc.hw_sq_wqebb_counter(), 0xabcd);
    }
}
