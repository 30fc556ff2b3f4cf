//! `QUERY_HCA_CAP`: general, atomic, RoCE and second general capabilities.
//!
//! Source: PRM "HCA Capabilities"; `struct mlx5_ifc_cmd_hca_cap_bits` and neighbours in Linux and rdma-core. It names only the
//! fields that the runtime, libmlx5 or its other clients read. A bit that is not named stays 0, which means "not supported"
//! throughout.

use crate::layout::layout;

crate::open_enum::open_enum! {
    /// Which capabilities, in the upper 15 bits of the opcode modifier; bit 0 is 1 for the current values and 0 for
    /// the largest possible.
    pub struct CapType(u16) {
        /// [`CmdHcaCap`].
        GENERAL = 0x0,
        /// Offloads of an Ethernet port.
        ETHERNET_OFFLOADS = 0x1,
        /// On-demand paging.
        ODP = 0x2,
        /// [`AtomicCaps`].
        ATOMIC = 0x3,
        /// [`RoceCaps`].
        ROCE = 0x4,
        /// Offloads of IP over InfiniBand.
        IPOIB = 0x5,
        /// Steering of received and sent packets.
        FLOW_TABLE = 0x7,
        /// Flow tables of the switch.
        ESWITCH_FLOW_TABLE = 0x8,
        /// The switch.
        ESWITCH = 0x9,
        /// Reductions.
        VECTOR_CALC = 0xb,
        /// Rates and scheduling.
        QOS = 0xc,
        /// Sizes and operations of memory on the device.
        DEVICE_MEMORY = 0xf,
        /// TLS offload.
        TLS = 0x11,
        /// Events of the device to which DevX may subscribe.
        DEVICE_EVENT = 0x14,
        /// Encryption.
        CRYPTO = 0x1a,
        /// [`HcaCap2`].
        GENERAL_2 = 0x20,
    }
}

impl CapType {
    /// Returns the opcode modifier that asks for the current values.
    #[must_use]
    pub const fn current(self) -> u32 {
        (self.0 as u32) << 1 | 1
    }
}

layout! {
    /// Input of `QUERY_HCA_CAP`.
    pub struct QueryHcaCapIn[0x10] {
        /// `QUERY_HCA_CAP`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// See [`CapType`].
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Ask about another function.
        other_function / with_other_function / set_other_function @ 0x40 : 1,
        /// Which function.
        function_id / with_function_id / set_function_id @ 0x50 : 16,
    }
}

layout! {
    /// Output of `QUERY_HCA_CAP`: 16 bytes of header and 4096 of capabilities, of which each kind uses the first 256.
    pub struct QueryHcaCapOut[0x1010] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// The capabilities, if general ones were asked for.
        cmd_hca_cap / with_cmd_hca_cap / cmd_hca_cap_mut @ 0x80 : CmdHcaCap,
        /// The capabilities, if those of atomics were asked for.
        atomic_caps / with_atomic_caps / atomic_caps_mut @ 0x80 : AtomicCaps,
        /// The capabilities, if those of RoCE were asked for.
        roce_caps / with_roce_caps / roce_caps_mut @ 0x80 : RoceCaps,
        /// The capabilities, if the second general ones were asked for.
        hca_cap_2 / with_hca_cap_2 / hca_cap_2_mut @ 0x80 : HcaCap2,
    }
}

