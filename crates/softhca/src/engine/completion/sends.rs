//! The end of send WQEs.

use super::entry::push;
use super::error_state::enter_error;
use super::vendor;
use crate::device::objects::work::Work;
use crate::device::state::HcaState;
use crate::engine::intake::scrutiny;
use crate::engine::send::overlap;
use mlx5_prm::be::{Be16, Be32, Be64};
use mlx5_prm::cqe::{Cqe64, CqeOpcode, ErrCqe, Syndrome};
use mlx5_prm::wqe::WqeOpcode;

/// Ends a send WQE that succeeded, unless a fault asks for its failure. Writes its completion entry if it is signalled.
pub(in crate::engine) fn complete_send(hca: &mut HcaState, qpn: u32, work: &Work, now_ns: u64) {
    over(hca, qpn, work.index, work.blocks);
    let Some(qp) = hca.qps.get_mut(qpn) else {
        return;
    };
    let asked_for = if qp.send.failed_by_fault {
        Some(Syndrome::WR_FLUSH_ERR)
    } else {
        hca.faults.fail_send(qpn).map(Syndrome)
    };
    if let Some(syndrome) = asked_for {
        qp.send.failed_by_fault = true;
        fail_send(hca, qpn, work.index, work.blocks, work.opcode, syndrome);
        enter_error(hca, qpn);
        return;
    }
    qp.send.retired = work.index.wrapping_add(work.blocks);
    if !work.signalled {
        return;
    }
    let cqe = Cqe64 {
        srqn_uidx: Be32::new(qp.qpc.user_index()),
        byte_cnt: Be32::new(work.bytes),
        timestamp: Be64::new(now_ns),
        sop_drop_qpn: Be32::new(u32::from(work.opcode.0) << 24 | qpn),
        wqe_counter: Be16::new(work.index),
        op_own: CqeOpcode::REQ.0 << 4,
        ..Cqe64::default()
    };
    let cqn = qp.send_cqn;
    push(hca, cqn, bytemuck::cast(cqe));
}

/// Notes that a send WQE is over. Software may use its slot again as soon as it sees the completion.
fn over(hca: &mut HcaState, qpn: u32, index: u16, blocks: u16) {
    scrutiny::completed(hca, qpn, index, blocks);
    overlap::ended(hca, qpn, index);
}

/// Ends a send WQE that has failed or is flushed. The caller moves the QP to the error state.
pub(in crate::engine) fn fail_send(
    hca: &mut HcaState,
    qpn: u32,
    index: u16,
    blocks: u16,
    opcode: WqeOpcode,
    syndrome: Syndrome,
) {
    over(hca, qpn, index, blocks);
    let Some(qp) = hca.qps.get_mut(qpn) else {
        return;
    };
    qp.send.retired = index.wrapping_add(blocks);
    let err = ErrCqe {
        srqn_uidx: Be32::new(qp.qpc.user_index()),
        vendor_err_synd: if syndrome == Syndrome::WR_FLUSH_ERR {
            vendor::FLUSHED
        } else {
            vendor::FAILED
        },
        syndrome: syndrome.0,
        s_wqe_opcode_qpn: Be32::new(u32::from(opcode.0) << 24 | qpn),
        wqe_counter: Be16::new(index),
        op_own: CqeOpcode::REQ_ERR.0 << 4,
        ..ErrCqe::default()
    };
    let cqn = qp.send_cqn;
    hca.counters.error_cqes += 1;
    push(hca, cqn, bytemuck::cast(err));
}
