//! A QP's turn: run what its doorbell allows, in order, for a bounded time.
//!
//! [`turn`] lets [`express`] run the common WQEs first and takes the others one by one. [`begin`] makes a WQE an operation, and
//! [`way`] says how it gets to its peer. [`loopback`] carries it out by memory or [`submit`] hands it to the wire. [`pending`] is
//! for devices that put off the bytes of writes, [`overlap`] for the checker.

pub(super) mod datagram;
mod express;
pub(super) mod loopback;
pub(crate) mod overlap;
mod pending;
mod umr;

use super::completion::{self, flush};
use super::intake::decode::Sender;
use super::intake::{decode, fetch};
use crate::device::Event;
use crate::device::checker::Finding;
use crate::device::objects::path;
use crate::device::objects::qp::{Doomed, Route};
use crate::device::objects::work::{Current, Local, Work};
use crate::device::state::{Fabric, HcaState};
use crate::transport::{Device, Operation, OperationKind, Target};
use loopback::{End, Step};
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::{CtrlSeg, DatagramSeg, WqeOpcode};

/// What a turn led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnOutcome {
    /// It has nothing to do until a doorbell, a completion or a command.
    Idle,
    /// It has more to do.
    More,
    /// It has nothing to do before this time.
    Wait(u64),
}

/// Bytes after which others have their turn.
const TURN_BYTES: u64 = 1 << 20;

/// Runs up to `budget` WQEs of a QP.
pub(super) fn turn(fabric: &mut Fabric, own: End, budget: usize, now_ns: u64) -> TurnOutcome {
    let mut bytes = 0;
    let mut left = budget;
    while left > 0 {
        if let Some(ran) = express::run(fabric, own, left, TURN_BYTES - bytes, now_ns) {
            left -= ran.wqes;
            bytes += ran.bytes;
            if left == 0 || bytes >= TURN_BYTES {
                break;
            }
        }
        left -= 1;
        let Some(slot) = fabric.slot(own.hca) else {
            return TurnOutcome::Idle;
        };
        let Some(qp) = slot.state.qps.get_mut(own.qpn) else {
            return TurnOutcome::Idle;
        };
        match qp.state {
            QpState::RTS | QpState::SQD => {}
            QpState::ERR | QpState::SQER => {
                flush::flush(slot, own.qpn);
                return TurnOutcome::Idle;
            }
            _ => return TurnOutcome::Idle,
        }
        if let Some(doomed) = qp.send.doomed {
            if qp.send.is_outstanding() {
                return TurnOutcome::Idle; // a completion brings the QP back
            }
            qp.send.doomed = None;
            fail(&mut slot.state, own.qpn, &doomed);
            return TurnOutcome::More;
        }
        // Draining: what has begun goes on, nothing new does.
        if qp.state == QpState::SQD && qp.send.current.is_none() {
            tell_drained(&mut slot.state, own.qpn);
            return TurnOutcome::Idle;
        }
        let route = qp.route;
        let mut current = match qp.send.current.take() {
            Some(current) => current,
            None => {
                if qp.send.fetched == qp.send.posted {
                    return TurnOutcome::Idle;
                }
                if route == Route::Wire && !slot.endpoint_of(own.qpn).has_room(own.qpn) {
                    return TurnOutcome::Idle; // a completion brings the QP back
                }
                match begin(fabric, own, now_ns) {
                    Begun::Operation(current) => current,
                    Begun::Over => continue,
                    Begun::Waits => return TurnOutcome::Idle, // a completion brings the QP back
                    Begun::Failed => return TurnOutcome::More,
                }
            }
        };
        let peer = match way(fabric, own, route, &current) {
            Delivery::Process(peer) => peer,
            Delivery::Wire => {
                submit(fabric, own, current);
                continue;
            }
            Delivery::Later => {
                keep(fabric, own, current);
                return TurnOutcome::Idle; // a completion brings the QP back
            }
        };
        if current.not_before_ns > now_ns {
            let until = current.not_before_ns;
            keep(fabric, own, current);
            return TurnOutcome::Wait(until);
        }
        let before = current.done;
        let step = match current.operation.to {
            _ if current.carried_out => Step::Done(Ok(())),
            Target::Datagram(to) => datagram::step(fabric, own, peer, &to, &current, now_ns),
            Target::Connected | Target::Srq(_) => {
                loopback::step(fabric, own, peer, &mut current, now_ns)
            }
        };
        bytes += current.done - before;
        match step {
            Step::Done(outcome) => {
                if let Some(until) = pending::told_at(fabric, own, &current, outcome.is_ok()) {
                    current.not_before_ns = until;
                    current.carried_out = true;
                    keep(fabric, own, current);
                    return TurnOutcome::Wait(until);
                }
                end(fabric, own, &current.work, outcome, now_ns);
            }
            Step::Again => keep(fabric, own, current),
            Step::Wait(until) => {
                current.not_before_ns = until;
                keep(fabric, own, current);
                return TurnOutcome::Wait(until);
            }
        }
        if bytes >= TURN_BYTES {
            return TurnOutcome::More;
        }
    }
    TurnOutcome::More
}