layout! {
    /// General capabilities.
    pub struct CmdHcaCap[0x100] {
        /// `QUERY_HCA_CAP` knows [`HcaCap2`].
        hca_cap_2 / with_hca_cap_2 / set_hca_cap_2 @ 0x020 : 1,
        /// Number of this function in the device.
        vhca_id / with_vhca_id / set_vhca_id @ 0x030 : 16,
        /// Queue pairs may ask for in-order data.
        qp_data_in_order / with_qp_data_in_order / set_qp_data_in_order @ 0x062 : 1,
        /// log2 of the longest shared receive queue.
        log_max_srq_sz / with_log_max_srq_sz / set_log_max_srq_sz @ 0x080 : 8,
        /// log2 of the longest work queue, in WQEs.
        log_max_qp_sz / with_log_max_qp_sz / set_log_max_qp_sz @ 0x088 : 8,
        /// log2 of the number of queue pairs.
        log_max_qp / with_log_max_qp / set_log_max_qp @ 0x09b : 5,
        /// Enhanced connection establishment.
        ece / with_ece / set_ece @ 0x0a3 : 1,
        /// log2 of the number of shared receive queues.
        log_max_srq / with_log_max_srq / set_log_max_srq @ 0x0ab : 5,
        /// log2 of the longest completion queue.
        log_max_cq_sz / with_log_max_cq_sz / set_log_max_cq_sz @ 0x0c8 : 8,
        /// log2 of the number of completion queues.
        log_max_cq / with_log_max_cq / set_log_max_cq @ 0x0db : 5,
        /// log2 of the longest event queue.
        log_max_eq_sz / with_log_max_eq_sz / set_log_max_eq_sz @ 0x0e0 : 8,
        /// Keys may ask for relaxed ordering of writes.
        relaxed_ordering_write / with_relaxed_ordering_write / set_relaxed_ordering_write @ 0x0e8 : 1,
        /// Keys may ask for relaxed ordering of reads.
        relaxed_ordering_read / with_relaxed_ordering_read / set_relaxed_ordering_read @ 0x0e9 : 1,
        /// log2 of the number of memory keys.
        log_max_mkey / with_log_max_mkey / set_log_max_mkey @ 0x0ea : 6,
        /// log2 of the number of event queues.
        log_max_eq / with_log_max_eq / set_log_max_eq @ 0x0fc : 4,
        /// `mkc` may name a key that discards and fills.
        dump_fill_mkey / with_dump_fill_mkey / set_dump_fill_mkey @ 0x0f8 : 1,
        /// Indirect keys that may lie one after another.
        max_indirection / with_max_indirection / set_max_indirection @ 0x100 : 8,
        /// Keys of one entity size are possible.
        fixed_buffer_size / with_fixed_buffer_size / set_fixed_buffer_size @ 0x108 : 1,
        /// log2 of the longest region.
        log_max_mrw_sz / with_log_max_mrw_sz / set_log_max_mrw_sz @ 0x109 : 7,
        /// UMR WQEs may have offsets of more than 16 bits.
        umr_extended_translation_offset / with_umr_extended_translation_offset / set_umr_extended_translation_offset @ 0x118 : 1,
        /// The device has a key that stands for no memory.
        null_mkey / with_null_mkey / set_null_mkey @ 0x119 : 1,
        /// log2 of the longest list of an indirect key.
        log_max_klm_list_size / with_log_max_klm_list_size / set_log_max_klm_list_size @ 0x11a : 6,
        /// log2 of outstanding reads and atomics as requester.
        log_max_ra_req_qp / with_log_max_ra_req_qp / set_log_max_ra_req_qp @ 0x14a : 6,
        /// `RTS2RTS_QP` may change the port of a link aggregation group.
        rts2rts_lag_tx_port_affinity / with_rts2rts_lag_tx_port_affinity / set_rts2rts_lag_tx_port_affinity @ 0x152 : 1,
        /// log2 of outstanding reads and atomics as responder.
        log_max_ra_res_qp / with_log_max_ra_res_qp / set_log_max_ra_res_qp @ 0x15a : 6,
        /// Cache lines of 128 bytes.
        cache_line_128byte / with_cache_line_128byte / set_cache_line_128byte @ 0x164 : 1,
        /// `RTS2RTS_QP` may change the DSCP.
        rts2rts_qp_dscp / with_rts2rts_qp_dscp / set_rts2rts_qp_dscp @ 0x16a : 1,
        /// Encoded length of the GID table: 8 * 2^n.
        gid_table_size / with_gid_table_size / set_gid_table_size @ 0x170 : 16,
        /// Queue pairs per counter set.
        max_qp_cnt / with_max_qp_cnt / set_max_qp_cnt @ 0x186 : 10,
        /// Encoded length of the partition key table: 128 * 2^n.
        pkey_table_size / with_pkey_table_size / set_pkey_table_size @ 0x190 : 16,
        /// Flow tables exist.
        nic_flow_table / with_nic_flow_table / set_nic_flow_table @ 0x1a6 : 1,
        /// This function manages the switch.
        eswitch_manager / with_eswitch_manager / set_eswitch_manager @ 0x1a7 : 1,
        /// The device has memory of its own.
        device_memory / with_device_memory / set_device_memory @ 0x1a8 : 1,
        /// Delay of acknowledgements, encoded as a timeout.
        local_ca_ack_delay / with_local_ca_ack_delay / set_local_ca_ack_delay @ 0x1ab : 5,
        /// 0 InfiniBand, 1 Ethernet.
        port_type / with_port_type / set_port_type @ 0x1b6 : 2,
        /// Number of ports.
        num_ports / with_num_ports / set_num_ports @ 0x1b8 : 8,
        /// log2 of the longest message.
        log_max_msg / with_log_max_msg / set_log_max_msg @ 0x1c3 : 5,
        /// RC queue pairs may be set to place reads and writes out of order, atomics after them.
        dp_ordering_ooo_rw_rc / with_dp_ordering_ooo_rw_rc / set_dp_ordering_ooo_rw_rc @ 0x1ca : 1,
        /// Number of traffic classes.
        max_tc / with_max_tc / set_max_tc @ 0x1cc : 4,
        /// `lag_tx_port_affinity` of a QP can be set by `INIT2RTR_QP`.
        init2_lag_tx_port_affinity / with_init2_lag_tx_port_affinity / set_init2_lag_tx_port_affinity @ 0x1f8 : 1,
        /// Newest format of completion entries.
        cqe_version / with_cqe_version / set_cqe_version @ 0x1fc : 4,
        /// Datagrams need only a short address vector.
        compact_address_vector / with_compact_address_vector / set_compact_address_vector @ 0x200 : 1,
        /// UMR WQEs cannot change the size of an entry.
        umr_modify_entity_size_disabled / with_umr_modify_entity_size_disabled / set_umr_modify_entity_size_disabled @ 0x207 : 1,
        /// UMR WQEs cannot change whether atomics are allowed.
        umr_modify_atomic_disabled / with_umr_modify_atomic_disabled / set_umr_modify_atomic_disabled @ 0x208 : 1,
        /// UMR WQEs cannot change indirect keys.
        umr_indirect_mkey_disabled / with_umr_indirect_mkey_disabled / set_umr_indirect_mkey_disabled @ 0x209 : 1,
        /// Fence that the WQE after a UMR needs: 0 strong, 1 small, 2 none.
        umr_fence / with_umr_fence / set_umr_fence @ 0x20a : 2,
        /// Signature errors can drain.
        drain_sigerr / with_drain_sigerr / set_drain_sigerr @ 0x20f : 1,
        /// Command checksums.
        cmdif_checksum / with_cmdif_checksum / set_cmdif_checksum @ 0x210 : 2,
        /// Small payload may be scattered to the completion entry.
        sctr_data_cqe / with_sctr_data_cqe / set_sctr_data_cqe @ 0x215 : 1,
        /// Dynamically connected transport.
        dct / with_dct / set_dct @ 0x21a : 1,
        /// Packet pacing exists.
        qos / with_qos / set_qos @ 0x21b : 1,
        /// Ethernet offloads exist.
        eth_net_offloads / with_eth_net_offloads / set_eth_net_offloads @ 0x21c : 1,
        /// RoCE exists; see [`RoceCaps`].
        roce / with_roce / set_roce @ 0x21d : 1,
        /// Atomics exist; see [`AtomicCaps`].
        atomic / with_atomic / set_atomic @ 0x21e : 1,
        /// Completion queues may ignore overrun.
        cq_oi / with_cq_oi / set_cq_oi @ 0x220 : 1,
        /// Completion queues may be resized.
        cq_resize / with_cq_resize / set_cq_resize @ 0x221 : 1,
        /// Completion events can be moderated.
        cq_moderation / with_cq_moderation / set_cq_moderation @ 0x222 : 1,
        /// On-demand paging; see the ODP capabilities.
        pg / with_pg / set_pg @ 0x227 : 1,
        /// Loopback of multicast can be blocked.
        block_lb_mc / with_block_lb_mc / set_block_lb_mc @ 0x228 : 1,
        /// Cross-channel queues exist.
        cd / with_cd / set_cd @ 0x22c : 1,
        /// Lists of UMR WQEs may be where a key says.
        umr_ptr_rlkey / with_umr_ptr_rlkey / set_umr_ptr_rlkey @ 0x230 : 1,
        /// Memory windows: keys that UMR WQEs bind and peers invalidate.
        imaicl / with_imaicl / set_imaicl @ 0x231 : 1,
        /// Q_Key violation counter.
        qkv / with_qkv / set_qkv @ 0x236 : 1,
        /// P_Key violation counter.
        pkv / with_pkv / set_pkv @ 0x237 : 1,
        /// The source of datagrams can be set.
        set_deth_sqpn / with_set_deth_sqpn / set_set_deth_sqpn @ 0x238 : 1,
        /// XRC transport.
        xrc / with_xrc / set_xrc @ 0x23c : 1,
        /// Unreliable datagrams.
        ud / with_ud / set_ud @ 0x23d : 1,
        /// Unreliable connections.
        uc / with_uc / set_uc @ 0x23e : 1,
        /// Reliable connections.
        rc / with_rc / set_rc @ 0x23f : 1,
        /// UAR pages are 4 KiB whatever the system page is.
        uar_4k / with_uar_4k / set_uar_4k @ 0x240 : 1,
        /// log2 of the UAR area, in MiB.
        uar_sz / with_uar_sz / set_uar_sz @ 0x24a : 6,
        /// log2 of the smallest page.
        log_pg_sz / with_log_pg_sz / set_log_pg_sz @ 0x258 : 8,
        /// BlueFlame: WQEs may be written through the register.
        bf / with_bf / set_bf @ 0x260 : 1,
        /// log2 of a doorbell register, both halves.
        log_bf_reg_size / with_log_bf_reg_size / set_log_bf_reg_size @ 0x26b : 5,
        /// Link aggregation is possible.
        lag_master / with_lag_master / set_lag_master @ 0x27b : 1,
        /// Ports that can be aggregated.
        num_lag_ports / with_num_lag_ports / set_num_lag_ports @ 0x27c : 4,
        /// Longest send WQE, in bytes.
        max_wqe_sz_sq / with_max_wqe_sz_sq / set_max_wqe_sz_sq @ 0x290 : 16,
        /// Longest receive WQE, in bytes.
        max_wqe_sz_rq / with_max_wqe_sz_rq / set_max_wqe_sz_rq @ 0x2b0 : 16,
        /// log2 of the number of protection domains.
        log_max_pd / with_log_max_pd / set_log_max_pd @ 0x32b : 5,
        /// log2 of the number of transport domains.
        log_max_transport_domain / with_log_max_transport_domain / set_log_max_transport_domain @ 0x323 : 5,
        /// RC queue pairs may be set to place data out of order.
        dp_ordering_ooo_all_rc / with_dp_ordering_ooo_all_rc / set_dp_ordering_ooo_all_rc @ 0x334 : 1,
        /// log2 of the number of XRC domains.
        log_max_xrcd / with_log_max_xrcd / set_log_max_xrcd @ 0x33b : 5,
        /// log2 of the number of receive memory pools.
        log_max_rmp / with_log_max_rmp / set_log_max_rmp @ 0x383 : 5,
        /// General objects that exist, a bit each.
        general_obj_types / with_general_obj_types / set_general_obj_types @ 0x400 : 64,
        /// Clocks of send completions.
        sq_ts_format / with_sq_ts_format / set_sq_ts_format @ 0x440 : 2,
        /// Clocks of receive completions.
        rq_ts_format / with_rq_ts_format / set_rq_ts_format @ 0x442 : 2,
        /// Number of event queues of this function.
        max_num_eqs / with_max_num_eqs / set_max_num_eqs @ 0x470 : 16,
        /// log2 of the number of user contexts.
        log_max_uctx / with_log_max_uctx / set_log_max_uctx @ 0x463 : 5,
        /// log2 of the number of UMEMs.
        log_max_umem / with_log_max_umem / set_log_max_umem @ 0x46b : 5,
        /// log2 of the UAR page, in units of 4 KiB.
        log_uar_page_sz / with_log_uar_page_sz / set_log_uar_page_sz @ 0x490 : 16,
        /// Clock of timestamps.
        device_frequency_mhz / with_device_frequency_mhz / set_device_frequency_mhz @ 0x4c0 : 32,
        /// Clock of timestamps, finer.
        device_frequency_khz / with_device_frequency_khz / set_device_frequency_khz @ 0x4e0 : 32,
        /// UARs in a system page.
        num_of_uars_per_page / with_num_of_uars_per_page / set_num_of_uars_per_page @ 0x520 : 32,
        /// log2 of the widest extended atomic.
        log_max_atomic_size_qp / with_log_max_atomic_size_qp / set_log_max_atomic_size_qp @ 0x580 : 8,
    }
}

