//! State transitions of QPs: the fields of the context that each transition takes, and its effects.

use super::qp::{accepted_ece, find};
use super::syndrome;
use crate::device::command::call::{Call, Outcome, Refusal};
use crate::device::executor::execution::Execution;
use crate::device::objects::path::{self, Nowhere};
use crate::device::objects::qp::{Notices, Route};
use crate::device::objects::qp_state;
use crate::envelope::Destination;
use crate::link::Link;
use crate::profile::{LAG_PORTS, Lag};
use crate::sysfs::{PortIdentity, port_number};
use crate::transport::Service;
use mlx5_prm::cmd::{CmdIn, Opcode, Status};
use mlx5_prm::qp::{Ads, QpModifyIn, QpModifyOut, QpState, Qpc};
use std::net::Ipv4Addr;

/// Length of the input up to the end of the context.
const CONTEXT_END: usize = 0x18 + Qpc::BYTES;

pub(super) fn modify(call: &mut Call<'_>) -> Outcome {
    let opcode = CmdIn::from_prefix(call.input).op();
    let input = QpModifyIn::from_prefix(call.input);
    let qpn = input.qpn();
    let state = find(call, qpn)?.state;
    let next = qp_state::after(state, opcode)
        .ok_or(Refusal::new(Status::BAD_QP_STATE, syndrome::QP_STATE))?;
    match opcode {
        Opcode::TO_RST_QP => reset(call, qpn)?,
        Opcode::TO_ERR_QP if call.hca()?.execution == Execution::External => {
            // The executor flushes the QP.
            find(call, qpn)?.state = QpState::ERR;
        }
        Opcode::TO_ERR_QP => {
            let engine = call.fabric.engine;
            engine.fail(call.slot()?, qpn);
        }
        _ => {
            call.need_input(CONTEXT_END)?;
            let ece = accepted_ece(call.hca()?, input.ece())?;
            match opcode {
                Opcode::RST2INIT_QP | Opcode::INIT2INIT_QP => init(call, qpn, &input)?,
                Opcode::INIT2RTR_QP => ready_to_receive(call, qpn, &input)?,
                Opcode::RTR2RTS_QP => ready_to_send(call, qpn, &input)?,
                _ => optional(call, qpn, &input)?,
            }
            let qp = find(call, qpn)?;
            qp.state = next;
            // The transition to Rtr settles the ECE options: if it asks for none, none is in force.
            match (opcode, input.ece()) {
                (Opcode::INIT2RTR_QP, 0) => qp.ece = 0,
                (_, 0) => {}
                _ => qp.ece = ece,
            }
            let ece = qp.ece;
            qp.notices.drain |= opcode == Opcode::RTS2SQD_QP;
            if opcode == Opcode::SQERR2RTS_QP {
                // The wire has given up the operations that it had, as the device has.
                start(call, qpn)?;
            }
            // Doorbells and packets that arrived early can be handled now.
            call.hca()?.schedule(qpn);
            call.reply(QpModifyOut::default().with_ece(ece).as_bytes());
        }
    }
    Ok(None)
}

/// Resets QP `qpn` to what it was made with. All counters that the device keeps of it are 0 again.
fn reset(call: &mut Call<'_>, qpn: u32) -> Result<(), Refusal> {
    let ece = call.hca()?.ece;
    let engine = call.fabric.engine;
    let slot = call.slot()?;
    // A doorbell that was stored before the reset must not count for the time after it.
    engine.take_doorbells(&mut slot.state);
    slot.endpoint_of(qpn).disconnect(qpn);
    let qp = find(call, qpn)?;
    qp.state = QpState::RST;
    qp.qpc = qp.made;
    qp.ece = ece;
    qp.send.reset();
    if let Some(receive) = &mut qp.receive {
        receive.taken = 0;
    }
    qp.receiving = None;
    qp.notices = Notices::default();
    qp.route = Route::None;
    qp.remote = Ipv4Addr::UNSPECIFIED;
    qp.path_bits = 0;
    qp.send_psn = 0;
    qp.receive_psn = 0;
    call.hca()?.forget_qp(qpn);
    Ok(())
}

fn init(call: &mut Call<'_>, qpn: u32, input: &QpModifyIn) -> Result<(), Refusal> {
    let given = input.qpc();
    let number = port_number(given);
    let port = call.hca()?.identity.port(number);
    let port = port.ok_or(Refusal::bad_param(syndrome::QP_PORT))?;
    let pkey_index = checked_pkey_index(port, given.primary_address_path())?;
    let qp = find(call, qpn)?;
    qp.qpc.set_rre(given.rre());
    qp.qpc.set_rwe(given.rwe());
    qp.qpc.set_rae(given.rae());
    qp.qpc.set_atomic_mode(given.atomic_mode());
    qp.qpc.set_pm_state(given.pm_state());
    qp.qpc.set_counter_set_id(given.counter_set_id());
    qp.qpc
        .set_lag_tx_port_affinity(given.lag_tx_port_affinity());
    if qp.service == Service::Ud {
        qp.qpc.set_q_key(given.q_key());
    }
    qp.qpc
        .primary_address_path_mut()
        .set_vhca_port_num(number.into());
    qp.qpc.primary_address_path_mut().set_pkey_index(pkey_index);
    Ok(())
}

