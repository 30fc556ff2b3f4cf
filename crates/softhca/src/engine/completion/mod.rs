//! The end of WQEs: which get a completion entry, and its contents.
//!
//! A send WQE ends in [`complete_send`] or [`fail_send`], a receive WQE in [`complete_receive`] or [`fail_receive`]. [`arming`]
//! raises the event of a new entry for software that waits; [`flush`] ends the outstanding WQEs of a QP in error.

pub(super) mod arming;
pub(crate) mod flush;

use super::intake::scrutiny;
use super::send::overlap;
use crate::device::Event;
use crate::device::check::Finding;
use crate::device::faults::EntryFate;
use crate::device::objects::cq::Overrun;
use crate::device::objects::qp::Receiving;
use crate::device::objects::srq::SrqKind;
use crate::device::objects::work::Work;
use crate::device::state::HcaState;
use crate::envelope::{Envelope, Version};
use crate::link::{self, Link};
use crate::transport::{Received, SendWith};
use mlx5_prm::be::{Be16, Be32, Be64};
use mlx5_prm::cqe::{Cqe64, CqeOpcode, ErrCqe, Syndrome};
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::WqeOpcode;
use std::net::Ipv4Addr;

/// Vendor syndromes of this device. Hardware has other values.
mod vendor {
    /// Syndrome of a send WQE that has itself failed.
    pub(super) const FAILED: u8 = 0x77;
    /// Syndrome of a WQE that was flushed.
    pub(super) const FLUSHED: u8 = 0xf9;
    /// Syndrome of a receive WQE that has itself failed.
    pub(super) const RECEIVE: u8 = 0x88;
}

/// Bit of `flags_rqpn`: the packet has a GRH, or another header in its place.
const GRH: u32 = 1 << 28;

/// Returns the bits of `flags_rqpn` that say, with RoCE, which header is in the place of the GRH (`MLX5_CQE_ROCE_L3_HEADER_TYPE_*` in
/// Linux).
fn network_header(envelope: Envelope) -> u32 {
    const GRH_ITSELF: u32 = 0;
    const IPV6: u32 = 1 << 24;
    const IPV4: u32 = 2 << 24;
    match envelope.version {
        Version::V1 => GRH_ITSELF,
        Version::V2 if envelope == Envelope::V2_IPV4 => IPV4,
        Version::V2 => IPV6,
    }
}

