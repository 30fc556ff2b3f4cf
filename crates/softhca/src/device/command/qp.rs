//! `CREATE_QP`, `DESTROY_QP`, `QUERY_QP`.

use super::super::memory::Region;
use super::super::state::{Engine, HcaState, Slot};
use super::syndrome;
use crate::device::command::call::{
    Call, Outcome, Refusal, need_uar, record_part, ring_start, umem_part,
};
use crate::device::command::srq::find_xrcd;
use crate::device::executor::execution::Execution;
use crate::device::limits;
use crate::device::names::DevxObject;
use crate::device::objects::qp::{Notices, Qp, ReceiveQueue, Route, SendQueue};
use crate::device::objects::srq::SrqKind;
use crate::device::objects::uar::UarUser;
use crate::transport::Service;
use mlx5_prm::cmd::Status;
use mlx5_prm::qp::{CreateQpIn, CreateQpOut, QpState, Qpc, QueryQpIn, QueryQpOut};
use std::net::Ipv4Addr;

/// Length of the input up to `wq_umem_id`.
const CREATE_BYTES: usize = 0x10c;

pub(super) fn create(call: &mut Call<'_>) -> Outcome {
    call.need_input(CREATE_BYTES)?;
    let input = CreateQpIn::from_prefix(call.input);
    let context = call.context;
    let qpc = *input.qpc();
    let hca = call.hca()?;
    let service = service(&qpc)?;
    check(hca, context, &qpc, service)?;
    let ece = accepted_ece(hca, input.ece())?;
    if hca.execution == Execution::External {
        check_external(hca, &qpc, service)?;
    }
    let no_record = qpc.send_dbr_mode() == Qpc::SEND_DBR_MODE_NONE;
    let mut made = qpc.with_state(0);
    let (mut send, mut receive, mut record) = (None, None, None);
    let mut umems = [0; 2];
    if service == Service::XrcTarget {
        // An XRC target has neither queues nor a protection domain: the SRQs of its XRC domain have these.
        for clear in [
            Qpc::set_pd,
            Qpc::set_uar_page,
            Qpc::set_cqn_snd,
            Qpc::set_cqn_rcv,
        ] {
            clear(&mut made, 0);
        }
    } else {
        (send, receive) = rings(hca, context, &input)?;
        // The command must name a doorbell record for every QP, even if none of its queues uses the record: firmware may insist on that.
        let named = record_part(hca, context, qpc.dbr_umem_id(), qpc.dbr_addr())?;
        umems = [input.wq_umem_id(), qpc.dbr_umem_id()];
        record = (!no_record || receive.is_some()).then_some(named);
    }
    let shared = qpc.rq_type() == Qpc::RQ_TYPE_SRQ && !is_xrc(service);
    let qpn = hca
        .qps
        .insert(Qp {
            context,
            service,
            pdn: made.pd(),
            uar: made.uar_page(),
            send_cqn: made.cqn_snd(),
            receive_cqn: made.cqn_rcv(),
            umems,
            record,
            state: QpState::RST,
            qpc: made,
            made,
            ece,
            send: SendQueue {
                ring: send,
                rung: no_record.then_some(0),
                ..SendQueue::default()
            },
            receive,
            srqn: shared.then(|| qpc.srqn_rmpn_xrqn()),
            receiving: None,
            notices: Notices::default(),
            route: Route::None,
            remote: Ipv4Addr::UNSPECIFIED,
            path_bits: 0,
            wire_must_fail: false,
            send_psn: 0,
            receive_psn: 0,
        })
        .ok_or(Refusal::FULL)?;
    if let Some(uar) = hca.uars.get_mut(made.uar_page()) {
        uar.qps.push(UarUser {
            qpn,
            register: None,
        });
    }
    let reply = CreateQpOut::default().with_qpn(qpn).with_ece(ece);
    call.reply(reply.as_bytes());
    Ok(Some(DevxObject::Qp(qpn)))
}

/// Returns the ECE options that a QP gets: those that `asked` names and the device has, or all of the device if `asked` is 0.
pub(super) fn accepted_ece(hca: &HcaState, asked: u32) -> Result<u32, Refusal> {
    match (asked, hca.ece) {
        (0, own) => Ok(own),
        (_, 0) => Err(Refusal::bad_param(syndrome::ECE)),
        (asked, own) => Ok(asked & own),
    }
}

