//! The turn of a QP: its WQEs go on, one after the other, for a bounded time.

use super::begin::{Begun, begin};
use super::loopback::{self, Step};
use super::{End, datagram, express, pending};
use crate::device::Event;
use crate::device::objects::qp::{Doomed, Route};
use crate::device::objects::work::{Current, Work};
use crate::device::state::{Fabric, HcaState};
use crate::engine::completion::{self, flush};
use crate::transport::{Device, Failure, OperationKind, Target};
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::qp::QpState;
use std::ops::ControlFlow::{self, Break, Continue};

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum TurnOutcome {
    /// The QP has nothing to do until a doorbell, a completion or a command.
    Idle,
    /// The QP has more to do.
    More,
    /// The QP has nothing to do before this time.
    Wait(u64),
}

/// The number of bytes after which other QPs have their turn.
const TURN_BYTES: u64 = 1 << 20;

/// Runs up to `budget` WQEs of a QP.
pub(in crate::engine) fn turn(
    fabric: &mut Fabric,
    own: End,
    budget: usize,
    now_ns: u64,
) -> TurnOutcome {
    let mut bytes = 0;
    let mut left = budget;
    while left > 0 && bytes < TURN_BYTES {
        if let Some(ran) = express::run(fabric, own, left, TURN_BYTES - bytes, now_ns) {
            left -= ran.wqes;
            bytes += ran.bytes;
            if left == 0 || bytes >= TURN_BYTES {
                break;
            }
        }
        left -= 1;
        match go_on(fabric, own, now_ns) {
            Continue(moved) => bytes += moved,
            Break(outcome) => return outcome,
        }
    }
    TurnOutcome::More
}

/// Carries the operation in progress, or the next WQE, a step further. Returns the number of bytes moved, or the outcome of the turn if it
/// ends here.
fn go_on(fabric: &mut Fabric, own: End, now_ns: u64) -> ControlFlow<TurnOutcome, u64> {
    let Some((route, mut current)) = due(fabric, own, now_ns)? else {
        return Continue(0);
    };
    let peer = match way(fabric, own, route, &current) {
        Delivery::Process(peer) => peer,
        Delivery::Wire => {
            submit(fabric, own, current);
            return Continue(0);
        }
        Delivery::Later => {
            keep(fabric, own, current);
            return Break(TurnOutcome::Idle); // a completion brings the QP back
        }
    };
    if current.not_before_ns > now_ns {
        let until = current.not_before_ns;
        return wait(fabric, own, current, until);
    }
    let before = current.done;
    let step = match current.operation.to {
        _ if current.carried_out => Step::Done(Ok(())),
        Target::Datagram(to) => datagram::step(fabric, own, peer, &to, &current, now_ns),
        Target::Connected | Target::Srq(_) => {
            loopback::step(fabric, own, peer, &mut current, now_ns)
        }
    };
    let moved = current.done - before;
    match step {
        Step::Done(outcome) => {
            if let Some(until) = pending::told_at(fabric, own, &current, outcome.is_ok()) {
                current.carried_out = true;
                return wait(fabric, own, current, until);
            }
            end(fabric, own, &current.work, outcome, now_ns);
        }
        Step::Again => keep(fabric, own, current),
        Step::Wait(until) => return wait(fabric, own, current, until),
    }
    Continue(moved)
}

/// Takes the operation in progress or, if there is none, begins the next WQE. Returns it with the route of the QP, `None` if the WQE is
/// over already, or the outcome of the turn if the QP has nothing to go on with.
fn due(
    fabric: &mut Fabric,
    own: End,
    now_ns: u64,
) -> ControlFlow<TurnOutcome, Option<(Route, Current)>> {
    let Some(slot) = fabric.slot(own.hca) else {
        return Break(TurnOutcome::Idle);
    };
    let Some(qp) = slot.state.qps.get_mut(own.qpn) else {
        return Break(TurnOutcome::Idle);
    };
    match qp.state {
        QpState::RTS | QpState::SQD => {}
        QpState::ERR | QpState::SQER => {
            flush::flush(slot, own.qpn);
            return Break(TurnOutcome::Idle);
        }
        _ => return Break(TurnOutcome::Idle),
    }
    if let Some(doomed) = qp.send.doomed {
        if qp.send.is_outstanding() {
            return Break(TurnOutcome::Idle); // a completion brings the QP back
        }
        qp.send.doomed = None;
        fail(&mut slot.state, own.qpn, &doomed);
        return Break(TurnOutcome::More);
    }
    // The send queue drains: an operation that has begun goes on, no other begins.
    if qp.state == QpState::SQD && qp.send.current.is_none() {
        tell_drained(&mut slot.state, own.qpn);
        return Break(TurnOutcome::Idle);
    }
    let route = qp.route;
    if let Some(current) = qp.send.current.take() {
        return Continue(Some((route, current)));
    }
    if qp.send.fetched == qp.send.posted {
        return Break(TurnOutcome::Idle);
    }
    if route == Route::Wire && !slot.endpoint_of(own.qpn).has_room(own.qpn) {
        return Break(TurnOutcome::Idle); // a completion brings the QP back
    }
    match begin(fabric, own, now_ns) {
        Begun::Operation(current) => Continue(Some((route, current))),
        Begun::Over => Continue(None),
        Begun::Waits => Break(TurnOutcome::Idle), // a completion brings the QP back
        Begun::Failed => Break(TurnOutcome::More),
    }
}

