//! `QUERY_HCA_CAP`: what this device can do. Maximum and current values are the same.

use super::syndrome;
use crate::address::ROCE_PORT;
use crate::device::command::call::{Call, Outcome, Refusal};
use crate::device::limits;
use crate::device::memory::pending_writes::DataOrder;
use crate::link::Link;
use mlx5_prm::cmd::Status;
use mlx5_prm::hca_cap::{
    AtomicCaps, CapType, CmdHcaCap, HcaCap2, QueryHcaCapIn, QueryHcaCapOut, RoceCaps,
};
use mlx5_prm::wqe::WQEBB_BYTES;

pub(super) fn query(call: &mut Call<'_>) -> Outcome {
    let op_mod = QueryHcaCapIn::from_prefix(call.input).op_mod();
    // The capability type is a 15-bit number.
    let wanted = CapType((op_mod >> 1 & 0x7fff) as u16);
    let hca = call.hca()?;
    let (link, order, force) = (hca.identity.link, hca.order, hca.order_force);
    let (lag_ports, ece) = (hca.identity.lag_ports(), hca.ece != 0);
    let counter_sets = hca.counter_sets;
    let log_max_mr = hca.log_max_mr;
    let lean = hca.identity.is_lean();
    let ports = hca.identity.last_port();
    let reply = QueryHcaCapOut::default();
    let reply = match wanted {
        CapType::GENERAL => {
            let caps = with_lag(general(link, order), lag_ports);
            let caps = if lean { with_one_read(caps) } else { caps };
            let caps = caps
                .with_max_qp_cnt(counter_sets)
                .with_log_max_mrw_sz(log_max_mr.into())
                .with_num_ports(ports.into());
            reply.with_cmd_hca_cap(caps.with_ece(ece.into()))
        }
        CapType::ATOMIC if lean => reply.with_atomic_caps(plain_atomic()),
        CapType::ATOMIC => reply.with_atomic_caps(atomic()),
        CapType::ROCE if link.is_infiniband() => reply,
        CapType::ROCE => reply.with_roce_caps(roce()),
        CapType::GENERAL_2 => reply.with_hca_cap_2(general_2(force, !lean)),
        // Capability types that exist and are all zero, because this device has none of these capabilities.
        CapType::ETHERNET_OFFLOADS
        | CapType::ODP
        | CapType::IPOIB
        | CapType::FLOW_TABLE
        | CapType::ESWITCH_FLOW_TABLE
        | CapType::ESWITCH
        | CapType::VECTOR_CALC
        | CapType::QOS
        | CapType::DEVICE_MEMORY
        | CapType::TLS
        | CapType::DEVICE_EVENT
        | CapType::CRYPTO => reply,
        _ => return Err(Refusal::new(Status::BAD_OP, syndrome::UNKNOWN_OP_MOD)),
    };
    call.reply(reply.as_bytes());
    Ok(None)
}

/// Returns `caps` with a link aggregation group of `ports` ports. 0 means no group.
fn with_lag(caps: CmdHcaCap, ports: u8) -> CmdHcaCap {
    let has = u32::from(ports > 0);
    caps.with_lag_master(has)
        .with_num_lag_ports(ports.into())
        .with_init2_lag_tx_port_affinity(has)
        .with_rts2rts_lag_tx_port_affinity(has)
}

/// Value of `umr_fence`: a UMR WQE runs when all WQEs before it are over, and is over before the next begins.
const UMR_NEEDS_NO_FENCE: u32 = 2;

