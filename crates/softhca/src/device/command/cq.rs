//! Commands of completion queues.

use super::super::memory::Region;
use super::super::state::HcaState;
use super::syndrome;
use crate::device::command::call::{
    Call, Outcome, Refusal, need_uar, record_part, ring_start, umem_part,
};
use crate::device::executor::execution::Execution;
use crate::device::limits;
use crate::device::names::DevxObject;
use crate::device::objects::arming::Arming;
use crate::device::objects::cq::Cq;
use mlx5_prm::cmd::Status;
use mlx5_prm::cq::{Cqc, CreateCqIn, ModifyCqIn, QueryCqIn, QueryCqOut};

/// Length of the input up to `cq_umem_id`.
const CREATE_BYTES: usize = 0x5c;

pub(super) fn create(call: &mut Call<'_>) -> Outcome {
    call.need_input(CREATE_BYTES)?;
    let input = CreateCqIn::from_prefix(call.input);
    let context = call.context;
    let cqc = *input.cqc();
    let hca = call.hca()?;
    let vectors = limits::FIRST_EQN..limits::FIRST_EQN + limits::COMPLETION_VECTORS;
    if !vectors.contains(&cqc.c_eqn()) {
        return Err(Refusal::bad_resource(syndrome::NO_SUCH_EQ));
    }
    need_uar(hca, context, cqc.uar_page())?;
    let start = ring_start(input.cq_umem_offset(), cqc.page_offset())?;
    let ring = ring(hca, context, &cqc, input.cq_umem_id(), start)?;
    let record = record_part(hca, context, cqc.dbr_umem_id(), cqc.dbr_addr())?;
    let cqn = hca
        .cqs
        .insert(Cq {
            context,
            uar: cqc.uar_page(),
            umems: [input.cq_umem_id(), cqc.dbr_umem_id()],
            ring,
            record,
            cqc: cqc.with_status(0),
            producer: 0,
            overrun: false,
            arming: Arming::new(0),
        })
        .ok_or(Refusal::FULL)?;
    // The first arming may store the word that software has left there. Its store to the UAR page may be overwritten by the arming of
    // another CQ before the engine looks. So the arm word is cleared, except for an external HCA, whose memory this process must not touch.
    if hca.execution == Execution::Engine
        && let Some(cq) = hca.cqs.get_mut(cqn)
    {
        cq.disarm();
    }
    if let Some(uar) = hca.uars.get_mut(cqc.uar_page()) {
        uar.cqs.push(cqn);
    }
    call.reply_number(cqn);
    Ok(Some(DevxObject::Cq(cqn)))
}

pub(super) fn destroy(call: &mut Call<'_>) -> Outcome {
    let cqn = QueryCqIn::from_prefix(call.input).cqn();
    find(call, cqn)?;
    let hca = call.hca()?;
    let used = hca
        .qps
        .iter()
        .any(|(_, qp)| qp.send_cqn == cqn || qp.receive_cqn == cqn)
        || hca.srqs.iter().any(|(_, srq)| srq.cqn() == Some(cqn));
    if used {
        return Err(Refusal::new(Status::RES_BUSY, syndrome::CQ_IN_USE));
    }
    remove_cq(hca, cqn);
    Ok(None)
}

/// Removes CQ `cqn`.
pub(in super::super) fn remove_cq(hca: &mut HcaState, cqn: u32) {
    if let Some(cq) = hca.cqs.remove(cqn)
        && let Some(uar) = hca.uars.get_mut(cq.uar)
    {
        uar.cqs.retain(|other| *other != cqn);
    }
    hca.faults.forget_cq(cqn);
    hca.checker.forget(cqn);
}

