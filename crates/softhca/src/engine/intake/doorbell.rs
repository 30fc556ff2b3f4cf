//! Doorbells: this module takes them from the UAR registers and checks them against the doorbell record, which says how far to run.

use super::scrutiny;
use crate::device::Execution;
use crate::device::check::Finding;
use crate::device::objects::qp::Qp;
use crate::device::objects::qp_state;
use crate::device::objects::watch::Look;
use crate::device::state::HcaState;
use mlx5_prm::doorbell::{doorbell_next, doorbell_qpn};

/// Takes all doorbells of an HCA.
pub(crate) fn take_all(hca: &mut HcaState) {
    if hca.execution == Execution::External {
        // An executor takes these doorbells, and their records lie in its memory: `Fabric::new_life` takes them.
        return;
    }
    hca.watch.choose(&hca.uars, Look::Everywhere);
    take(hca);
}

/// Takes the doorbells of the UAR pages that are due. Returns whether it found one.
pub(in crate::engine) fn take(hca: &mut HcaState) -> bool {
    let mut rung = std::mem::take(&mut hca.rung);
    rung.clear();
    for &page_id in hca.watch.due() {
        if let Some(uar) = hca.uars.get(page_id) {
            uar.page
                .take(|register, value| rung.push((page_id, register, value)));
        }
    }
    for &(page_id, register, value) in &rung {
        hca.watch.found(page_id);
        ring(hca, page_id, register, value);
    }
    let any = !rung.is_empty();
    hca.rung = rung;
    any
}

/// Handles the doorbell `word` that `register` holds. The register holds only the last doorbell that was stored. Another QP that may use
/// this register may have been rung just before, so each such QP whose doorbell record has moved runs as well.
fn ring(hca: &mut HcaState, page_id: u32, register: usize, word: u64) {
    let qpn = doorbell_qpn(word);
    hca.counters.doorbells += 1;
    let mut users = match hca.uars.get_mut(page_id) {
        Some(uar) => std::mem::take(&mut uar.qps),
        None => Vec::new(),
    };
    let mut known = false;
    for user in &mut users {
        if user.qpn == qpn {
            known = true;
            user.register = Some(register);
            if !takes_word(hca, qpn, word) {
                scrutiny::rung(hca, qpn, word);
            }
            look(hca, qpn);
        } else if user.register.is_none_or(|other| other == register) && has_moved(hca, user.qpn) {
            look(hca, user.qpn);
        }
    }
    if let Some(uar) = hca.uars.get_mut(page_id) {
        uar.qps = users;
    }
    if !known {
        hca.checker.note(Finding::DoorbellStray, qpn, || {
            format!(
                "a doorbell in register {register} of UAR page {page_id:#x} names QP {qpn:#x}, which does not use that page"
            )
        });
    }
}

/// Takes the counter from doorbell `word` if QP `qpn` has no doorbell record: then the doorbell itself says how far to run. Returns whether
/// the QP is of this kind.
fn takes_word(hca: &mut HcaState, qpn: u32, word: u64) -> bool {
    let Some(qp) = hca.qps.get_mut(qpn) else {
        return false;
    };
    if qp.send.rung.is_none() {
        return false;
    }
    if !qp_state::takes_doorbells(qp.state) {
        return true;
    }
    qp.send.rung = Some(doorbell_next(word));
    true
}

/// Returns whether QP `qpn` takes doorbells and its doorbell record has changed.
fn has_moved(hca: &HcaState, qpn: u32) -> bool {
    hca.qps.get(qpn).is_some_and(record_has_moved)
}

fn record_has_moved(qp: &Qp) -> bool {
    qp_state::takes_doorbells(qp.state)
        && qp.send.ring.is_some()
        && qp.send_record() != qp.send.posted
}