fn checked_pkey_index(own: &PortIdentity, path: &Ads) -> Result<u32, Refusal> {
    let index = path.pkey_index();
    let is_entry = usize::try_from(index).is_ok_and(|index| index < own.pkeys.keys().len());
    let refusal = Refusal::bad_param(syndrome::PKEY_INDEX);
    is_entry.then_some(index).ok_or(refusal)
}

fn ready_to_receive(call: &mut Call<'_>, qpn: u32, input: &QpModifyIn) -> Result<(), Refusal> {
    let given = *input.qpc();
    if find(call, qpn)?.service == Service::Ud {
        return ready_for_datagrams(call, qpn, input);
    }
    let path = given.primary_address_path();
    if !(1..=Qpc::MTU_4096).contains(&given.mtu()) {
        return Err(Refusal::bad_param(syndrome::MTU));
    }
    let port = call.hca()?.port_of(qpn);
    let remote = remote(port, path)?;
    checked_pkey_index(port, path)?;
    let execution = call.hca()?.execution;
    let route = match call.fabric.by_address(remote.address) {
        // Both ends must agree on whether they exchange data through memory.
        Some(peer)
            if call.hca()?.uses_memory()
                && call
                    .fabric
                    .hca(peer)
                    .is_some_and(|hca| hca.uses_memory() && hca.execution == execution) =>
        {
            Route::Process(peer)
        }
        _ if execution == Execution::External => {
            return Err(Refusal::bad_param(syndrome::EXTERNAL_PEER));
        }
        _ => Route::Wire,
    };
    let mtu = match route {
        Route::Wire => call.hca()?.port_of(qpn).path_mtu(given.mtu()),
        _ => given.mtu(),
    };
    let lag = call.hca()?.identity.lag();
    let qp = find(call, qpn)?;
    let mut qpc = qp.qpc;
    apply_optional(&mut qpc, input);
    // No packet leaves before the QP has named a port of the link aggregation group.
    check_lag_port(lag, &qpc)?;
    qpc.set_mtu(mtu);
    qpc.set_dp_ordering_force(given.dp_ordering_force());
    qpc.set_dp_ordering_1(given.dp_ordering_1());
    qpc.set_log_msg_max(given.log_msg_max());
    qpc.set_remote_qpn(given.remote_qpn());
    qpc.set_next_rcv_psn(given.next_rcv_psn());
    qpc.set_log_rra_max(given.log_rra_max());
    qpc.set_min_rnr_nak(given.min_rnr_nak());
    let port = qpc.primary_address_path().vhca_port_num();
    *qpc.primary_address_path_mut() = path.with_vhca_port_num(port);
    if qpc.rae() != 0 && qpc.atomic_mode() == 0 {
        return Err(Refusal::bad_param(syndrome::ATOMIC_MODE));
    }
    qp.qpc = qpc;
    let service = qp.service;
    qp.receive_psn = given.next_rcv_psn();
    qp.route = route;
    qp.remote = remote.address;
    qp.path_bits = remote.path_bits;
    if route == Route::Wire {
        let slot = call.slot()?;
        let (wire, hca) = slot.wire_of(qpn);
        let pkey = hca.identity.port_of(&qpc).pkey(&qpc);
        path::connect(wire.endpoint(), qpn, service, &qpc, remote, pkey);
    }
    Ok(())
}

/// Returns the HCA that a path leads to, and the headers of packets on that path.
fn remote(own: &PortIdentity, path: &Ads) -> Result<Destination, Refusal> {
    path::destination(own, path).map_err(|nowhere| {
        Refusal::bad_param(match (nowhere, own.link) {
            (Nowhere::Source, _) => syndrome::GID_INDEX,
            (Nowhere::PathBits, _) => syndrome::PATH_BITS,
            (Nowhere::Families, _) => syndrome::GID_FAMILIES,
            (Nowhere::Peer, Link::Ethernet) => syndrome::REMOTE_GID,
            (Nowhere::Peer, Link::InfiniBand) if path.grh() != 0 => syndrome::REMOTE_PORT_GID,
            (Nowhere::Peer, Link::InfiniBand) => syndrome::REMOTE_LID,
        })
    })
}

