//! The turn of a QP: the engine runs what the doorbell allows, in order, for a bounded time.
//!
//! [`turn`] lets [`express`] run the common WQEs first and takes the other WQEs one by one. [`begin`] makes a WQE an operation, and [`way`]
//! says how the operation gets to its peer. Then [`loopback`] carries it out by memory, or [`submit`] hands it to the wire. [`pending`] is
//! for devices that put off the bytes of writes, [`overlap`] for the checker.

pub(super) mod datagram;
mod express;
pub(super) mod loopback;
pub(crate) mod overlap;
mod pending;
mod umr;

use super::completion::{self, flush};
use super::intake::decode::Sender;
use super::intake::fetch::Fetched;
use super::intake::{decode, fetch};
use crate::device::Event;
use crate::device::check::Finding;
use crate::device::objects::path;
use crate::device::objects::qp::{Doomed, Route};
use crate::device::objects::work::{Current, Local, Work};
use crate::device::state::{Fabric, HcaState};
use crate::transport::{Device, Operation, OperationKind, Target};
use loopback::{End, Step};
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::{CtrlSeg, DatagramSeg, WqeOpcode};

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnOutcome {
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
        // The send queue drains: an operation that has begun goes on, no other begins.
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

/// Ends an operation between QPs of this process.
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
        // There is no room after all. The operation stays in progress and is offered again after the next completion.
        Err(_) => keep(fabric, own, current),
    }
}

/// The outcome of [`begin`].
enum Begun {
    Operation(Current),
    /// The WQE needs no more work here: a NOP that is complete or waits for WQEs before it, or a UMR that was carried out.
    Over,
    /// The WQE begins when the WQEs before it are over. It has not been taken yet.
    Waits,
    Failed,
}

/// Fetches and decodes the next WQE.
fn begin(fabric: &mut Fabric, own: End, now_ns: u64) -> Begun {
    let qpn = own.qpn;
    let Some(hca) = fabric.hca(own.hca) else {
        return Begun::Failed;
    };
    let Some(next) = fetch_next(hca, qpn) else {
        return Begun::Failed;
    };
    if !take(hca, qpn, &next) {
        return Begun::Waits;
    }
    if next.opcode() == WqeOpcode::UMR {
        return run_umr(fabric, own, &next, now_ns);
    }
    let Some((operation, local)) = decode_next(hca, qpn, &next) else {
        return Begun::Failed;
    };
    let source_gid = match operation.map(|operation| operation.to) {
        Some(Target::Datagram(_)) => source_gid(&hca.wqe[..next.fetched.bytes]),
        _ => 0,
    };
    count(&mut hca.counters, operation.as_ref(), &local);
    if let Some(operation) = &operation {
        overlap::begun(hca, qpn, next.index, operation);
    }
    let work = Work {
        bytes: operation.map_or(0, |operation| operation.bytes),
        local,
        source_gid,
        ..next.work()
    };
    match operation {
        Some(operation) => Begun::Operation(Current::new(work, operation)),
        None => {
            end_in_turn(fabric, own, work, now_ns);
            Begun::Over
        }
    }
}

/// The WQE that is due, copied out of its ring.
struct Next {
    index: u16,
    fetched: Fetched,
    sender: Sender,
    /// The port of the QP.
    port: u8,
}

impl Next {
    fn opcode(&self) -> WqeOpcode {
        self.fetched.ctrl.opcode()
    }

    /// Returns what the device remembers of a WQE that moves no bytes.
    fn work(&self) -> Work {
        Work {
            index: self.index,
            blocks: self.fetched.blocks,
            opcode: self.opcode(),
            signalled: self.fetched.ctrl.fm_ce_se & CtrlSeg::CE_MASK == CtrlSeg::CE_ALWAYS,
            bytes: 0,
            local: Local::Nothing,
            source_gid: 0,
            port: self.port,
        }
    }

    /// Returns the note that the QP ends by this WQE.
    fn doomed(&self, syndrome: Syndrome) -> Doomed {
        Doomed {
            index: self.index,
            blocks: self.fetched.blocks,
            opcode: self.opcode(),
            syndrome,
        }
    }
}

