//! The end of a QP: everything that it has outstanding completes as flushed.

use crate::device::Event;
use crate::device::objects::qp::Route;
use crate::device::objects::work::Current;
use crate::device::state::{HcaState, Slot};
use crate::engine::completion;
use crate::engine::intake::fetch;
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};

/// Moves a QP to the error state and flushes what it has outstanding.
pub(crate) fn enter_error(slot: &mut Slot, qpn: u32) {
    completion::enter_error(&mut slot.state, qpn);
    flush(slot, qpn);
}

/// Flushes what a QP in the error state has outstanding: the operation in progress, the operations on the wire, posted send WQEs and
/// receive WQEs. If only its send queue is in error, the receive WQEs stay. The engine calls this again whenever more WQEs may have been
/// posted.
pub(in crate::engine) fn flush(slot: &mut Slot, qpn: u32) {
    let Some(qp) = slot.state.qps.get_mut(qpn) else {
        return;
    };
    if !matches!(qp.state, QpState::ERR | QpState::SQER) {
        return;
    }
    // After this, a send queue that failed has nothing left on the wire.
    let on_wire = matches!(qp.route, Route::Wire | Route::Datagram);
    if std::mem::take(&mut qp.wire_must_fail) && on_wire {
        let (wire, hca) = slot.wire_of(qpn);
        wire.endpoint().fail(qpn, hca);
    }
    let hca = &mut slot.state;
    let Some(qp) = hca.qps.get_mut(qpn) else {
        return;
    };
    if let Some(Current { work, .. }) = qp.send.current.take() {
        flush_send(hca, qpn, work.index, work.blocks, work.opcode);
    }
    flush_parked(hca, qpn);
    if let Some(qp) = hca.qps.get_mut(qpn)
        && let Some(doomed) = qp.send.doomed.take()
    {
        flush_send(hca, qpn, doomed.index, doomed.blocks, doomed.opcode);
    }
    flush_posted(hca, qpn);
    if hca.qps.get(qpn).is_some_and(|qp| qp.state == QpState::ERR) {
        flush_receives(hca, qpn);
    }
}

fn flush_send(hca: &mut HcaState, qpn: u32, index: u16, blocks: u16, opcode: WqeOpcode) {
    completion::fail_send(hca, qpn, index, blocks, opcode, Syndrome::WR_FLUSH_ERR);
}

/// Flushes the NOPs that waited for operations on the wire. All those operations are over now.
fn flush_parked(hca: &mut HcaState, qpn: u32) {
    while let Some(qp) = hca.qps.get_mut(qpn)
        && let Some((_, work)) = qp.send.parked.pop_front()
    {
        flush_send(hca, qpn, work.index, work.blocks, work.opcode);
    }
}

/// Flushes the send WQEs that were posted and not begun. It stops at a block that does not hold the WQE of its index: the length of that
/// WQE is unknown, so one completion stands for it and all WQEs after it.
fn flush_posted(hca: &mut HcaState, qpn: u32) {
    while let Some(qp) = hca.qps.get_mut(qpn)
        && qp.send.fetched != qp.send.posted
        && let Some(ring) = qp.send.ring
    {
        let index = qp.send.fetched;
        let ctrl: CtrlSeg = fetch::control(&ring, index);
        let left = qp.send.posted.wrapping_sub(index);
        let own = ctrl.index() == index && ctrl.qpn() == qpn;
        let blocks = match fetch::blocks(&ctrl) {
            blocks if own && (1..=left).contains(&blocks) => blocks,
            _ => left,
        };
        qp.send.fetched = index.wrapping_add(blocks);
        flush_send(hca, qpn, index, blocks, ctrl.opcode());
    }
}

/// Flushes the receive WQE that a message was using, and the receive WQEs of the QP's own queue. The WQEs of an SRQ stay for other QPs. The
/// owner of a QP with an SRQ gets an event instead: this QP takes no more WQEs from the SRQ.
fn flush_receives(hca: &mut HcaState, qpn: u32) {
    if let Some(qp) = hca.qps.get_mut(qpn)
        && let Some(receiving) = qp.receiving.take()
    {
        let (srqn, index) = (receiving.srqn, receiving.index);
        completion::fail_receive(hca, qpn, srqn, index, Syndrome::WR_FLUSH_ERR);
    }
    while let Some(qp) = hca.qps.get_mut(qpn) {
        let posted = qp.receive_record();
        let Some(queue) = &mut qp.receive else {
            break;
        };
        let index = queue.taken;
        // A counter that is ahead by more than the ring cannot be right.
        if u64::from(posted.wrapping_sub(index)) > queue.entries() || posted == index {
            return;
        }
        queue.taken = index.wrapping_add(1);
        completion::fail_receive(hca, qpn, None, index, Syndrome::WR_FLUSH_ERR);
    }
    if let Some(qp) = hca.qps.get_mut(qpn)
        && qp.shares_receives()
        && !std::mem::replace(&mut qp.notices.last_wqe, true)
    {
        let context = qp.context;
        hca.raise(context, Event::QpLastWqe(qpn));
    }
}