/// Prepares a UD QP to receive. It has no peer: each WQE names the path.
fn ready_for_datagrams(call: &mut Call<'_>, qpn: u32, input: &QpModifyIn) -> Result<(), Refusal> {
    let qp = find(call, qpn)?;
    let mut qpc = qp.qpc;
    apply_optional(&mut qpc, input);
    // The MTU is that of the port, whatever the input says.
    qpc.set_mtu(Qpc::MTU_4096);
    qp.qpc = qpc;
    qp.route = Route::Datagram;
    start(call, qpn)
}

fn ready_to_send(call: &mut Call<'_>, qpn: u32, input: &QpModifyIn) -> Result<(), Refusal> {
    let given = *input.qpc();
    if call.hca()?.execution == Execution::External && !call.fabric.has_executor() {
        return Err(Refusal::new(Status::BAD_RES_STATE, syndrome::NO_EXECUTOR));
    }
    let qp = find(call, qpn)?;
    let mut qpc = qp.qpc;
    apply_optional(&mut qpc, input);
    qpc.set_next_send_psn(given.next_send_psn());
    qpc.set_retry_count(given.retry_count());
    qpc.set_rnr_retry(given.rnr_retry());
    qpc.set_log_sra_max(given.log_sra_max());
    qpc.set_log_ack_req_freq(given.log_ack_req_freq());
    let timeout = given.primary_address_path().ack_timeout();
    qpc.primary_address_path_mut().set_ack_timeout(timeout);
    qp.qpc = qpc;
    qp.send_psn = given.next_send_psn();
    start(call, qpn)
}

/// Lets the wire take operations of QP `qpn`.
fn start(call: &mut Call<'_>, qpn: u32) -> Result<(), Refusal> {
    let qp = find(call, qpn)?;
    let (qpc, service, route) = (qp.qpc.with_next_send_psn(qp.send_psn), qp.service, qp.route);
    let slot = call.slot()?;
    let (wire, hca) = slot.wire_of(qpn);
    let own = hca.identity.port_of(&qpc);
    let endpoint = wire.endpoint();
    match route {
        Route::Wire if service != Service::XrcTarget => {
            path::start(endpoint, qpn, service, &qpc);
        }
        Route::Datagram => path::open_datagram(endpoint, qpn, &qpc, own),
        _ => {}
    }
    Ok(())
}

fn check_lag_port(lag: Option<Lag>, qpc: &Qpc) -> Result<(), Refusal> {
    let port = qpc.lag_tx_port_affinity();
    match lag {
        Some(Lag::QueueAffinity) if !(1..=LAG_PORTS.into()).contains(&port) => {
            Err(Refusal::bad_param(syndrome::LAG_PORT))
        }
        Some(Lag::Hash) if port != 0 => Err(Refusal::bad_param(syndrome::LAG_HASH)),
        _ => Ok(()),
    }
}

fn optional(call: &mut Call<'_>, qpn: u32, input: &QpModifyIn) -> Result<(), Refusal> {
    let lag = call.hca()?.identity.lag();
    let qp = find(call, qpn)?;
    let mut qpc = qp.qpc;
    apply_optional(&mut qpc, input);
    if input.opt_param_mask() & QpModifyIn::OPT_LAG_TX_AFF != 0 {
        check_lag_port(lag, &qpc)?;
    }
    qp.qpc = qpc;
    Ok(())
}

/// Sets the fields of `qpc` that `opt_param_mask` of the input names.
fn apply_optional(qpc: &mut Qpc, input: &QpModifyIn) {
    let given = input.qpc();
    let has = |bit: u32| input.opt_param_mask() & bit != 0;
    if has(QpModifyIn::OPT_RRE) {
        qpc.set_rre(given.rre());
    }
    if has(QpModifyIn::OPT_RWE) {
        qpc.set_rwe(given.rwe());
    }
    if has(QpModifyIn::OPT_RAE) {
        qpc.set_rae(given.rae());
        if given.atomic_mode() != 0 {
            qpc.set_atomic_mode(given.atomic_mode());
        }
    }
    if has(QpModifyIn::OPT_RNR_TIMEOUT) {
        qpc.set_min_rnr_nak(given.min_rnr_nak());
    }
    if has(QpModifyIn::OPT_RRA_MAX) {
        qpc.set_log_rra_max(given.log_rra_max());
    }
    if has(QpModifyIn::OPT_SRA_MAX) {
        qpc.set_log_sra_max(given.log_sra_max());
    }
    if has(QpModifyIn::OPT_RETRY_COUNT) {
        qpc.set_retry_count(given.retry_count());
    }
    if has(QpModifyIn::OPT_RNR_RETRY) {
        qpc.set_rnr_retry(given.rnr_retry());
    }
    if has(QpModifyIn::OPT_Q_KEY) {
        qpc.set_q_key(given.q_key());
    }
    if has(QpModifyIn::OPT_LAG_TX_AFF) {
        qpc.set_lag_tx_port_affinity(given.lag_tx_port_affinity());
    }
}