layout! {
    /// Atomic capabilities.
    pub struct AtomicCaps[0x100] {
        /// Byte order of results: 0 as the IB specification has it, 1 that of the host.
        atomic_req_8b_endianness_mode / with_atomic_req_8b_endianness_mode / set_atomic_req_8b_endianness_mode @ 0x40 : 2,
        /// Operations, a bit each; see the constants of this type.
        atomic_operations / with_atomic_operations / set_atomic_operations @ 0x90 : 16,
        /// Widths for RC: bit n is 2^n bytes.
        atomic_size_qp / with_atomic_size_qp / set_atomic_size_qp @ 0xb0 : 16,
        /// Widths for DC.
        atomic_size_dc / with_atomic_size_dc / set_atomic_size_dc @ 0xd0 : 16,
    }
}

impl AtomicCaps {
    /// `atomic_operations`: compare and swap.
    pub const OP_CMP_SWAP: u32 = 1 << 0;
    /// `atomic_operations`: fetch and add.
    pub const OP_FETCH_ADD: u32 = 1 << 1;
    /// `atomic_operations`: masked compare and swap.
    pub const OP_MASKED_CMP_SWAP: u32 = 1 << 2;
    /// `atomic_operations`: masked fetch and add.
    pub const OP_MASKED_FETCH_ADD: u32 = 1 << 3;
}