/// Copies the WQE that is due out of its ring. Returns `None` if the QP has no ring, or the ring does not hold that WQE. In the latter case
/// the QP is doomed.
fn fetch_next(hca: &mut HcaState, qpn: u32) -> Option<Next> {
    let qp = hca.qps.get(qpn)?;
    let (index, posted) = (qp.send.fetched, qp.send.posted);
    let port = hca.identity.port_of(&qp.qpc);
    let number = port.number;
    let sender = Sender {
        service: qp.service,
        qkey: qp.qpc.q_key(),
        mtu: path::mtu_bytes(&qp.qpc),
        infiniband: (port.link.is_infiniband()).then_some(port.ip),
    };
    let ring = qp.send.ring?;
    match fetch::fetch(hca, qpn, &ring, index, posted) {
        Ok(fetched) => Some(Next {
            index,
            fetched,
            sender,
            port: number,
        }),
        Err(bad) => {
            // It is not known where the next WQE begins. So this WQE stands for all that are posted, and none of them is flushed by itself.
            if let Some(qp) = hca.qps.get_mut(qpn) {
                qp.send.fetched = posted;
                qp.send.doomed = Some(Doomed {
                    index,
                    blocks: posted.wrapping_sub(index),
                    opcode: bad.ctrl.opcode(),
                    syndrome: bad.syndrome,
                });
            }
            None
        }
    }
}

/// Counts the WQE as begun. Returns false if it has to wait for the WQEs before it.
fn take(hca: &mut HcaState, qpn: u32, next: &Next) -> bool {
    let (opcode, fetched) = (next.opcode(), &next.fetched);
    if let Some(qp) = hca.qps.get_mut(qpn) {
        // A NOP with the fence bit holds up the WQEs after it until the WQEs before it are over.
        let fenced = fetched.ctrl.fm_ce_se & CtrlSeg::FM_MASK != 0;
        let waits = opcode == WqeOpcode::UMR || (opcode == WqeOpcode::NOP && fenced);
        if waits && qp.send.is_outstanding() {
            return false;
        }
        qp.send.fetched = next.index.wrapping_add(fetched.blocks);
        hca.counters.on_port(&qp.qpc, 1);
    }
    hca.counters.wqes += 1;
    true
}

/// Carries out a UMR WQE, which sends nothing to a peer.
fn run_umr(fabric: &mut Fabric, own: End, next: &Next, now_ns: u64) -> Begun {
    let Some(hca) = fabric.hca(own.hca) else {
        return Begun::Failed;
    };
    match umr::run(hca, own.qpn, &next.fetched.ctrl, next.fetched.bytes) {
        Ok(()) => {
            over(fabric, own, &next.work(), now_ns);
            Begun::Over
        }
        Err(syndrome) => {
            doom(hca, own.qpn, next.doomed(syndrome));
            Begun::Failed
        }
    }
}

/// Returns the operation of the WQE, which is `None` for a NOP, and its local data. Returns `None` if its segments are wrong: then the QP
/// is doomed.
fn decode_next(hca: &mut HcaState, qpn: u32, next: &Next) -> Option<(Option<Operation>, Local)> {
    let fetched = &next.fetched;
    let error = match decode::decode(&next.sender, &fetched.ctrl, &hca.wqe[..fetched.bytes]) {
        Ok(decoded) => return Some(decoded),
        Err(error) => error,
    };
    let (index, opcode) = (next.index, next.opcode());
    hca.checker.note(Finding::WqeSegment, qpn, || {
        format!("QP {qpn:#x}: WQE {index} ({opcode}): {error}")
    });
    let syndrome = if error.is_length() {
        Syndrome::LOCAL_LENGTH_ERR
    } else {
        Syndrome::LOCAL_QP_OP_ERR
    };
    doom(hca, qpn, next.doomed(syndrome));
    None
}

fn doom(hca: &mut HcaState, qpn: u32, doomed: Doomed) {
    if let Some(qp) = hca.qps.get_mut(qpn) {
        qp.send.doomed = Some(doomed);
    }
}

/// Ends a WQE without an operation: at once, or after the operations on the wire.
fn end_in_turn(fabric: &mut Fabric, own: End, work: Work, now_ns: u64) {
    if let Some(hca) = fabric.hca(own.hca)
        && let Some(qp) = hca.qps.get_mut(own.qpn)
        && qp.send.is_outstanding()
    {
        let after = qp.send.submitted;
        qp.send.parked.push_back((after, work));
    } else {
        over(fabric, own, &work, now_ns);
    }
}

/// Returns the entry of the GID table that the datagram of a WQE comes from: `src_addr_index` of its address vector, which follows
/// the control segment.
fn source_gid(wqe: &[u8]) -> u8 {
    let start = size_of::<CtrlSeg>();
    let vector = wqe.get(start..start + size_of::<DatagramSeg>());
    vector.map_or(0, |bytes| {
        bytemuck::pod_read_unaligned::<DatagramSeg>(bytes).source_gid()
    })
}

/// Ends a WQE that sends nothing to a peer. If the WQE is signalled, its completion also says that the WQEs before it are over.
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
