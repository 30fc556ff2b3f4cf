//! UMR WQEs: this module makes a change of a memory key of their bytes.
//!
//! A UMR WQE begins when all operations before it on its QP are over, and is over before the next begins. Operations after it
//! see the new key, and those before it have used the old one.

use crate::device::check::Finding;
use crate::device::limits;
use crate::device::memory::keys::KeyUser;
use crate::device::memory::translation::{ENTRY_BYTES, RawEntry};
use crate::device::memory::umr::{self, Change};
use crate::device::objects::work::{Local, Segment};
use crate::device::state::HcaState;
use crate::engine::local;
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::mkey::Mkc;
use mlx5_prm::umr::UmrCtrlSeg;
use mlx5_prm::wqe::{CtrlSeg, DataSeg, SEG_BYTES};
use std::ops::Range;

/// The place of the UMR control segment in a WQE. `CONTEXT` is the place of the key's context in the WQE, and `LIST` is where its list
/// begins.
const CTRL: Range<usize> = SEG_BYTES..SEG_BYTES + size_of::<UmrCtrlSeg>();
const CONTEXT: Range<usize> = CTRL.end..CTRL.end + Mkc::BYTES;
const LIST: usize = CONTEXT.end;

/// Carries out the UMR WQE of `bytes` bytes in [`HcaState::wqe`].
///
/// # Errors
///
/// The syndrome of its completion. The checker has noted the finding.
pub(in crate::engine) fn run(
    hca: &mut HcaState,
    qpn: u32,
    ctrl: &CtrlSeg,
    bytes: usize,
) -> Result<(), Syndrome> {
    let key = ctrl.imm.get();
    let pdn = hca.qps.get(qpn).map_or(0, |qp| qp.pdn);
    let user = KeyUser { pdn, qpn };
    let change = match parse(hca, qpn, bytes) {
        Ok(change) => change,
        Err(Wrong::Key) => return Err(Syndrome::LOCAL_PROT_ERR),
        Err(Wrong::Wqe(text)) => {
            let index = ctrl.index();
            hca.checker.note(Finding::WqeSegment, qpn, || {
                format!("QP {qpn:#x}: WQE {index} (UMR): {text}")
            });
            return Err(Syndrome::LOCAL_QP_OP_ERR);
        }
    };
    umr::change(&mut hca.keys, key, user, &change).map_err(|error| {
        hca.checker.note(Finding::KeyChange, qpn, || {
            format!("QP {qpn:#x}: key {key:#x} is not changed: {error}")
        });
        Syndrome::MW_BIND_ERR
    })
}

/// The defect of a WQE.
enum Wrong {
    /// The list lies in memory that no key gives. The checker has noted the finding.
    Key,
    Wqe(String),
}

fn parse(hca: &mut HcaState, qpn: u32, bytes: usize) -> Result<Change, Wrong> {
    if bytes < LIST {
        return Err(Wrong::Wqe(format!(
            "{bytes} bytes, it needs at least {LIST}"
        )));
    }
    let wqe = &hca.wqe[..bytes];
    let umr: UmrCtrlSeg = bytemuck::pod_read_unaligned(&wqe[CTRL]);
    let mkc = Mkc::from_prefix(&wqe[CONTEXT]);
    let octowords = usize::from(umr.klm_octowords.get());
    let offset = usize::from(umr.translation_offset.get());
    let has_offset = umr.flags & UmrCtrlSeg::FLAG_TRANSLATION_OFFSET != 0;
    if !has_offset && offset != 0 {
        return Err(Wrong::Wqe(format!(
            "a signature context of {offset} units: the device has no signatures"
        )));
    }
    let list_bytes = octowords * ENTRY_BYTES;
    let room = bytes - LIST;
    let entries = if octowords == 0 {
        Vec::new()
    } else if umr.flags & UmrCtrlSeg::FLAG_INLINE != 0 {
        let list = wqe.get(LIST..LIST + list_bytes);
        entries(list.ok_or_else(|| {
            Wrong::Wqe(format!(
                "a list of {list_bytes} bytes where ds leaves {room}"
            ))
        })?)
    } else {
        let data = wqe
            .get(LIST..LIST + SEG_BYTES)
            .ok_or_else(|| Wrong::Wqe("no data segment says where the list is".to_owned()))?;
        let data: DataSeg = bytemuck::pod_read_unaligned(data);
        entries(&fetch(hca, qpn, data, list_bytes)?)
    };
    Ok(Change {
        flags: umr.flags,
        mask: umr.mkey_mask.get(),
        mkc,
        first: offset,
        entries,
    })
}

fn entries(list: &[u8]) -> Vec<RawEntry> {
    let entries = list.chunks_exact(ENTRY_BYTES);
    entries.filter_map(|entry| entry.try_into().ok()).collect()
}

/// Returns the list, which lies in memory.
fn fetch(hca: &mut HcaState, qpn: u32, data: DataSeg, bytes: usize) -> Result<Vec<u8>, Wrong> {
    const LIMIT: usize = ENTRY_BYTES << limits::LOG_KEY_LIST;
    if bytes > LIMIT {
        return Err(Wrong::Wqe(format!(
            "a list of {bytes} bytes, the limit is {LIMIT}"
        )));
    }
    let segment = Segment {
        lkey: data.lkey.get(),
        address: data.addr.get(),
        bytes: bytes as u64,
    };
    let mut list = vec![0; bytes];
    local::gather(hca, qpn, &Local::One(segment), 0, &mut list).map_err(|_| Wrong::Key)?;
    Ok(list)
}