/// How an operation gets to its peer.
enum Delivery {
    /// By memory, to an HCA of this process.
    Process(usize),
    Wire,
    /// Not before operations that are on the wire are over.
    Later,
}

/// The way of an operation. Datagrams of one QP may go both ways; they end in the order in which they were posted.
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

/// Says, once for each time that it was asked to drain, that everything begun is over.
fn tell_drained(hca: &mut HcaState, qpn: u32) {
    if let Some(qp) = hca.qps.get_mut(qpn)
        && qp.send.is_drained()
        && std::mem::take(&mut qp.notices.drain)
    {
        let context = qp.context;
        hca.raise(context, Event::QpSqDrained(qpn));
    }
}

/// A WQE cannot be run.
fn fail(hca: &mut HcaState, qpn: u32, wqe: &Doomed) {
    completion::fail_send(hca, qpn, wqe.index, wqe.blocks, wqe.opcode, wqe.syndrome);
    completion::send_failed(hca, qpn);
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
    outcome: Result<(), crate::transport::Failure>,
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
    let port = hca.identity.port_of(&qp.qpc);
    let number = port.number;
    let sender = Sender {
        service: qp.service,
        qkey: qp.qpc.q_key(),
        mtu: path::mtu_bytes(&qp.qpc),
        infiniband: (port.link.is_infiniband()).then_some(port.ip),
    };
    let Some(ring) = qp.send.ring else {
        return Begun::Failed;
    };
    let fetched = match fetch::fetch(hca, qpn, &ring, index, posted) {
        Ok(fetched) => fetched,
        Err(bad) => {
            // Where the next WQE begins is not known: nothing behind this one can be flushed.
            if let Some(qp) = hca.qps.get_mut(qpn) {
                qp.send.fetched = posted;
                qp.send.doomed = Some(Doomed {
                    index,
                    blocks: posted.wrapping_sub(index),
                    opcode: bad.ctrl.opcode(),
                    syndrome: bad.syndrome,
                });
            }
            return Begun::Failed;
        }
    };
    let opcode = fetched.ctrl.opcode();
    if let Some(qp) = hca.qps.get_mut(qpn) {
        // A NOP with the fence bit holds up the WQEs behind it.
        let fenced = fetched.ctrl.fm_ce_se & CtrlSeg::FM_MASK != 0;
        let waits = opcode == WqeOpcode::UMR || (opcode == WqeOpcode::NOP && fenced);
        if waits && qp.send.is_outstanding() {
            return Begun::Waits;
        }
        qp.send.fetched = index.wrapping_add(fetched.blocks);
        hca.counters.on_port(&qp.qpc, 1);
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
            source_gid: 0,
            port: number,
        };
        return match umr::run(hca, qpn, &fetched.ctrl, fetched.bytes) {
            Ok(()) => {
                over(fabric, own, &work, now_ns);
                Begun::Over
            }
            Err(syndrome) => {
                if let Some(qp) = hca.qps.get_mut(qpn) {
                    qp.send.doomed = Some(Doomed {
                        index,
                        blocks: work.blocks,
                        opcode,
                        syndrome,
                    });
                }
                Begun::Failed
            }
        };
    }
    let (operation, local) = match decode::decode(&sender, &fetched.ctrl, &hca.wqe[..fetched.bytes])
    {
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
            if let Some(qp) = hca.qps.get_mut(qpn) {
                qp.send.doomed = Some(Doomed {
                    index,
                    blocks: fetched.blocks,
                    opcode,
                    syndrome,
                });
            }
            return Begun::Failed;
        }
    };
    let source_gid = match operation.map(|operation| operation.to) {
        Some(Target::Datagram(_)) => source_gid(&hca.wqe[..fetched.bytes]),
        _ => 0,
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
        source_gid,
        port: number,
    };
    match operation {
        Some(operation) => Begun::Operation(Current::new(work, operation)),
        None => {
            if let Some(qp) = hca.qps.get_mut(qpn)
                && qp.send.is_outstanding()
            {
                let after = qp.send.submitted;
                qp.send.parked.push_back((after, work));
            } else {
                over(fabric, own, &work, now_ns);
            }
            Begun::Over
        }
    }
}

/// The entry of the GID table that the datagram of a WQE comes from: `src_addr_index` of its address vector, which follows
/// the control segment.
fn source_gid(wqe: &[u8]) -> u8 {
    let start = size_of::<CtrlSeg>();
    let vector = wqe.get(start..start + size_of::<DatagramSeg>());
    vector.map_or(0, |bytes| {
        bytemuck::pod_read_unaligned::<DatagramSeg>(bytes).source_gid()
    })
}

/// A WQE that goes nowhere is over; it speaks for those before it.
fn over(fabric: &mut Fabric, own: End, work: &Work, now_ns: u64) {
    if work.signalled {
        pending::force(fabric, own);
    }
    if let Some(hca) = fabric.hca(own.hca) {
        completion::complete_send(hca, own.qpn, work, now_ns);
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
