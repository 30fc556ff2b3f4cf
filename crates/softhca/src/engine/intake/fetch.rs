//! Copies send WQEs out of their ring, and checks that they are what the doorbell promised.

use super::scrutiny;
use crate::device::check::Finding;
use crate::device::memory::Region;
use crate::device::state::HcaState;
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::wqe::{CtrlSeg, SEG_BYTES, WQEBB_BYTES};

/// A WQE copied out of its ring, into [`HcaState::wqe`].
#[derive(Clone, Copy)]
pub(in crate::engine) struct Fetched {
    pub(in crate::engine) ctrl: CtrlSeg,
    pub(in crate::engine) blocks: u16,
    /// Length of the WQE in bytes.
    pub(in crate::engine) bytes: usize,
}

/// A WQE that cannot be run.
pub(in crate::engine) struct BadWqe {
    pub(in crate::engine) ctrl: CtrlSeg,
    pub(in crate::engine) syndrome: Syndrome,
}

/// Returns the number of WQEBBs that a WQE takes.
pub(in crate::engine) fn blocks(ctrl: &CtrlSeg) -> u16 {
    u16::from(ctrl.ds()).div_ceil(4)
}

/// Returns the control segment at `index` of a ring whose length is a power of two.
pub(in crate::engine) fn control(ring: &Region, index: u16) -> CtrlSeg {
    let mut bytes = [0; SEG_BYTES];
    ring.read(offset(ring, index), &mut bytes);
    bytemuck::cast(bytes)
}

/// Returns the byte offset of block `index` in the ring, whose length is a power of two.
fn offset(ring: &Region, index: u16) -> usize {
    let mask = ring.length() - 1;
    (usize::from(index) * WQEBB_BYTES) & mask
}

/// Copies the WQE at `index` out of its ring. `posted` is the index after the last block that may run.
///
/// # Errors
///
/// The ring does not hold the WQE that is due at `index`. The checker has noted the finding.
pub(in crate::engine) fn fetch(
    hca: &mut HcaState,
    qpn: u32,
    ring: &Region,
    index: u16,
    posted: u16,
) -> Result<Fetched, BadWqe> {
    let ctrl = control(ring, index);
    let blocks = blocks(&ctrl);
    let left = posted.wrapping_sub(index);
    let bad = |hca: &mut HcaState, finding, text: String| {
        hca.checker.note(finding, qpn, || text);
        Err(BadWqe {
            ctrl,
            syndrome: Syndrome::LOCAL_QP_OP_ERR,
        })
    };
    if ctrl.index() != index {
        let found = ctrl.index();
        return bad(
            hca,
            Finding::WqeIndex,
            format!(
                "QP {qpn:#x}: the WQE due has index {index}, its slot holds index {found} ({}); it was rung before it \
                 was written, or overwritten before it was run",
                ctrl.opcode()
            ),
        );
    }
    if ctrl.qpn() != qpn {
        let found = ctrl.qpn();
        return bad(
            hca,
            Finding::WqeQpn,
            format!("QP {qpn:#x}: WQE {index} names QP {found:#x}"),
        );
    }
    if blocks == 0 || usize::from(blocks) * WQEBB_BYTES > ring.length() {
        let ds = ctrl.ds();
        return bad(
            hca,
            Finding::WqeLength,
            format!("QP {qpn:#x}: WQE {index} has ds {ds}, which is 0 or more than the ring"),
        );
    }
    if blocks > left {
        return bad(
            hca,
            Finding::WqeBeyondDoorbell,
            format!(
                "QP {qpn:#x}: WQE {index} takes {blocks} WQEBBs, but the doorbell record allows {left}"
            ),
        );
    }
    let bytes = usize::from(ctrl.ds()) * SEG_BYTES;
    let start = offset(ring, index);
    // A WQE may wrap at the end of the ring.
    let first = bytes.min(ring.length() - start);
    ring.read(start, &mut hca.wqe[..first]);
    ring.read(0, &mut hca.wqe[first..bytes]);
    scrutiny::fetched(hca, qpn, index, blocks);
    Ok(Fetched {
        ctrl,
        blocks,
        bytes,
    })
}
