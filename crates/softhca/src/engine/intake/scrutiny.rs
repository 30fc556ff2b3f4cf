//! Checks of what software does with its send rings, beyond the checks that running the WQEs needs.
//!
//! Doorbells are always compared with their records. If [`CheckConfig::wqe_bytes`](crate::device::CheckConfig) is set, this module also
//! checks that the bytes of a WQE do not change between its doorbell and its completion. It takes a sum of each block of a ring when the
//! doorbell of the block comes. Software may write a slot again only once the completion of its WQE, or of a later WQE, has been written.
//! The sums are compared before that.

use crate::device::check::Finding;
use crate::device::memory::Region;
use crate::device::objects::qp::Qp;
use crate::device::state::HcaState;
use mlx5_prm::doorbell::doorbell_index;
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::WQEBB_BYTES;

/// Pause between two searches for doorbell records that moved without a doorbell.
const SCAN_INTERVAL_NS: u64 = 20_000_000;
/// The number of looks in a row after which a record without a doorbell is a finding. The looks take 10 s. A busy machine may keep a thread
/// from its core for seconds between its record and its doorbell. Looks are counted, not time: a process that is stopped for long is not at
/// fault.
const PATIENCE: u16 = 500;

/// Checks doorbell `word` of a QP whose doorbell record says how far to run.
pub(super) fn rung(hca: &mut HcaState, qpn: u32, word: u64) {
    let Some(qp) = hca.qps.get_mut(qpn) else {
        return;
    };
    qp.send.scrutiny.ahead = None;
    if qp.state != QpState::RTS {
        return;
    }
    let record = qp.send_record();
    let index = doorbell_index(word);
    // The word is either the beginning of the last WQE, which has a length, or names the index after that WQE.
    let names_last = word.to_le_bytes()[7] != 0;
    let behind = record.wrapping_sub(index);
    if behind >= 0x8000 || (names_last && behind == 0) {
        hca.checker.note(Finding::DoorbellWithoutRecord, qpn, || {
            format!(
                "QP {qpn:#x}: a doorbell names index {index}, but the doorbell record says {record}: it was not written, or \
                 not before the doorbell"
            )
        });
    }
}

/// Looks from time to time for doorbell records that have moved without a doorbell. Returns when to look again if it found some.
pub(in crate::engine) fn look_for_forgotten_doorbells(
    hca: &mut HcaState,
    now_ns: u64,
) -> Option<u64> {
    if hca.next_scan_ns > now_ns {
        return hca.scan_pending.then_some(hca.next_scan_ns);
    }
    hca.next_scan_ns = now_ns + SCAN_INTERVAL_NS;
    hca.scan_pending = false;
    for qpn in hca.qps.numbers(is_ahead) {
        let Some(qp) = hca.qps.get_mut(qpn) else {
            continue;
        };
        let (record, posted) = (qp.send_record(), qp.send.posted);
        let looks = match qp.send.scrutiny.ahead {
            Some((before, looks)) if before == record => looks.saturating_add(1),
            _ => 1,
        };
        qp.send.scrutiny.ahead = Some((record, looks));
        hca.scan_pending |= looks < PATIENCE;
        if looks == PATIENCE {
            hca.checker.note(Finding::RecordWithoutDoorbell, qpn, || {
                format!(
                    "QP {qpn:#x}: the doorbell record says {record}, but no doorbell came since {posted}: the device waits for \
                     a store to the register"
                )
            });
        }
    }
    hca.scan_pending.then_some(hca.next_scan_ns)
}

fn is_ahead(qp: &Qp) -> bool {
    qp.state == QpState::RTS && qp.send.ring.is_some() && qp.send_record() != qp.send.posted
}

/// Notes that software has posted the blocks from `from` up to `to`: keeps their sums.
pub(super) fn posted(hca: &mut HcaState, qpn: u32, from: u16, to: u16) {
    if !hca.checker.config().wqe_bytes {
        return;
    }
    let Some(qp) = hca.qps.get_mut(qpn) else {
        return;
    };
    let depth = qp.send.depth();
    let Some(ring) = qp.send.ring else {
        return;
    };
    let sums = &mut qp.send.scrutiny.sums;
    sums.resize(usize::from(depth), 0);
    for step in 0..to.wrapping_sub(from).min(depth) {
        let index = from.wrapping_add(step);
        if let Some(kept) = sums.get_mut(usize::from(index & depth.wrapping_sub(1))) {
            *kept = sum(&ring, index);
        }
    }
}

/// Checks the WQE at `index`, which was copied out of its ring.
pub(super) fn fetched(hca: &mut HcaState, qpn: u32, index: u16, blocks: u16) {
    compare(hca, qpn, index, blocks, Finding::WqeChangedBeforeFetch);
}

/// Checks the WQE at `index`, which is about to complete.
pub(in crate::engine) fn completed(hca: &mut HcaState, qpn: u32, index: u16, blocks: u16) {
    compare(hca, qpn, index, blocks, Finding::WqeChangedBeforeCompletion);
}

fn compare(hca: &mut HcaState, qpn: u32, index: u16, blocks: u16, finding: Finding) {
    if !hca.checker.config().wqe_bytes {
        return;
    }
    let Some(qp) = hca.qps.get_mut(qpn) else {
        return;
    };
    let mask = qp.send.depth().wrapping_sub(1);
    let Some(ring) = qp.send.ring else {
        return;
    };
    for block in (0..blocks).map(|block| index.wrapping_add(block)) {
        let Some(kept) = qp.send.scrutiny.sums.get_mut(usize::from(block & mask)) else {
            return;
        };
        let now = sum(&ring, block);
        let before = std::mem::replace(kept, now);
        if before != now {
            let when = if finding == Finding::WqeChangedBeforeFetch {
                "doorbell and its fetch"
            } else {
                "fetch and its completion"
            };
            hca.checker.note(finding, qpn, || {
                format!(
                    "QP {qpn:#x}: WQE {index} was changed between its {when}: block {block} had sum {before:#018x} and has \
                     {now:#018x}"
                )
            });
            return;
        }
    }
}

/// Returns a sum of the block at `index`. Different bytes have the same sum by accident only.
fn sum(ring: &Region, index: u16) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut block = [0; WQEBB_BYTES];
    ring.read(
        (usize::from(index) * WQEBB_BYTES) & (ring.length() - 1),
        &mut block,
    );
    block.chunks_exact(8).fold(1, |sum: u64, word| {
        let word = word.first_chunk().copied().map_or(0, u64::from_le_bytes);
        (sum.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER)
    })
}
