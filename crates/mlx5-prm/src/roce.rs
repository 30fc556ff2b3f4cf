//! RoCE address table, virtual port and link aggregation, as far as clients of the runtime ask for them.
//!
//! Source: PRM "RoCE"; `struct mlx5_ifc_roce_addr_layout_bits`, `mlx5_ifc_query_lag_out_bits` in rdma-core.

use crate::layout::layout;

layout! {
    /// One entry of the RoCE address table.
    pub struct RoceAddrLayout[0x20] {
        /// GID.
        source_l3_address / with_source_l3_address / set_source_l3_address @ 0x00 : 128,
        /// `vlan_id` is used.
        vlan_valid / with_vlan_valid / set_vlan_valid @ 0x83 : 1,
        /// VLAN.
        vlan_id / with_vlan_id / set_vlan_id @ 0x84 : 12,
        /// MAC, first two bytes.
        source_mac_47_32 / with_source_mac_47_32 / set_source_mac_47_32 @ 0x90 : 16,
        /// MAC, last four bytes.
        source_mac_31_0 / with_source_mac_31_0 / set_source_mac_31_0 @ 0xa0 : 32,
        /// 0 GRH, 1 IPv4, 2 IPv6.
        roce_l3_type / with_roce_l3_type / set_roce_l3_type @ 0xd4 : 4,
        /// 0 v1, 2 v2.
        roce_version / with_roce_version / set_roce_version @ 0xd8 : 8,
    }
}

layout! {
    /// Input of `QUERY_ROCE_ADDRESS`.
    pub struct QueryRoceAddressIn[0x10] {
        /// `QUERY_ROCE_ADDRESS`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Index in the table.
        roce_address_index / with_roce_address_index / set_roce_address_index @ 0x40 : 16,
        /// Port.
        vhca_port_num / with_vhca_port_num / set_vhca_port_num @ 0x5c : 4,
    }
}

layout! {
    /// Output of `QUERY_ROCE_ADDRESS`.
    pub struct QueryRoceAddressOut[0x30] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// The entry.
        roce_address / with_roce_address / roce_address_mut @ 0x80 : RoceAddrLayout,
    }
}

layout! {
    /// Output of `QUERY_LAG`.
    pub struct QueryLagOut[0x10] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// How a port is found for a packet (`enum mlx5_lag_port_select_mode` of mlx5_ifc.h): see [`QueryLagOut::QUEUE_AFFINITY`].
        port_select_mode / with_port_select_mode / set_port_select_mode @ 0x55 : 3,
        /// 0: no aggregation.
        lag_state / with_lag_state / set_lag_state @ 0x5d : 3,
    }
}

/// Values of [`QueryLagOut::port_select_mode`].
impl QueryLagOut {
    /// Each queue names its port.
    pub const QUEUE_AFFINITY: u32 = 0;
    /// The flow table of the port chooses, by a hash of the packet.
    pub const FLOW_TABLE: u32 = 1;
    /// The ports are one e-switch, whose rules choose (multiport).
    pub const MULTIPORT: u32 = 2;
}

layout! {
    /// Output of `QUERY_NIC_VPORT_CONTEXT`, as far as it is filled in.
    pub struct QueryNicVportContextOut[0x110] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// RoCE is on.
        roce_en / with_roce_en / set_roce_en @ 0x9f : 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_literal_bytes_of_the_manual() {
        let entry = RoceAddrLayout::default()
            .with_source_l3_address([9; 16])
            .with_source_mac_47_32(0x0211)
            .with_source_mac_31_0(0x2233_4455)
            .with_roce_l3_type(1)
            .with_roce_version(2);
        let out = QueryRoceAddressOut::default().with_roce_address(entry);
        let b = out.as_bytes();
        assert_eq!(b[0x10..0x20], [9; 16]);
        assert_eq!(b[0x22..0x28], [0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);
        assert_eq!(b[0x2a..0x2c], [1, 2]);
    }
}