/// The way by which an operation gets to its peer.
enum Delivery {
    /// The operation goes by memory, to the HCA of this process with this number.
    Process(usize),
    Wire,
    /// The operation waits until the operations that are on the wire are over.
    Later,
}

/// Returns the way of an operation. Datagrams of one QP may go both ways, but they end in the order in which they were posted.
fn way(fabric: &mut Fabric, own: End, route: Route, current: &Current) -> Delivery {
    let to = match (route, current.operation.to) {
        (Route::Process(peer), _) => return Delivery::Process(peer),
        (Route::Datagram, Target::Datagram(to)) => to,
        _ => return Delivery::Wire,
    };
    let there = fabric
        .hca(own.hca)
        .filter(|hca| hca.loopback)
        .and_then(|hca| hca.destination(&current.work, &to));
    let peer = there.and_then(|there| fabric.by_address(there.address));
    let Some(slot) = fabric.slot(own.hca) else {
        return Delivery::Later;
    };
    let outstanding = slot
        .state
        .qps
        .get(own.qpn)
        .is_some_and(|qp| qp.send.is_outstanding());
    match peer {
        Some(peer) if !outstanding => Delivery::Process(peer),
        None if slot.endpoint_of(own.qpn).has_room(own.qpn) => Delivery::Wire,
        _ => Delivery::Later,
    }
}

/// Raises the event that everything begun is over, once for each time that the QP was asked to drain.
fn tell_drained(hca: &mut HcaState, qpn: u32) {
    if let Some(qp) = hca.qps.get_mut(qpn)
        && qp.send.is_drained()
        && std::mem::take(&mut qp.notices.drain)
    {
        let context = qp.context;
        hca.raise(context, Event::QpSqDrained(qpn));
    }
}

/// Fails WQE `wqe`, which cannot be run.
fn fail(hca: &mut HcaState, qpn: u32, wqe: &Doomed) {
    completion::fail_send(hca, qpn, wqe.index, wqe.blocks, wqe.opcode, wqe.syndrome);
    completion::send_failed(hca, qpn);
}

/// Puts back an operation that is not over.
fn keep(fabric: &mut Fabric, own: End, current: Current) {
    if let Some(qp) = fabric.hca(own.hca).and_then(|hca| hca.qps.get_mut(own.qpn)) {
        qp.send.current = Some(current);
    }
}

/// Puts back an operation that cannot go on before `until`. The turn ends with that.
fn wait(
    fabric: &mut Fabric,
    own: End,
    mut current: Current,
    until: u64,
) -> ControlFlow<TurnOutcome, u64> {
    current.not_before_ns = until;
    keep(fabric, own, current);
    Break(TurnOutcome::Wait(until))
}

/// Ends an operation between QPs of this process.
fn end(fabric: &mut Fabric, own: End, work: &Work, outcome: Result<(), Failure>, now_ns: u64) {
    let Some(hca) = fabric.hca(own.hca) else {
        return;
    };
    match outcome {
        Ok(()) => completion::complete_send(hca, own.qpn, work, now_ns),
        Err(failure) => {
            let syndrome = Syndrome(failure.syndrome());
            completion::fail_send(hca, own.qpn, work.index, work.blocks, work.opcode, syndrome);
            completion::send_failed(hca, own.qpn);
        }
    }
}

/// Hands an operation to the wire.
fn submit(fabric: &mut Fabric, own: End, current: Current) {
    let Some(slot) = fabric.slot(own.hca) else {
        return;
    };
    let endpoint = slot.endpoint_of(own.qpn);
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
        // There is no room after all. The operation stays in progress and is offered again after the next completion.
        Err(_) => keep(fabric, own, current),
    }
}
