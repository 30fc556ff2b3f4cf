//! A QP's turn: run what its doorbell allows, in order, for a bounded time.

use super::loopback::{self, End, Step};
use super::{completion, decode, fetch, flush, overlap, umr};
use crate::device::checker::Finding;
use crate::device::qp::Route;
use crate::device::state::Fabric;
use crate::device::work::{Current, Local, Work};
use crate::engine::transport::{Operation, OperationKind};
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};

/// What a turn led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There is nothing to do until a doorbell, a completion or a command.
    Idle,
    /// There is more to do.
    More,
    /// There is nothing to do before this time.
    Wait(u64),
}

/// Bytes after which others have their turn.
const TURN_BYTES: u64 = 1 << 20;

/// Runs up to `budget` WQEs of a QP.
pub(super) fn turn(fabric: &mut Fabric, own: End, budget: usize, now_ns: u64) -> Turn {
    let mut bytes = 0;
    for _ in 0..budget {
        let Some(slot) = fabric.slot(own.hca) else {
            return Turn::Idle;
        };
        let Some(qp) = slot.state.qps.get_mut(own.qpn) else {
            return Turn::Idle;
        };
        match qp.state {
            QpState::RTS => {}
            QpState::ERR => {
                flush::flush(slot, own.qpn);
                return Turn::Idle;
            }
            // Drained: what has begun goes on, nothing new does.
            QpState::SQD if qp.send.current.is_some() => {}
            _ => return Turn::Idle,
        }
        let route = qp.route;
        let mut current = match qp.send.current.take() {
            Some(current) => current,
            None => {
                if qp.send.fetched == qp.send.posted {
                    return Turn::Idle;
                }
                if route == Route::Wire && !slot.wire.endpoint().has_room(own.qpn) {
                    return Turn::Idle; // a completion brings the QP back
                }
                match begin(fabric, own, now_ns) {
                    Begun::Operation(current) => current,
                    Begun::Over => continue,
                    Begun::Waits => return Turn::Idle, // a completion brings the QP back
                    Begun::Failed => return Turn::More,
                }
            }
        };
        let Route::Process(peer) = route else {
            submit(fabric, own, current);
            continue;
        };
        if current.not_before_ns > now_ns {
            let until = current.not_before_ns;
            keep(fabric, own, current);
            return Turn::Wait(until);
        }
        let before = current.done;
        let step = loopback::step(fabric, own, peer, &mut current, now_ns);
        bytes += current.done - before;
        match step {
            Step::Done(outcome) => end(fabric, own, &current.work, outcome, now_ns),
            Step::Again => keep(fabric, own, current),
            Step::Wait(until) => {
                current.not_before_ns = until;
                keep(fabric, own, current);
                return Turn::Wait(until);
            }
        }
        if bytes >= TURN_BYTES {
            return Turn::More;
        }
    }
    Turn::More
}

/// Puts an operation that is not over back.
fn keep(fabric: &mut Fabric, own: End, current: Current) {
    if let Some(qp) = fabric.hca(own.hca).and_then(|hca| hca.qps.get_mut(own.qpn)) {
        qp.send.current = Some(current);
    }
}

/// An operation inside the process is over.
fn end(
    fabric: &mut Fabric,
    own: End,
    work: &Work,
    outcome: Result<(), super::transport::Failure>,
    now_ns: u64,
) {
    let Some(hca) = fabric.hca(own.hca) else {
        return;
    };
    match outcome {
        Ok(()) => completion::complete_send(hca, own.qpn, work, now_ns),
        Err(failure) => {
            let syndrome = Syndrome(failure.syndrome());
            completion::fail_send(hca, own.qpn, work.index, work.blocks, work.opcode, syndrome);
            completion::enter_error(hca, own.qpn);
        }
    }
}

/// Hands an operation to the wire.
fn submit(fabric: &mut Fabric, own: End, current: Current) {
    let Some(slot) = fabric.slot(own.hca) else {
        return;
    };
    let endpoint = slot.wire.endpoint();
    let sent = match current.operation.kind {
        OperationKind::Write { .. } | OperationKind::Send { .. } => current.operation.bytes,
        OperationKind::Read { .. } | OperationKind::Atomic(_) => 0,
    };
    match endpoint.submit(own.qpn, current.work.clone(), current.operation) {
        Ok(()) => {
            slot.state.counters.bytes_sent += u64::from(sent);
            if let Some(qp) = slot.state.qps.get_mut(own.qpn) {
                qp.send.submitted += 1;
            }
        }
        // No room after all: it stays in progress and is offered again after the next completion.
        Err(_) => keep(fabric, own, current),
    }
}

