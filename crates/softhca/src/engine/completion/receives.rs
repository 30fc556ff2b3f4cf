//! The end of receive WQEs.

use super::entry::push;
use super::vendor;
use crate::device::objects::qp::Receiving;
use crate::device::objects::srq::SrqKind;
use crate::device::state::HcaState;
use crate::envelope::{Envelope, Version};
use crate::link::{self, Link};
use crate::transport::{Received, SendWith};
use mlx5_prm::be::{Be16, Be32, Be64};
use mlx5_prm::cqe::{Cqe64, CqeOpcode, ErrCqe, Syndrome};
use std::net::Ipv4Addr;

/// Completes receive WQE `receiving`, whose message has arrived.
pub(in crate::engine) fn complete_receive(
    hca: &mut HcaState,
    qpn: u32,
    receiving: &Receiving,
    received: &Received,
    now_ns: u64,
) {
    let Some((cqn, user_index)) = receiver(hca, qpn, receiving.srqn) else {
        return;
    };
    let link = hca.identity.link;
    let (sender, sender_ip, path_bits) = match (received.source, hca.qps.get(qpn)) {
        (Some(source), _) => {
            let header = match (link, source.has_grh) {
                (Link::Ethernet, _) => GRH | network_header(source.envelope),
                (Link::InfiniBand, true) => GRH,
                (Link::InfiniBand, false) => 0,
            };
            (header | source.qpn, source.address, source.own_path_bits)
        }
        (None, Some(qp)) => (qp.qpc.remote_qpn(), qp.remote, qp.path_bits),
        (None, None) => (0, Ipv4Addr::UNSPECIFIED, 0),
    };
    let slid = match link {
        Link::Ethernet => 0,
        Link::InfiniBand => link::low_bits(sender_ip),
    };
    let (opcode, with) = match (received.send, received.with) {
        (false, SendWith::Immediate(value) | SendWith::Invalidate(value)) => {
            (CqeOpcode::RESP_WR_IMM, value)
        }
        (false, SendWith::Nothing) => (CqeOpcode::RESP_WR_IMM, 0),
        (true, SendWith::Nothing) => (CqeOpcode::RESP_SEND, 0),
        (true, SendWith::Immediate(value)) => (CqeOpcode::RESP_SEND_IMM, value),
        (true, SendWith::Invalidate(key)) => (CqeOpcode::RESP_SEND_INV, key),
    };
    let cqe = Cqe64 {
        ml_path: path_bits,
        slid: Be16::new(slid),
        flags_rqpn: Be32::new(sender),
        srqn_uidx: Be32::new(user_index),
        imm_inval_pkey: Be32::new(with),
        byte_cnt: Be32::new(received.bytes),
        timestamp: Be64::new(now_ns),
        sop_drop_qpn: Be32::new(qpn),
        wqe_counter: Be16::new(receiving.index),
        op_own: opcode.0 << 4 | u8::from(received.solicited) << 1,
        ..Cqe64::default()
    };
    push(hca, cqn, bytemuck::cast(cqe));
}

/// Bit of `flags_rqpn`: the packet has a GRH, or another header in its place.
const GRH: u32 = 1 << 28;

/// Returns the bits of `flags_rqpn` that say, with RoCE, which header is in the place of the GRH (`MLX5_CQE_ROCE_L3_HEADER_TYPE_*` in
/// Linux).
fn network_header(envelope: Envelope) -> u32 {
    const GRH_ITSELF: u32 = 0;
    const IPV6: u32 = 1 << 24;
    const IPV4: u32 = 2 << 24;
    match envelope.version {
        Version::V1 => GRH_ITSELF,
        Version::V2 if envelope == Envelope::V2_IPV4 => IPV4,
        Version::V2 => IPV6,
    }
}

/// Returns the CQ that gets the completion of a receive WQE, and the number by which software knows whose completion it is. Both are of the
/// SRQ if that belongs to an XRC domain, otherwise of the QP.
fn receiver(hca: &HcaState, qpn: u32, srqn: Option<u32>) -> Option<(u32, u32)> {
    if let Some(srqn) = srqn
        && let SrqKind::Xrc {
            cqn, user_index, ..
        } = hca.srqs.get(srqn)?.kind
    {
        return Some((cqn, user_index));
    }
    let qp = hca.qps.get(qpn)?;
    Some((qp.receive_cqn, qp.qpc.user_index()))
}

/// Ends a receive WQE, of the QP's own queue or of an SRQ, that has failed or is flushed.
pub(in crate::engine) fn fail_receive(
    hca: &mut HcaState,
    qpn: u32,
    srqn: Option<u32>,
    index: u16,
    syndrome: Syndrome,
) {
    let Some((cqn, user_index)) = receiver(hca, qpn, srqn) else {
        return;
    };
    let err = ErrCqe {
        srqn_uidx: Be32::new(user_index),
        vendor_err_synd: if syndrome == Syndrome::WR_FLUSH_ERR {
            vendor::FLUSHED
        } else {
            vendor::RECEIVE
        },
        syndrome: syndrome.0,
        s_wqe_opcode_qpn: Be32::new(qpn),
        wqe_counter: Be16::new(index),
        op_own: CqeOpcode::RESP_ERR.0 << 4,
        ..ErrCqe::default()
    };
    hca.counters.error_cqes += 1;
    push(hca, cqn, bytemuck::cast(err));
}