/// Returns the general capabilities. They name only features that exist, since libmlx5 uses each feature whose bit is set.
pub(in super::super) fn general(link: Link, order: DataOrder) -> CmdHcaCap {
    // Values of `port_type`: 0 is InfiniBand, 1 Ethernet.
    let ethernet = u32::from(!link.is_infiniband());
    CmdHcaCap::default()
        .with_hca_cap_2(1)
        .with_log_max_qp_sz(limits::LOG_QUEUE)
        .with_log_max_qp(limits::LOG_QPS)
        .with_log_max_cq_sz(limits::LOG_CQ_ENTRIES)
        .with_log_max_cq(limits::LOG_CQS)
        .with_log_max_eq_sz(16)
        .with_log_max_eq(4)
        .with_log_max_mkey(limits::LOG_KEYS)
        .with_fixed_buffer_size(1)
        .with_log_max_klm_list_size(limits::LOG_KEY_LIST)
        .with_max_indirection(limits::KEY_DEPTH)
        .with_umr_ptr_rlkey(1)
        .with_umr_fence(UMR_NEEDS_NO_FENCE)
        .with_imaicl(1)
        .with_dump_fill_mkey(1)
        .with_log_max_ra_req_qp(limits::LOG_READS)
        .with_log_max_ra_res_qp(limits::LOG_READS)
        .with_gid_table_size(0)
        .with_pkey_table_size(0)
        .with_port_type(ethernet)
        .with_num_ports(1)
        .with_log_max_msg(limits::LOG_MESSAGE)
        .with_max_tc(8)
        .with_cqe_version(1)
        .with_roce(ethernet)
        .with_atomic(1)
        .with_cq_oi(1)
        .with_cq_moderation(1)
        .with_rc(1)
        .with_uc(1)
        .with_ud(1)
        .with_xrc(1)
        .with_log_max_srq_sz(limits::LOG_QUEUE)
        .with_log_max_srq(limits::LOG_SRQS)
        .with_log_max_rmp(limits::LOG_SRQS)
        .with_log_max_xrcd(limits::LOG_XRCDS)
        .with_dp_ordering_ooo_rw_rc(u32::from(order != DataOrder::InOrder))
        .with_dp_ordering_ooo_all_rc(u32::from(order == DataOrder::FlushOnly))
        .with_uar_4k(1)
        .with_uar_sz(5)
        .with_log_pg_sz(12)
        .with_bf(1)
        .with_log_bf_reg_size(9)
        .with_max_wqe_sz_sq(limits::WQE_BYTES)
        .with_max_wqe_sz_rq(16 << limits::LOG_RQ_STRIDE)
        .with_log_max_pd(limits::LOG_PDS)
        .with_log_max_umem(limits::LOG_UMEMS)
        .with_max_num_eqs(16)
        .with_device_frequency_mhz(1000)
        .with_device_frequency_khz(1_000_000)
        .with_num_of_uars_per_page(1)
        .with_log_max_atomic_size_qp(3)
}

/// Returns `caps` with one RDMA read or atomic at a time.
fn with_one_read(caps: CmdHcaCap) -> CmdHcaCap {
    caps.with_log_max_ra_req_qp(0).with_log_max_ra_res_qp(0)
}

fn general_2(order_force: bool, no_record: bool) -> HcaCap2 {
    HcaCap2::default()
        .with_dp_ordering_force(order_force.into())
        .with_send_dbr_mode_no_dbr_ext(no_record.into())
        .with_log_max_send_dbr_less_qp_sq(limits::LOG_QUEUE)
}

const _: () = assert!((limits::WQE_BYTES as usize).is_multiple_of(WQEBB_BYTES));

/// Returns the capabilities of a device with atomics of 8 bytes and without masked atomics.
fn plain_atomic() -> AtomicCaps {
    AtomicCaps::default()
        .with_atomic_req_8b_endianness_mode(1)
        .with_atomic_operations(AtomicCaps::OP_CMP_SWAP | AtomicCaps::OP_FETCH_ADD)
        .with_atomic_size_qp(1 << 3)
}

fn atomic() -> AtomicCaps {
    /// Operands of 2^2 and 2^3 bytes.
    const SIZES: u32 = 1 << 2 | 1 << 3;
    let plain = plain_atomic();
    plain
        .with_atomic_operations(
            plain.atomic_operations()
                | AtomicCaps::OP_MASKED_CMP_SWAP
                | AtomicCaps::OP_MASKED_FETCH_ADD,
        )
        .with_atomic_size_qp(SIZES)
        // These are the sizes for dynamic connections, which this device lacks. UCX judges all masked atomics by them.
        .with_atomic_size_dc(SIZES)
}

fn roce() -> RoceCaps {
    RoceCaps::default()
        .with_sw_r_roce_src_udp_port(1)
        .with_l3_type(1 << 1 | 1 << 2)
        .with_roce_version(1 | 1 << 2)
        .with_r_roce_dest_udp_port(ROCE_PORT.into())
        .with_r_roce_max_src_udp_port(0xffff)
        .with_r_roce_min_src_udp_port(0xc000)
        .with_roce_address_table_size(4)
}