/// What became of a fetched WQE.
enum Begun {
    Operation(Current),
    /// A NOP: complete, or waiting for those before it. A UMR: carried out.
    Over,
    /// It begins when those before it are over; it has not been taken.
    Waits,
    Failed,
}

/// Fetches and decodes the next WQE.
fn begin(fabric: &mut Fabric, own: End, now_ns: u64) -> Begun {
    let qpn = own.qpn;
    let Some(hca) = fabric.hca(own.hca) else {
        return Begun::Failed;
    };
    let Some(qp) = hca.qps.get(qpn) else {
        return Begun::Failed;
    };
    let (index, posted) = (qp.send.fetched, qp.send.posted);
    let Some(ring) = qp.send.ring else {
        return Begun::Failed;
    };
    let fetched = match fetch::fetch(hca, qpn, &ring, index, posted) {
        Ok(fetched) => fetched,
        Err(bad) => {
            completion::fail_send(hca, qpn, index, 1, bad.ctrl.opcode(), bad.syndrome);
            // Where the next WQE begins is not known: nothing behind this one can be flushed.
            if let Some(qp) = hca.qps.get_mut(qpn) {
                qp.send.fetched = posted;
                qp.send.retired = posted;
            }
            completion::enter_error(hca, qpn);
            return Begun::Failed;
        }
    };
    let opcode = fetched.ctrl.opcode();
    if let Some(qp) = hca.qps.get_mut(qpn) {
        if opcode == WqeOpcode::UMR && qp.send.completed != qp.send.submitted {
            return Begun::Waits;
        }
        qp.send.fetched = index.wrapping_add(fetched.blocks);
    }
    hca.counters.wqes += 1;
    let signalled = fetched.ctrl.fm_ce_se & CtrlSeg::CE_MASK == CtrlSeg::CE_ALWAYS;
    if opcode == WqeOpcode::UMR {
        let work = Work {
            index,
            blocks: fetched.blocks,
            opcode,
            signalled,
            bytes: 0,
            local: Local::Nothing,
        };
        return match umr::run(hca, qpn, &fetched.ctrl, fetched.bytes) {
            Ok(()) => {
                completion::complete_send(hca, qpn, &work, now_ns);
                Begun::Over
            }
            Err(syndrome) => {
                completion::fail_send(hca, qpn, index, work.blocks, opcode, syndrome);
                completion::enter_error(hca, qpn);
                Begun::Failed
            }
        };
    }
    let (operation, local) = match decode::decode(&fetched.ctrl, &hca.wqe[..fetched.bytes]) {
        Ok(decoded) => decoded,
        Err(error) => {
            hca.checker.note(Finding::WqeSegment, qpn, || {
                format!("QP {qpn:#x}: WQE {index} ({opcode}): {error}")
            });
            let syndrome = if error.is_length() {
                Syndrome::LOCAL_LENGTH_ERR
            } else {
                Syndrome::LOCAL_QP_OP_ERR
            };
            completion::fail_send(hca, qpn, index, fetched.blocks, opcode, syndrome);
            completion::enter_error(hca, qpn);
            return Begun::Failed;
        }
    };
    count(&mut hca.counters, operation.as_ref(), &local);
    if let Some(operation) = &operation {
        overlap::begun(hca, qpn, index, operation);
    }
    let work = Work {
        index,
        blocks: fetched.blocks,
        opcode,
        signalled,
        bytes: operation.map_or(0, |operation| operation.bytes),
        local,
    };
    match operation {
        Some(operation) => Begun::Operation(Current::new(work, operation)),
        None => {
            if let Some(qp) = hca.qps.get_mut(qpn)
                && qp.send.completed != qp.send.submitted
            {
                let after = qp.send.submitted;
                qp.send.parked.push_back((after, work));
            } else {
                completion::complete_send(hca, qpn, &work, now_ns);
            }
            Begun::Over
        }
    }
}

fn count(counters: &mut crate::device::Counters, operation: Option<&Operation>, local: &Local) {
    match operation.map(|operation| operation.kind) {
        Some(OperationKind::Write { .. }) => {
            counters.write_requests += 1;
            counters.inline_write_requests += u64::from(matches!(local, Local::Inline(_)));
        }
        Some(OperationKind::Read { .. }) => counters.read_requests += 1,
        Some(OperationKind::Atomic(_)) => counters.atomic_requests += 1,
        Some(OperationKind::Send { .. }) | None => {}
    }
}
