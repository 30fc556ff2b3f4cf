//! `CREATE_QP`, `DESTROY_QP`, `QUERY_QP`.

use super::super::context::DevxObject;
use super::super::memory::Region;
use super::super::qp::{Qp, ReceiveQueue, Route, SendQueue};
use super::super::state::{HcaState, Slot, UarUser, limits};
use super::super::syndrome;
use super::{Call, Outcome, Refusal, need_uar, record_part, ring_start, umem_part};
use crate::engine::doorbell;
use mlx5_prm::cmd::Status;
use mlx5_prm::qp::{CreateQpIn, QpState, Qpc, QueryQpIn, QueryQpOut};

/// Bytes of the input up to `wq_umem_id`.
const CREATE_BYTES: usize = 0x10c;

pub(super) fn create(call: &mut Call<'_>) -> Outcome {
    call.need_input(CREATE_BYTES)?;
    let input = CreateQpIn::from_prefix(call.input);
    let context = call.context;
    let qpc = *input.qpc();
    let hca = call.hca()?;
    check(hca, context, &qpc)?;
    let (send, receive) = rings(hca, context, &input)?;
    let record = record_part(hca, context, qpc.dbr_umem_id(), qpc.dbr_addr())?;
    let made = qpc.with_state(0);
    let qpn = hca
        .qps
        .insert(Qp {
            context,
            pdn: qpc.pd(),
            uar: qpc.uar_page(),
            send_cqn: qpc.cqn_snd(),
            receive_cqn: qpc.cqn_rcv(),
            umems: [input.wq_umem_id(), qpc.dbr_umem_id()],
            record,
            state: QpState::RST,
            qpc: made,
            made,
            send: SendQueue {
                ring: send,
                ..SendQueue::default()
            },
            receive,
            route: Route::None,
            wire_must_fail: false,
            send_psn: 0,
            receive_psn: 0,
        })
        .ok_or(Refusal::FULL)?;
    if let Some(uar) = hca.uars.get_mut(qpc.uar_page()) {
        uar.qps.push(UarUser {
            qpn,
            register: None,
        });
    }
    call.reply_number(qpn);
    Ok(Some(DevxObject::Qp(qpn)))
}

/// Refuses what this device does not have, and objects that do not exist.
fn check(hca: &HcaState, context: u32, qpc: &Qpc) -> Result<(), Refusal> {
    if qpc.st() != Qpc::ST_RC {
        return Err(Refusal::bad_param(syndrome::QP_SERVICE));
    }
    if qpc.send_dbr_mode() != 0 {
        return Err(Refusal::bad_param(syndrome::DBR_MODE));
    }
    if !matches!(qpc.rq_type(), Qpc::RQ_TYPE_REGULAR | Qpc::RQ_TYPE_NONE) {
        return Err(Refusal::bad_param(syndrome::RQ_TYPE));
    }
    if hca.pds.get(qpc.pd()) != Some(&context) {
        return Err(Refusal::bad_resource(syndrome::NO_SUCH_PD));
    }
    for cqn in [qpc.cqn_snd(), qpc.cqn_rcv()] {
        if hca.cqs.get(cqn).is_none_or(|cq| cq.context != context) {
            return Err(Refusal::bad_resource(syndrome::NO_SUCH_CQ));
        }
    }
    need_uar(hca, context, qpc.uar_page())?;
    Ok(())
}

/// The receive ring, if there is one, and directly behind it the send ring, if there is one.
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
            current: None,
        });
    }
    // The send ring begins on a WQEBB.
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
    remove_qp(call.slot()?, qpn);
    Ok(None)
}

/// Takes a queue pair away, whatever it is doing.
pub(in super::super) fn remove_qp(slot: &mut Slot, qpn: u32) {
    // A doorbell that was stored before this is not a stray one.
    doorbell::take_all(&mut slot.state);
    slot.wire.endpoint().disconnect(qpn);
    if let Some(qp) = slot.state.qps.remove(qpn)
        && let Some(uar) = slot.state.uars.get_mut(qp.uar)
    {
        uar.qps.retain(|user| user.qpn != qpn);
    }
    slot.state.forget_qp(qpn);
}

pub(super) fn query(call: &mut Call<'_>) -> Outcome {
    let qpn = QueryQpIn::from_prefix(call.input).qpn();
    let qpc = find(call, qpn)?.queried();
    call.reply(QueryQpOut::default().with_qpc(qpc).as_bytes());
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
