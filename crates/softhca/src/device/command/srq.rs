//! Commands of shared receive queues and of XRC domains. There are two kinds of SRQ: receive memory pools (RMPs), which verbs calls basic
//! SRQs, and SRQs of XRC domains.
//!
//! `CREATE_SRQ` does not exist, as on devices that know receive memory pools (ISSI 1, as `mlx5_ib` calls it).

use crate::device::command::call::{Call, Outcome, Refusal, record_part, ring_start, umem_part};
use crate::device::command::syndrome;
use crate::device::memory::Region;
use crate::device::names::DevxObject;
use crate::device::objects::srq::{Srq, SrqKind, SrqOrder};
use crate::device::objects::xrcd::Xrcd;
use crate::device::state::HcaState;
use crate::device::state::users::{close_xrcd, xrcd_users};
use crate::device::{Event, limits};
use mlx5_prm::cmd::Status;
use mlx5_prm::srq::{
    ArmXrcSrqIn, CreateRmpIn, CreateXrcSrqIn, ModifyRmpIn, NumberIn, QueryRmpOut, QueryXrcSrqOut,
    Rmpc, Wq, XrcSrqc,
};

/// The places of the pieces of a queue, and its length.
struct Layout {
    pdn: u32,
    order: SrqOrder,
    umems: [u32; 2],
    offset: u64,
    page_offset: u32,
    record: u64,
    log_stride: u32,
    log_entries: u32,
    limit: u32,
}

pub(super) fn create_rmp(call: &mut Call<'_>) -> Outcome {
    call.need_input(CreateRmpIn::BYTES - 0x88)?;
    let input = CreateRmpIn::from_prefix(call.input);
    let (rmpc, wq) = (input.ctx(), input.ctx().wq());
    if rmpc.state() != Rmpc::STATE_RDY {
        return Err(Refusal::new(Status::BAD_RES_STATE, syndrome::SRQ_STATE));
    }
    let order = match wq.wq_type() {
        Wq::TYPE_LINKED_LIST => SrqOrder::List,
        Wq::TYPE_CYCLIC => SrqOrder::Ring,
        // The other types have strides: several messages share a WQE.
        _ => return Err(Refusal::bad_param(syndrome::SRQ_TYPE)),
    };
    // WQEs without a header are not among the capabilities of this device.
    if wq.wq_signature() != 0 || rmpc.basic_cyclic_rcv_wqe() != 0 {
        return Err(Refusal::bad_param(syndrome::SRQ_TYPE));
    }
    let layout = Layout {
        pdn: wq.pd(),
        order,
        umems: [wq.wq_umem_id(), wq.dbr_umem_id()],
        offset: wq.wq_umem_offset(),
        page_offset: wq.page_offset(),
        record: wq.dbr_addr(),
        log_stride: wq.log_wq_stride(),
        log_entries: wq.log_wq_sz(),
        limit: wq.lwm(),
    };
    let number = create(call, &layout, SrqKind::Basic)?;
    Ok(Some(DevxObject::Rmp(number)))
}

pub(super) fn create_xrc_srq(call: &mut Call<'_>) -> Outcome {
    call.need_input(0x5c)?;
    let input = CreateXrcSrqIn::from_prefix(call.input);
    let srqc = *input.xrc_srq_context_entry();
    if srqc.wq_signature() != 0 || srqc.cont_srq() != 0 || srqc.basic_cyclic_rcv_wqe() != 0 {
        return Err(Refusal::bad_param(syndrome::SRQ_TYPE));
    }
    let context = call.context;
    let hca = call.hca()?;
    find_xrcd(hca, srqc.xrcd(), context)?;
    let cqn = srqc.cqn();
    if hca.cqs.get(cqn).is_none_or(|cq| cq.context != context) {
        return Err(Refusal::bad_resource(syndrome::NO_SUCH_CQ));
    }
    let layout = Layout {
        pdn: srqc.pd(),
        order: SrqOrder::List,
        umems: [input.xrc_srq_umem_id(), srqc.dbr_umem_id()],
        offset: input.xrc_srq_umem_offset(),
        page_offset: srqc.page_offset(),
        record: srqc.dbr_addr(),
        log_stride: srqc.log_rq_stride() + 4,
        log_entries: srqc.log_xrc_srq_size(),
        limit: srqc.lwm(),
    };
    let kind = SrqKind::Xrc {
        xrcd: srqc.xrcd(),
        cqn,
        user_index: srqc.user_index(),
    };
    let number = create(call, &layout, kind)?;
    if srqc.user_index_equal_xrc_srqn() != 0
        && let Some(srq) = call.hca()?.srqs.get_mut(number)
        && let SrqKind::Xrc { user_index, .. } = &mut srq.kind
    {
        *user_index = number;
    }
    Ok(Some(DevxObject::XrcSrq(number)))
}