/// Ends a send WQE that succeeded, unless a fault asks for its failure. Writes its completion entry if it is signalled.
pub(super) fn complete_send(hca: &mut HcaState, qpn: u32, work: &Work, now_ns: u64) {
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
pub(super) fn fail_send(
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

/// Completes receive WQE `receiving`, whose message has arrived.
pub(super) fn complete_receive(
    hca: &mut HcaState,
    qpn: u32,
    receiving: &Receiving,
    received: &Received,
    now_ns: u64,
) {
    let Some((cqn, user_index)) = receiver(hca, qpn, receiving.srqn) else {
        return;
    };
    let link = hca.identity.link;
    let (sender, sender_ip, path_bits) = match (received.source, hca.qps.get(qpn)) {
        (Some(source), _) => {
            let header = match (link, source.has_grh) {
                (Link::Ethernet, _) => GRH | network_header(source.envelope),
                (Link::InfiniBand, true) => GRH,
                (Link::InfiniBand, false) => 0,
            };
            (header | source.qpn, source.address, source.own_path_bits)
        }
        (None, Some(qp)) => (qp.qpc.remote_qpn(), qp.remote, qp.path_bits),
        (None, None) => (0, Ipv4Addr::UNSPECIFIED, 0),
    };
    let slid = match link {
        Link::Ethernet => 0,
        Link::InfiniBand => link::low_bits(sender_ip),
    };
    let (opcode, with) = match (received.send, received.with) {
        (false, SendWith::Immediate(value) | SendWith::Invalidate(value)) => {
            (CqeOpcode::RESP_WR_IMM, value)
        }
        (false, SendWith::Nothing) => (CqeOpcode::RESP_WR_IMM, 0),
        (true, SendWith::Nothing) => (CqeOpcode::RESP_SEND, 0),
        (true, SendWith::Immediate(value)) => (CqeOpcode::RESP_SEND_IMM, value),
        (true, SendWith::Invalidate(key)) => (CqeOpcode::RESP_SEND_INV, key),
    };
    let cqe = Cqe64 {
        ml_path: path_bits,
        slid: Be16::new(slid),
        flags_rqpn: Be32::new(sender),
        srqn_uidx: Be32::new(user_index),
        imm_inval_pkey: Be32::new(with),
        byte_cnt: Be32::new(received.bytes),
        timestamp: Be64::new(now_ns),
        sop_drop_qpn: Be32::new(qpn),
        wqe_counter: Be16::new(receiving.index),
        op_own: opcode.0 << 4 | u8::from(received.solicited) << 1,
        ..Cqe64::default()
    };
    push(hca, cqn, bytemuck::cast(cqe));
}

/// Returns the CQ that gets the completion of a receive WQE, and the number by which software knows whose completion it is. Both are of the
/// SRQ if that belongs to an XRC domain, otherwise of the QP.
fn receiver(hca: &HcaState, qpn: u32, srqn: Option<u32>) -> Option<(u32, u32)> {
    if let Some(srqn) = srqn
        && let SrqKind::Xrc {
            cqn, user_index, ..
        } = hca.srqs.get(srqn)?.kind
    {
        return Some((cqn, user_index));
    }
    let qp = hca.qps.get(qpn)?;
    Some((qp.receive_cqn, qp.qpc.user_index()))
}

/// Ends a receive WQE, of the QP's own queue or of an SRQ, that has failed or is flushed.
pub(super) fn fail_receive(
    hca: &mut HcaState,
    qpn: u32,
    srqn: Option<u32>,
    index: u16,
    syndrome: Syndrome,
) {
    let Some((cqn, user_index)) = receiver(hca, qpn, srqn) else {
        return;
    };
    let err = ErrCqe {
        srqn_uidx: Be32::new(user_index),
        vendor_err_synd: if syndrome == Syndrome::WR_FLUSH_ERR {
            vendor::FLUSHED
        } else {
            vendor::RECEIVE
        },
        syndrome: syndrome.0,
        s_wqe_opcode_qpn: Be32::new(qpn),
        wqe_counter: Be16::new(index),
        op_own: CqeOpcode::RESP_ERR.0 << 4,
        ..ErrCqe::default()
    };
    hca.counters.error_cqes += 1;
    push(hca, cqn, bytemuck::cast(err));
}

/// Writes an entry to CQ `cqn`, unless a fault drops the entry or delays it.
fn push(hca: &mut HcaState, cqn: u32, entry: [u8; 64]) {
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
pub(super) fn write_late(hca: &mut HcaState) {
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
pub(super) fn overran(hca: &mut HcaState, cqn: u32, overrun: &Overrun) {
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

/// Moves a QP whose send WQE has failed to its next state. A reliable QP goes to the error state. An unreliable QP goes to SQER: its send
/// queue fails and its receive side goes on. Sources: InfiniBand specification, "Queue Pair and EE Context States", and the transition of
/// `mlx5_ib` from SQER back to Rts.
pub(super) fn send_failed(hca: &mut HcaState, qpn: u32) {
    match hca.qps.get_mut(qpn) {
        Some(qp) if !qp.service.is_reliable() => {
            if matches!(qp.state, QpState::RTS | QpState::SQD) {
                qp.state = QpState::SQER;
                hca.schedule(qpn);
            }
        }
        _ => enter_error(hca, qpn),
    }
}

/// Moves a QP to the error state. What it has outstanding is flushed in its next turn.
pub(super) fn enter_error(hca: &mut HcaState, qpn: u32) {
    if let Some(qp) = hca.qps.get_mut(qpn)
        && qp.state != QpState::ERR
    {
        qp.state = QpState::ERR;
        qp.wire_must_fail = true;
        hca.schedule(qpn);
    }
}