layout! {
    /// RoCE capabilities.
    pub struct RoceCaps[0x100] {
        /// Software may choose the UDP source port.
        sw_r_roce_src_udp_port / with_sw_r_roce_src_udp_port / set_sw_r_roce_src_udp_port @ 0x04 : 1,
        /// Forced loopback works with RoCE on.
        fl_rc_qp_when_roce_enabled / with_fl_rc_qp_when_roce_enabled / set_fl_rc_qp_when_roce_enabled @ 0x06 : 1,
        /// Clocks of completions.
        qp_ts_format / with_qp_ts_format / set_qp_ts_format @ 0x1e : 2,
        /// Network layers, a bit each: 1 IPv4, 2 IPv6.
        l3_type / with_l3_type / set_l3_type @ 0x8c : 4,
        /// Versions, a bit each: 0 v1, 2 v2.
        roce_version / with_roce_version / set_roce_version @ 0x98 : 8,
        /// UDP destination port.
        r_roce_dest_udp_port / with_r_roce_dest_udp_port / set_r_roce_dest_udp_port @ 0xb0 : 16,
        /// Largest UDP source port.
        r_roce_max_src_udp_port / with_r_roce_max_src_udp_port / set_r_roce_max_src_udp_port @ 0xc0 : 16,
        /// Smallest UDP source port.
        r_roce_min_src_udp_port / with_r_roce_min_src_udp_port / set_r_roce_min_src_udp_port @ 0xd0 : 16,
        /// Entries of the address table.
        roce_address_table_size / with_roce_address_table_size / set_roce_address_table_size @ 0xf0 : 16,
    }
}