fn create(call: &mut Call<'_>, layout: &Layout, kind: SrqKind) -> Result<u32, Refusal> {
    const MIN_LOG_STRIDE: u32 = 5;
    const MAX_LOG_STRIDE: u32 = 4 + limits::LOG_SRQ_STRIDE;
    let context = call.context;
    let hca = call.hca()?;
    if hca.pds.get(layout.pdn) != Some(&context) {
        return Err(Refusal::bad_resource(syndrome::NO_SUCH_PD));
    }
    if layout.log_entries > limits::LOG_QUEUE
        || !(MIN_LOG_STRIDE..=MAX_LOG_STRIDE).contains(&layout.log_stride)
    {
        return Err(Refusal::new(Status::LIM_ERR, syndrome::SRQ_TOO_LONG));
    }
    let limit = limit(layout.limit, 1 << layout.log_entries)?;
    let start = ring_start(layout.offset, layout.page_offset)?;
    let stride = 1u64 << layout.log_stride;
    let [ring_umem, record_umem] = layout.umems;
    let bytes = stride << layout.log_entries;
    let outside = syndrome::QUEUE_OUTSIDE_UMEM;
    let ring: Region = umem_part(hca, context, ring_umem, start, bytes, outside)?;
    if !ring.address().is_multiple_of(64) {
        return Err(Refusal::bad_param(syndrome::QUEUE_MISALIGNED));
    }
    let record = record_part(hca, context, record_umem, layout.record)?;
    let number = hca
        .srqs
        .insert(Srq {
            context,
            pdn: layout.pdn,
            kind,
            order: layout.order,
            umems: layout.umems,
            ring,
            stride,
            record,
            next: 0,
            taken: 0,
            limit,
            broken: false,
        })
        .ok_or(Refusal::FULL)?;
    call.reply_number(number);
    Ok(number)
}

/// Returns `wanted` if it can be the limit of a queue of `entries` entries.
fn limit(wanted: u32, entries: u64) -> Result<u16, Refusal> {
    u16::try_from(wanted)
        .ok()
        .filter(|limit| u64::from(*limit) < entries || *limit == 0)
        .ok_or(Refusal::bad_param(syndrome::SRQ_LIMIT))
}

pub(super) fn modify_rmp(call: &mut Call<'_>) -> Outcome {
    let input = ModifyRmpIn::from_prefix(call.input);
    if input.rmp_state() != Rmpc::STATE_RDY || input.ctx().state() != Rmpc::STATE_RDY {
        return Err(Refusal::new(Status::BAD_RES_STATE, syndrome::SRQ_STATE));
    }
    find(call, input.rmpn(), false)?;
    if input.bitmask_lwm() != 0 {
        arm(call, input.rmpn(), input.ctx().wq().lwm())?;
    }
    Ok(None)
}

pub(super) fn arm_xrc_srq(call: &mut Call<'_>) -> Outcome {
    /// Value of `op_mod` for an XRC SRQ.
    const XRC_SRQ: u32 = 1;
    let input = ArmXrcSrqIn::from_prefix(call.input);
    if input.op_mod() != XRC_SRQ {
        return Err(Refusal::new(Status::BAD_OP, syndrome::UNKNOWN_OP_MOD));
    }
    find(call, input.xrc_srqn(), true)?;
    arm(call, input.xrc_srqn(), input.lwm())?;
    Ok(None)
}

/// Sets the limit of an SRQ. If the SRQ is below its limit already, it raises the event at once: its WQEs may be used up.
fn arm(call: &mut Call<'_>, number: u32, wanted: u32) -> Result<(), Refusal> {
    let hca = call.hca()?;
    let Some(srq) = hca.srqs.get_mut(number) else {
        return Err(Refusal::bad_resource(syndrome::NO_SUCH_SRQ));
    };
    srq.limit = limit(wanted, srq.entries())?;
    if srq.passes_limit() {
        let context = srq.context;
        hca.raise(context, Event::SrqLimit(number));
    }
    Ok(())
}

