//! What software does with its send rings, looked at beyond what running them needs.
//!
//! Doorbells are compared with their records, always. The bytes of WQEs are compared with themselves, from doorbell to
//! completion, if [`CheckConfig::wqe_bytes`](crate::device::CheckConfig) says so. Each block of a ring has a sum, taken when its
//! doorbell came. A slot is software's again only when the completion of its WQE, or of one after it, has been written. The sums
//! are compared before that.

use crate::device::checker::Finding;
use crate::device::memory::Region;
use crate::device::objects::qp::Qp;
use crate::device::state::HcaState;
use mlx5_prm::doorbell::doorbell_index;
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::WQEBB_BYTES;

/// How often records are looked at that no doorbell came for.
const SCAN_INTERVAL_NS: u64 = 20_000_000;
/// How many looks in a row a record may be ahead: 10 s. A busy machine may keep a thread from its core for seconds between its
/// record and its doorbell. Counted, not timed: a process that is stopped for long is not at fault.
const PATIENCE: u16 = 500;

/// A doorbell with this word came for a QP whose record says how far to run.
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
    // The word is the beginning of the last WQE, which has a length; or it names the index after that.
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

/// Looks for records that are ahead and have no doorbell, now and then; returns when to look again if it found some.
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

/// The blocks from `from` to `to` were handed over.
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

/// The WQE at `index` was copied out of its ring.
pub(super) fn fetched(hca: &mut HcaState, qpn: u32, index: u16, blocks: u16) {
    compare(hca, qpn, index, blocks, Finding::WqeChangedBeforeFetch);
}

/// The WQE at `index` is about to complete.
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

/// Returns a sum of the block at `index`; different bytes have the same one by accident only.
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
