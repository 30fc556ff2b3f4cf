//! `QUERY_QP`: the context of the device becomes attributes of verbs.
//!
//! Source: `query_qp_attr`, `to_rdma_ah_attr` and `mlx5_ib_query_qp` in Linux's mlx5_ib.

use bytemuck::Zeroable;
use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::{Ads, QpState, Qpc, QueryQpIn, QueryQpOut};

use super::frame::Call;
use super::qp_rules::State;
use super::structs::{QpDest, QueryQp, QueryQpResp};
use crate::device::{Access, Context as DeviceContext};
use crate::errno::Errno;
use crate::link::Link;

const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;

pub(super) fn query(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    let request: QueryQp = call.read(CORE_IN)?;
    let queue_pair = call.context.handles().qp(request.qp_handle)?;
    let mut known = queue_pair.known();
    let input = QueryQpIn::default()
        .with_opcode(Opcode::QUERY_QP.0.into())
        .with_qpn(queue_pair.qpn);
    let mut output = QueryQpOut::default();
    device.kernel_query(queue_pair.object(), input.as_bytes(), output.as_bytes_mut())?;
    let qpc = output.qpc();
    let state = state(qpc);
    known.state = state;
    let path = qpc.primary_address_path();
    let reply = QueryQpResp {
        dest: destination(call.context.identity().link, path),
        // libmlx5 itself fills in the sizes of the send queue.
        max_recv_wr: queue_pair.receive_wqes,
        max_recv_sge: queue_pair.receive_sge,
        qkey: qpc.q_key(),
        rq_psn: qpc.next_rcv_psn(),
        sq_psn: qpc.next_send_psn(),
        dest_qp_num: qpc.remote_qpn(),
        qp_access_flags: rights(qpc),
        pkey_index: (path.pkey_index() & 0xffff) as u16,
        qp_state: state.number(),
        cur_qp_state: state.number(),
        path_mtu: byte(qpc.mtu()),
        path_mig_state: migration(qpc),
        sq_draining: u8::from(qpc.state() == u32::from(QpState::SQ_DRAINING.0)),
        max_rd_atomic: 1 << qpc.log_sra_max(),
        max_dest_rd_atomic: 1 << qpc.log_rra_max(),
        min_rnr_timer: byte(qpc.min_rnr_nak()),
        port_num: byte(path.vhca_port_num()),
        timeout: byte(path.ack_timeout()),
        retry_cnt: byte(qpc.retry_count()),
        rnr_retry: byte(qpc.rnr_retry()),
        sq_sig_all: u8::from(queue_pair.signal_all),
        ..QueryQpResp::zeroed()
    };
    call.put_pod(CORE_OUT, &reply)
}

/// Returns the number that a field of at most 8 bits holds.
fn byte(field: u32) -> u8 {
    field.to_be_bytes()[3]
}

fn state(qpc: &Qpc) -> State {
    match QpState(byte(qpc.state())) {
        QpState::RST => State::Reset,
        QpState::INIT => State::Init,
        QpState::RTR => State::Rtr,
        QpState::RTS => State::Rts,
        QpState::SQD | QpState::SQ_DRAINING => State::Sqd,
        QpState::SQER => State::Sqe,
        _ => State::Error,
    }
}

fn rights(qpc: &Qpc) -> u32 {
    [
        (qpc.rre(), Access::REMOTE_READ),
        (qpc.rwe(), Access::REMOTE_WRITE),
        (qpc.rae(), Access::REMOTE_ATOMIC),
    ]
    .iter()
    .filter(|(set, _)| *set != 0)
    .fold(0, |all, (_, right)| all | right.0)
}

/// Returns the value of `enum ib_mig_state`: 0 migrated, 1 rearm, 2 armed.
fn migration(qpc: &Qpc) -> u8 {
    match qpc.pm_state() {
        0 => 2,
        1 => 1,
        _ => 0,
    }
}

/// Returns the address of a path; all zero before the path has a port.
fn destination(link: Link, path: &Ads) -> QpDest {
    let port = byte(path.vhca_port_num());
    if port == 0 {
        return QpDest::zeroed();
    }
    QpDest {
        dgid: path.rgid_rip(),
        flow_label: path.flow_label(),
        dlid: (path.rlid() & 0xffff) as u16,
        sgid_index: byte(path.src_addr_index()),
        hop_limit: byte(path.hop_limit()),
        traffic_class: byte(path.tclass()),
        sl: byte(path.sl()),
        src_path_bits: byte(path.mlid()),
        static_rate: byte(path.stat_rate()),
        // On Ethernet a path always has a GRH or a header in its place.
        is_global: match link {
            Link::Ethernet => 1,
            Link::InfiniBand => byte(path.grh()),
        },
        port_num: port,
        ..QpDest::zeroed()
    }
}