pub(super) fn query_rmp(call: &mut Call<'_>) -> Outcome {
    let number = NumberIn::from_prefix(call.input).number();
    let srq = find(call, number, false)?;
    let state = if srq.broken {
        Rmpc::STATE_ERR
    } else {
        Rmpc::STATE_RDY
    };
    let posted = srq.taken.wrapping_add(srq.available());
    let wq_type = match srq.order {
        SrqOrder::List => Wq::TYPE_LINKED_LIST,
        SrqOrder::Ring => Wq::TYPE_CYCLIC,
    };
    let wq = Wq::default()
        .with_wq_type(wq_type)
        .with_lwm(srq.limit.into())
        .with_pd(srq.pdn)
        .with_hw_counter(srq.taken.into())
        .with_sw_counter(posted.into())
        .with_log_wq_stride(srq.stride.trailing_zeros())
        .with_log_wq_sz(srq.entries().trailing_zeros());
    let rmpc = Rmpc::default().with_state(state).with_wq(wq);
    call.reply(QueryRmpOut::default().with_rmp_context(rmpc).as_bytes());
    Ok(None)
}

pub(super) fn query_xrc_srq(call: &mut Call<'_>) -> Outcome {
    let number = NumberIn::from_prefix(call.input).number();
    let srq = find(call, number, true)?;
    let SrqKind::Xrc {
        xrcd,
        cqn,
        user_index,
    } = srq.kind
    else {
        return Err(Refusal::bad_resource(syndrome::NO_SUCH_SRQ));
    };
    let state = if srq.broken {
        XrcSrqc::STATE_ERROR
    } else {
        XrcSrqc::STATE_GOOD
    };
    let srqc = XrcSrqc::default()
        .with_state(state)
        .with_log_xrc_srq_size(srq.entries().trailing_zeros())
        .with_log_rq_stride(srq.stride.trailing_zeros() - 4)
        .with_xrcd(xrcd)
        .with_cqn(cqn)
        .with_user_index(user_index)
        .with_pd(srq.pdn)
        .with_lwm(srq.limit.into())
        .with_wqe_cnt(srq.available().into());
    let reply = QueryXrcSrqOut::default().with_xrc_srq_context_entry(srqc);
    call.reply(reply.as_bytes());
    Ok(None)
}

pub(super) fn destroy_rmp(call: &mut Call<'_>) -> Outcome {
    destroy(call, false)
}

pub(super) fn destroy_xrc_srq(call: &mut Call<'_>) -> Outcome {
    destroy(call, true)
}

fn destroy(call: &mut Call<'_>, xrc: bool) -> Outcome {
    let number = NumberIn::from_prefix(call.input).number();
    find(call, number, xrc)?;
    let hca = call.hca()?;
    if hca.qps.iter().any(|(_, qp)| qp.srqn == Some(number)) {
        return Err(Refusal::new(Status::RES_BUSY, syndrome::SRQ_IN_USE));
    }
    remove_srq(hca, number);
    Ok(None)
}

/// Removes an SRQ. Messages that are using one of its WQEs lose that WQE.
pub(in crate::device) fn remove_srq(hca: &mut HcaState, number: u32) {
    for qpn in hca
        .qps
        .numbers(|qp| matches!(&qp.receiving, Some(wqe) if wqe.srqn == Some(number)))
    {
        if let Some(qp) = hca.qps.get_mut(qpn) {
            qp.receiving = None;
        }
    }
    hca.srqs.remove(number);
    hca.checker.forget(number);
}

fn find<'a>(call: &'a mut Call<'_>, number: u32, xrc: bool) -> Result<&'a mut Srq, Refusal> {
    let context = call.context;
    call.hca()?
        .srqs
        .get_mut(number)
        .filter(|srq| srq.context == context && (srq.kind != SrqKind::Basic) == xrc)
        .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_SRQ))
}

pub(super) fn alloc_xrcd(call: &mut Call<'_>) -> Outcome {
    let context = call.context;
    let xrcd = Xrcd {
        users: vec![context],
        file: None,
    };
    let number = call.hca()?.xrcds.insert(xrcd).ok_or(Refusal::FULL)?;
    call.reply_number(number);
    Ok(Some(DevxObject::Xrcd(number)))
}

pub(super) fn dealloc_xrcd(call: &mut Call<'_>) -> Outcome {
    let context = call.context;
    let number = NumberIn::from_prefix(call.input).number();
    let hca = call.hca()?;
    find_xrcd(hca, number, context)?;
    if xrcd_users(hca, number, context) != 0 {
        return Err(Refusal::new(Status::RES_BUSY, syndrome::XRCD_IN_USE));
    }
    close_xrcd(hca, number, context);
    Ok(None)
}

/// Refuses an XRC domain that is not open in this context.
pub(super) fn find_xrcd(hca: &HcaState, number: u32, context: u32) -> Result<(), Refusal> {
    hca.xrcds
        .get(number)
        .filter(|xrcd| xrcd.is_open_in(context))
        .map(|_| ())
        .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_XRCD))
}