/// Looks at the doorbell record of every QP: in lax mode a changed record is enough, without a doorbell. Returns whether one has changed.
pub(in crate::engine) fn look_at_records(hca: &mut HcaState) -> bool {
    let moved = hca.qps.numbers(record_has_moved);
    for &qpn in &moved {
        look(hca, qpn);
    }
    !moved.is_empty()
}

/// Takes over the send counter of the doorbell record, or reports what is wrong with the counter.
fn look(hca: &mut HcaState, qpn: u32) {
    let Some(qp) = hca.qps.get_mut(qpn) else {
        return;
    };
    if !qp_state::takes_doorbells(qp.state) {
        return;
    }
    let posted = qp.send_record();
    match check(qp, posted) {
        Ok(()) => accept(hca, qpn, posted),
        Err(wrong) => {
            let (before, fetched, retired) = (qp.send.posted, qp.send.fetched, qp.send.retired);
            let depth = qp.send.depth();
            let source = match &mut qp.send.rung {
                Some(rung) => {
                    if matches!(wrong, Wrong::Backwards) {
                        *rung = before;
                    }
                    "doorbell"
                }
                None => "doorbell record",
            };
            match wrong {
                Wrong::Backwards => {
                    hca.checker.note(Finding::DoorbellBackwards, qpn, || {
                        format!("QP {qpn:#x}: the {source} went back from {before} to {posted}")
                    });
                    // Nothing new may run: the earlier limit stays.
                    hca.schedule(qpn);
                }
                Wrong::BeyondRing => {
                    hca.checker.note(Finding::DoorbellBeyondRing, qpn, || {
                        format!(
                            "QP {qpn:#x}: the {source} says {posted}, but the device is at {fetched} and the ring \
                             has {depth} WQEBBs"
                        )
                    });
                    accept(hca, qpn, posted);
                }
                Wrong::NotReset => {
                    hca.checker.note(Finding::DoorbellBeyondRing, qpn, || {
                        format!(
                            "QP {qpn:#x}: the first {source} says {posted}, but the ring has {depth} WQEBBs: a new QP and a \
                             reset begin at 0"
                        )
                    });
                    accept(hca, qpn, posted);
                }
                Wrong::Reused => {
                    hca.checker.note(Finding::RingReusedEarly, qpn, || {
                        format!(
                            "QP {qpn:#x}: the {source} says {posted}, but WQE {retired} is not complete and the \
                             ring has {depth} WQEBBs: its slot was reused too early"
                        )
                    });
                    accept(hca, qpn, posted);
                }
            }
        }
    }
}

fn accept(hca: &mut HcaState, qpn: u32, posted: u16) {
    if let Some(qp) = hca.qps.get_mut(qpn) {
        let before = std::mem::replace(&mut qp.send.posted, posted);
        qp.send.begun = true;
        scrutiny::posted(hca, qpn, before, posted);
    }
    hca.schedule(qpn);
}

/// The defect of a send counter.
enum Wrong {
    Backwards,
    /// The counter has passed slots whose WQEs were not fetched yet, so software has overwritten them.
    BeyondRing,
    /// The first counter since the QP was made or reset is larger than the ring: software cannot have posted so much.
    NotReset,
    /// The counter has passed slots whose WQEs are not complete yet, so software has overwritten them.
    Reused,
}

fn check(qp: &Qp, posted: u16) -> Result<(), Wrong> {
    let send = &qp.send;
    let depth = send.depth();
    // The counter of a new or reset QP begins at 0. So a first counter beyond the ring did not begin there.
    if !send.begun && posted > depth {
        return Err(Wrong::NotReset);
    }
    // The counter is modulo 2^16. One that is ahead by half of that or more has in fact gone back.
    if posted.wrapping_sub(send.posted) >= 0x8000 && posted != send.posted {
        return Err(Wrong::Backwards);
    }
    if posted.wrapping_sub(send.fetched) > depth {
        return Err(Wrong::BeyondRing);
    }
    if posted.wrapping_sub(send.retired) > depth {
        return Err(Wrong::Reused);
    }
    Ok(())
}