layout! {
    /// Second general capabilities.
    pub struct HcaCap2[0x100] {
        /// A queue pair's `dp_ordering_force` counts: the device does not choose the order by itself.
        dp_ordering_force / with_dp_ordering_force / set_dp_ordering_force @ 0x088 : 1,
        /// log2 of the granularity in which queue pair numbers can be reserved.
        log_reserved_qpn_granularity / with_log_reserved_qpn_granularity / set_log_reserved_qpn_granularity @ 0x93 : 5,
        /// Send queues without doorbell record, rung by the device itself.
        send_dbr_mode_no_dbr_int / with_send_dbr_mode_no_dbr_int / set_send_dbr_mode_no_dbr_int @ 0x2e0 : 1,
        /// Send queues without doorbell record, rung by software.
        send_dbr_mode_no_dbr_ext / with_send_dbr_mode_no_dbr_ext / set_send_dbr_mode_no_dbr_ext @ 0x2e1 : 1,
        /// log2 of the longest such queue.
        log_max_send_dbr_less_qp_sq / with_log_max_send_dbr_less_qp_sq / set_log_max_send_dbr_less_qp_sq @ 0x2e3 : 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_general_capabilities_have_the_literal_bytes_of_the_manual() {
        let cap = CmdHcaCap::default()
            .with_log_max_qp_sz(15)
            .with_log_max_qp(18)
            .with_num_ports(1)
            .with_port_type(1)
            .with_rc(1)
            .with_uar_4k(1)
            .with_log_bf_reg_size(9);
        let b = cap.as_bytes();
        assert_eq!((b[0x11], b[0x13]), (15, 18));
        assert_eq!((b[0x36], b[0x37]), (0b01, 1));
        assert_eq!((b[0x47], b[0x48]), (1, 0x80));
        assert_eq!(b[0x4d], 9);
    }

    #[test]
    fn atomic_and_roce_capabilities_have_the_literal_bytes_of_the_manual() {
        let mut b = [0; 256];
        b[0x12..0x14].copy_from_slice(&[0, 0b1111]);
        b[0x16..0x18].copy_from_slice(&[0, 0b1100]);
        let caps = AtomicCaps::from_bytes(&b).unwrap();
        assert_eq!((caps.atomic_operations(), caps.atomic_size_qp()), (15, 12));
        let roce = RoceCaps::default()
            .with_r_roce_dest_udp_port(4791)
            .with_roce_version(4);
        assert_eq!(roce.as_bytes()[0x13], 4);
        assert_eq!(roce.as_bytes()[0x16..0x18], [0x12, 0xb7]);
    }

    #[test]
    fn opcode_modifiers_are_those_that_libmlx5_sends() {
        assert_eq!(CapType::GENERAL.current(), 1);
        assert_eq!(CapType::ATOMIC.current(), 7);
    }
}