pub(super) fn query(call: &mut Call<'_>) -> Outcome {
    let cqn = QueryCqIn::from_prefix(call.input).cqn();
    let external = call.hca()?.execution == Execution::External;
    let cq = find(call, cqn)?;
    // The doorbell record of an external HCA may lie in memory that only a GPU reaches.
    let cqc = if external {
        cq.cqc.with_producer_counter(cq.produced())
    } else {
        cq.queried()
    };
    call.reply(QueryCqOut::default().with_cqc(cqc).as_bytes());
    Ok(None)
}

pub(super) fn modify(call: &mut Call<'_>) -> Outcome {
    /// Bits of `modify_field_select`.
    const PERIOD: u32 = 1 << 0;
    const MAX_COUNT: u32 = 1 << 1;
    const OI: u32 = 1 << 2;
    const RESIZE: u32 = 1;
    let input = ModifyCqIn::from_prefix(call.input);
    let select = input.modify_field_select();
    let external = call.hca()?.execution == Execution::External;
    if input.op_mod() == RESIZE && external {
        return Err(Refusal::bad_param(syndrome::EXTERNAL_RESIZE));
    }
    if input.op_mod() == RESIZE {
        return resize(call, &input);
    }
    if input.op_mod() != 0 || select & !(PERIOD | MAX_COUNT | OI) != 0 {
        return Err(Refusal::bad_param(syndrome::CQ_FIELD));
    }
    let cq = find(call, input.cqn())?;
    if select & PERIOD != 0 {
        cq.cqc.set_cq_period(input.cqc().cq_period());
    }
    if select & MAX_COUNT != 0 {
        cq.cqc.set_cq_max_count(input.cqc().cq_max_count());
    }
    if select & OI != 0 {
        cq.cqc.set_oi(input.cqc().oi());
    }
    Ok(None)
}

/// Moves a CQ to a new ring. The entries that software has not consumed stay in the old ring, which ends with an entry that says so.
fn resize(call: &mut Call<'_>, input: &ModifyCqIn) -> Outcome {
    call.need_input(CREATE_BYTES)?;
    let context = call.context;
    let cqn = input.cqn();
    let old = find(call, cqn)?.cqc;
    let cqc = old
        .with_log_cq_size(input.cqc().log_cq_size())
        .with_cqe_sz(input.cqc().cqe_sz());
    let hca = call.hca()?;
    let umem = input.cq_umem_id();
    let start = ring_start(input.cq_umem_offset(), input.cqc().page_offset())?;
    let ring = ring(hca, context, &cqc, umem, start)?;
    let cq = find(call, cqn)?;
    if cq.waiting() + 1 > cq.entries().min(1 << cqc.log_cq_size()) {
        return Err(Refusal::new(
            Status::BAD_RES_STATE,
            syndrome::CQ_FULL_FOR_RESIZE,
        ));
    }
    cq.resize(ring, umem, cqc);
    Ok(None)
}

/// Returns the ring of a CQ with context `cqc`, at `start` of a UMEM.
fn ring(hca: &HcaState, context: u32, cqc: &Cqc, umem: u32, start: u64) -> Result<Region, Refusal> {
    if cqc.log_cq_size() > limits::LOG_CQ_ENTRIES {
        return Err(Refusal::new(Status::LIM_ERR, syndrome::CQ_TOO_LONG));
    }
    if cqc.cqe_sz() > 1 {
        return Err(Refusal::bad_param(syndrome::CQE_SIZE));
    }
    let bytes = (Cq::entry_bytes(cqc) as u64) << cqc.log_cq_size();
    let outside = syndrome::QUEUE_OUTSIDE_UMEM;
    let ring = umem_part(hca, context, umem, start, bytes, outside)?;
    if !ring.address().is_multiple_of(64) {
        return Err(Refusal::bad_param(syndrome::QUEUE_MISALIGNED));
    }
    Ok(ring)
}

fn find<'a>(call: &'a mut Call<'_>, cqn: u32) -> Result<&'a mut Cq, Refusal> {
    let context = call.context;
    call.hca()?
        .cqs
        .get_mut(cqn)
        .filter(|cq| cq.context == context)
        .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_CQ))
}