/// Returns the service that a QP context asks for. The target end of an XRC connection is the end without a send queue.
fn service(qpc: &Qpc) -> Result<Service, Refusal> {
    match (qpc.st(), qpc.no_sq()) {
        (Qpc::ST_RC, _) => Ok(Service::Rc),
        (Qpc::ST_UC, _) => Ok(Service::Uc),
        (Qpc::ST_UD, _) => Ok(Service::Ud),
        (Qpc::ST_XRC, 0) => Ok(Service::XrcInitiator),
        (Qpc::ST_XRC, _) => Ok(Service::XrcTarget),
        _ => Err(Refusal::bad_param(syndrome::QP_SERVICE)),
    }
}

fn is_xrc(service: Service) -> bool {
    matches!(service, Service::XrcInitiator | Service::XrcTarget)
}

/// Refuses options that this device does not have, and objects that do not exist.
fn check(hca: &HcaState, context: u32, qpc: &Qpc, service: Service) -> Result<(), Refusal> {
    if service == Service::XrcTarget {
        return find_xrcd(hca, qpc.xrcd(), context);
    }
    check_register(hca, qpc)?;
    match qpc.rq_type() {
        Qpc::RQ_TYPE_NONE => {}
        Qpc::RQ_TYPE_REGULAR if !is_xrc(service) => {}
        // An XRC initiator is made with an SRQ type, and does not use an SRQ.
        Qpc::RQ_TYPE_SRQ if is_xrc(service) => {}
        Qpc::RQ_TYPE_SRQ => {
            hca.srqs
                .get(qpc.srqn_rmpn_xrqn())
                .filter(|srq| srq.context == context && srq.kind == SrqKind::Basic)
                .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_SRQ))?;
        }
        _ => return Err(Refusal::bad_param(syndrome::RQ_TYPE)),
    }
    if hca.pds.get(qpc.pd()) != Some(&context) {
        return Err(Refusal::bad_resource(syndrome::NO_SUCH_PD));
    }
    // An XRC initiator receives nothing, so its receive CQ is not looked at.
    let receive_cqn = (!is_xrc(service)).then(|| qpc.cqn_rcv());
    for cqn in [Some(qpc.cqn_snd()), receive_cqn].into_iter().flatten() {
        if hca.cqs.get(cqn).is_none_or(|cq| cq.context != context) {
            return Err(Refusal::bad_resource(syndrome::NO_SUCH_CQ));
        }
    }
    need_uar(hca, context, qpc.uar_page())?;
    Ok(())
}

/// Refuses a QP that no executor can run.
fn check_external(hca: &HcaState, qpc: &Qpc, service: Service) -> Result<(), Refusal> {
    let has_srq = qpc.rq_type() == Qpc::RQ_TYPE_SRQ;
    let receives = qpc.rq_type() == Qpc::RQ_TYPE_REGULAR;
    // Each CQ has one writer in the executor, without a lock. So two queues must not share a CQ.
    let of_others = |cqn: u32| {
        hca.qps
            .iter()
            .any(|(_, qp)| qp.send_cqn == cqn || (qp.receive.is_some() && qp.receive_cqn == cqn))
    };
    let shares = of_others(qpc.cqn_snd())
        || (receives && (of_others(qpc.cqn_rcv()) || qpc.cqn_snd() == qpc.cqn_rcv()));
    if service != Service::Rc || has_srq || qpc.no_sq() != 0 || shares {
        return Err(Refusal::bad_param(syndrome::EXTERNAL_QP));
    }
    Ok(())
}

