//! Entries of completion queues: written now, late or not at all, and what a full queue means for its QPs.

use super::arming;
use super::error_state::enter_error;
use crate::device::Event;
use crate::device::check::Finding;
use crate::device::faults::EntryFate;
use crate::device::objects::cq::Overrun;
use crate::device::state::HcaState;
use mlx5_prm::cqe::{Cqe64, CqeOpcode};
use mlx5_prm::qp::QpState;

/// Writes an entry to CQ `cqn`, unless a fault drops the entry or delays it.
pub(super) fn push(hca: &mut HcaState, cqn: u32, entry: [u8; 64]) {
    if hca.faults.spare_entries() {
        return write(hca, cqn, entry);
    }
    // The QP number is at the same place in entries of all kinds.
    let qpn = bytemuck::cast::<_, Cqe64>(entry).sop_drop_qpn.get() & 0xff_ffff;
    match hca.faults.judge_entry(hca.now_ns, cqn, qpn) {
        EntryFate::Write => write(hca, cqn, entry),
        EntryFate::Drop => {}
        EntryFate::Hold(due_ns) => hca.faults.hold(due_ns, cqn, entry),
    }
}

/// Writes the entries that a fault has delayed and that are due.
pub(in crate::engine) fn write_late(hca: &mut HcaState) {
    while let Some((cqn, entry)) = hca.faults.due_entry(hca.now_ns) {
        write(hca, cqn, entry);
    }
}

/// Writes an entry to CQ `cqn`. If the CQ overruns, its QPs fail.
fn write(hca: &mut HcaState, cqn: u32, entry: [u8; 64]) {
    if hca.dead {
        return;
    }
    let Some(cq) = hca.cqs.get_mut(cqn) else {
        return;
    };
    match cq.push(entry) {
        Ok(written) => {
            hca.counters.cqes += u64::from(written);
            hca.news |= written;
            if written {
                /// Bit of `op_own`: the sender asked for an event.
                const SOLICITED: u8 = 1 << 1;
                let failed = entry[63] >> 4 >= CqeOpcode::REQ_ERR.0;
                arming::entry_written(hca, cqn, failed || entry[63] & SOLICITED != 0);
            }
        }
        Err(overrun) => overran(hca, cqn, &overrun),
    }
}

/// Reports that CQ `cqn` was full, and fails its QPs.
pub(in crate::engine) fn overran(hca: &mut HcaState, cqn: u32, overrun: &Overrun) {
    let Some(context) = hca.cqs.get(cqn).map(|cq| cq.context) else {
        return;
    };
    hca.checker.note(Finding::CqOverrun, cqn, || {
        format!(
            "CQ {cqn:#x} overran: {} entries, {} written and {} consumed",
            overrun.entries, overrun.producer, overrun.consumer
        )
    });
    hca.raise(context, Event::CqError(cqn));
    for qpn in hca
        .qps
        .numbers(|qp| qp.send_cqn == cqn || qp.receive_cqn == cqn)
    {
        fatal(hca, qpn);
    }
}

/// Raises the event for a QP that the device cannot go on with, and moves the QP to the error state.
fn fatal(hca: &mut HcaState, qpn: u32) {
    if let Some(qp) = hca.qps.get(qpn).filter(|qp| qp.state != QpState::ERR) {
        let context = qp.context;
        hca.raise(context, Event::QpFatal(qpn));
    }
    enter_error(hca, qpn);
}
