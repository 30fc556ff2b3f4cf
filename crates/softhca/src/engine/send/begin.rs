//! The beginning of a WQE: it is copied out of its ring and becomes an operation, or is over at once.

use super::{End, overlap, pending, umr};
use crate::device::Counters;
use crate::device::check::Finding;
use crate::device::objects::path;
use crate::device::objects::qp::Doomed;
use crate::device::objects::work::{Current, Local, Work};
use crate::device::state::{Fabric, HcaState};
use crate::engine::completion;
use crate::engine::intake::decode::Sender;
use crate::engine::intake::fetch::Fetched;
use crate::engine::intake::{decode, fetch};
use crate::transport::{Operation, OperationKind, Target};
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::wqe::{CtrlSeg, DatagramSeg, WqeOpcode};

/// The outcome of [`begin`].
pub(super) enum Begun {
    Operation(Current),
    /// The WQE needs no more work here: a NOP that is complete or waits for WQEs before it, or a UMR that was carried out.
    Over,
    /// The WQE begins when the WQEs before it are over. It has not been taken yet.
    Waits,
    Failed,
}

/// Fetches and decodes the next WQE.
pub(super) fn begin(fabric: &mut Fabric, own: End, now_ns: u64) -> Begun {
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

fn count(counters: &mut Counters, operation: Option<&Operation>, local: &Local) {
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