/// Refuses QPs that share a doorbell register if one of them has no doorbell record. Without a record every doorbell counts, and a register
/// holds only the last.
fn check_register(hca: &HcaState, qpc: &Qpc) -> Result<(), Refusal> {
    let no_record = match qpc.send_dbr_mode() {
        Qpc::SEND_DBR_MODE_RECORD => false,
        Qpc::SEND_DBR_MODE_NONE if qpc.no_sq() == 0 => true,
        _ => return Err(Refusal::bad_param(syndrome::DBR_MODE)),
    };
    let page = hca.uars.get(qpc.uar_page());
    let sharers = page.map_or(&[][..], |uar| &uar.qps);
    let needs_own = |user: &UarUser| {
        let other = hca.qps.get(user.qpn);
        no_record || other.is_some_and(|qp| qp.send.rung.is_some())
    };
    if sharers.iter().any(needs_own) {
        return Err(Refusal::bad_param(syndrome::SHARED_REGISTER));
    }
    Ok(())
}

/// Returns the send ring and the receive queue, for each that the QP has. The send ring lies directly after the receive ring.
fn rings(
    hca: &HcaState,
    context: u32,
    input: &CreateQpIn,
) -> Result<(Option<Region>, Option<ReceiveQueue>), Refusal> {
    let qpc = input.qpc();
    let start = ring_start(input.wq_umem_offset(), qpc.page_offset())?;
    let part = |offset: u64, bytes: u64| {
        let outside = syndrome::QUEUE_OUTSIDE_UMEM;
        let at = start
            .checked_add(offset)
            .ok_or(Refusal::bad_param(outside))?;
        let ring = umem_part(hca, context, input.wq_umem_id(), at, bytes, outside)?;
        if !ring.address().is_multiple_of(64) {
            return Err(Refusal::bad_param(syndrome::QUEUE_MISALIGNED));
        }
        Ok(ring)
    };
    let mut receive = None;
    let mut receive_bytes = 0;
    if qpc.rq_type() == Qpc::RQ_TYPE_REGULAR {
        if qpc.log_rq_size() > limits::LOG_QUEUE || qpc.log_rq_stride() > limits::LOG_RQ_STRIDE {
            return Err(Refusal::new(Status::LIM_ERR, syndrome::RQ_TOO_LONG));
        }
        let stride = 16 << qpc.log_rq_stride();
        receive_bytes = stride << qpc.log_rq_size();
        receive = Some(ReceiveQueue {
            ring: part(0, receive_bytes)?,
            stride,
            taken: 0,
        });
    }
    // The send ring begins at a WQEBB boundary.
    let send_at = receive_bytes.next_multiple_of(64);
    let mut send = None;
    if qpc.no_sq() == 0 {
        if qpc.log_sq_size() > limits::LOG_QUEUE {
            return Err(Refusal::new(Status::LIM_ERR, syndrome::SQ_TOO_LONG));
        }
        send = Some(part(send_at, 64 << qpc.log_sq_size())?);
    }
    Ok((send, receive))
}

pub(super) fn destroy(call: &mut Call<'_>) -> Outcome {
    let qpn = QueryQpIn::from_prefix(call.input).qpn();
    find(call, qpn)?;
    let engine = call.fabric.engine;
    remove_qp(engine, call.slot()?, qpn);
    Ok(None)
}

/// Removes QP `qpn`, whatever it is doing.
pub(in super::super) fn remove_qp(engine: &dyn Engine, slot: &mut Slot, qpn: u32) {
    // A doorbell that was stored before this removal must not count as a stray one.
    engine.take_doorbells(&mut slot.state);
    slot.endpoint_of(qpn).disconnect(qpn);
    if let Some(qp) = slot.state.qps.remove(qpn)
        && let Some(uar) = slot.state.uars.get_mut(qp.uar)
    {
        uar.qps.retain(|user| user.qpn != qpn);
    }
    slot.state.forget_qp(qpn);
}

pub(super) fn query(call: &mut Call<'_>) -> Outcome {
    let qpn = QueryQpIn::from_prefix(call.input).qpn();
    let external = call.hca()?.execution == Execution::External;
    let qp = find(call, qpn)?;
    let reply = QueryQpOut::default()
        .with_qpc(qp.queried(!external))
        .with_ece(qp.ece);
    call.reply(reply.as_bytes());
    Ok(None)
}

pub(super) fn find<'a>(call: &'a mut Call<'_>, qpn: u32) -> Result<&'a mut Qp, Refusal> {
    let context = call.context;
    call.hca()?
        .qps
        .get_mut(qpn)
        .filter(|qp| qp.context == context)
        .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_QP))
}
