//! The end of a QP: everything that it has outstanding completes as flushed.

use super::{completion, fetch};
use crate::device::qp::Route;
use crate::device::state::{HcaState, Slot};
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::CtrlSeg;

/// Moves a QP to the error state and flushes what it has outstanding.
pub(crate) fn enter_error(slot: &mut Slot, qpn: u32) {
    completion::enter_error(&mut slot.state, qpn);
    flush(slot, qpn);
}

/// Flushes what a QP in the error state has outstanding: the operation in progress, those on the wire, posted send WQEs,
/// receive WQEs. Called again whenever more may have been posted.
pub(super) fn flush(slot: &mut Slot, qpn: u32) {
    let Some(qp) = slot.state.qps.get_mut(qpn) else {
        return;
    };
    if qp.state != QpState::ERR {
        return;
    }
    if std::mem::take(&mut qp.wire_must_fail) && qp.route == Route::Wire {
        slot.wire.endpoint().fail(qpn, &mut slot.state);
    }
    let hca = &mut slot.state;
    let Some(qp) = hca.qps.get_mut(qpn) else {
        return;
    };
    if let Some(current) = qp.send.current.take() {
        let work = current.work;
        completion::fail_send(
            hca,
            qpn,
            work.index,
            work.blocks,
            work.opcode,
            Syndrome::WR_FLUSH_ERR,
        );
    }
    flush_parked(hca, qpn);
    flush_posted(hca, qpn);
    flush_receives(hca, qpn);
}

/// NOPs that waited for operations on the wire; those are all over now.
fn flush_parked(hca: &mut HcaState, qpn: u32) {
    while let Some(qp) = hca.qps.get_mut(qpn)
        && let Some((_, work)) = qp.send.parked.pop_front()
    {
        completion::fail_send(
            hca,
            qpn,
            work.index,
            work.blocks,
            work.opcode,
            Syndrome::WR_FLUSH_ERR,
        );
    }
}

/// Send WQEs that were posted and not begun. A block that holds no WQE of this index ends it: its length is unknown.
fn flush_posted(hca: &mut HcaState, qpn: u32) {
    while let Some(qp) = hca.qps.get_mut(qpn)
        && qp.send.fetched != qp.send.posted
        && let Some(ring) = qp.send.ring
    {
        let index = qp.send.fetched;
        let ctrl: CtrlSeg = fetch::control(&ring, index);
        let left = qp.send.posted.wrapping_sub(index);
        let blocks = fetch::blocks(&ctrl);
        if ctrl.index() != index || blocks == 0 || blocks > left {
            qp.send.fetched = qp.send.posted;
            qp.send.retired = qp.send.posted;
            return;
        }
        qp.send.fetched = index.wrapping_add(blocks);
        completion::fail_send(
            hca,
            qpn,
            index,
            blocks,
            ctrl.opcode(),
            Syndrome::WR_FLUSH_ERR,
        );
    }
}

fn flush_receives(hca: &mut HcaState, qpn: u32) {
    while let Some(qp) = hca.qps.get_mut(qpn) {
        let posted = qp.receive_record();
        let Some(queue) = &mut qp.receive else {
            return;
        };
        queue.current = None;
        let index = queue.taken;
        // More than a ring ahead is no counter of this queue.
        if u64::from(posted.wrapping_sub(index)) > queue.entries() || posted == index {
            return;
        }
        queue.taken = index.wrapping_add(1);
        completion::fail_receive(hca, qpn, index, Syndrome::WR_FLUSH_ERR);
    }
}
