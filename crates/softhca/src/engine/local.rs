//! Local memory of WQEs: segments looked up by lkey, anew at each use.

use crate::device::checker::Finding;
use crate::device::keys::{Access, KeyError, KeyUser};
use crate::device::memory::Region;
use crate::device::regions;
use crate::device::state::HcaState;
use crate::device::work::{Local, Segment};
use crate::engine::transport::Failure;

/// The user of the keys in a QP's own WQEs.
pub(super) fn user(hca: &HcaState, qpn: u32) -> KeyUser {
    let pdn = hca.qps.get(qpn).map_or(0, |qp| qp.pdn);
    KeyUser { pdn, qpn }
}

/// The memory of `bytes` bytes from `offset` of `segments`, piece by piece, appended to `out`.
///
/// # Errors
///
/// A key does not allow it (the checker has been told), or the segments are shorter.
pub(super) fn resolve(
    hca: &mut HcaState,
    user: KeyUser,
    segments: &[Segment],
    offset: u64,
    bytes: u64,
    need: Access,
    out: &mut Vec<Region>,
) -> Result<(), Failure> {
    let qpn = user.qpn;
    let mut skip = offset;
    let mut left = bytes;
    for segment in segments {
        if left == 0 {
            break;
        }
        if skip >= segment.bytes {
            skip -= segment.bytes;
            continue;
        }
        let take = (segment.bytes - skip).min(left);
        let Some(va) = segment.address.checked_add(skip) else {
            return Err(Failure::LocalProtection);
        };
        if let Err(error) = hca.resolve(segment.lkey, user, va, take, need, out) {
            let lkey = segment.lkey;
            if !matches!(error, KeyError::NoKey | KeyError::Stale { .. })
                || !hca
                    .checker
                    .note_if_ended(qpn, lkey, hca.now_ns, "a WQE uses")
            {
                hca.checker.note(Finding::LocalKey, qpn, || {
                    format!(
                        "QP {qpn:#x}: lkey {lkey:#x} does not give {take:#x} bytes at {va:#x}: {error}"
                    )
                });
            }
            return Err(Failure::LocalProtection);
        }
        skip = 0;
        left -= take;
    }
    if left == 0 {
        Ok(())
    } else {
        Err(Failure::LocalProtection)
    }
}

/// Copies `out.len()` bytes from `offset` of the local data to `out`.
///
/// # Errors
///
/// As [`resolve`].
pub(super) fn gather(
    hca: &mut HcaState,
    qpn: u32,
    local: &Local,
    offset: u64,
    out: &mut [u8],
) -> Result<(), Failure> {
    if let Local::Inline(data) = local {
        let data = usize::try_from(offset)
            .ok()
            .and_then(|start| data.bytes().get(start..start.checked_add(out.len())?))
            .ok_or(Failure::LocalProtection)?;
        out.copy_from_slice(data);
        return Ok(());
    }
    let mut pieces = std::mem::take(&mut hca.pieces);
    pieces.clear();
    let user = user(hca, qpn);
    let found = resolve(
        hca,
        user,
        local.segments(),
        offset,
        out.len() as u64,
        Access::LOCAL_READ,
        &mut pieces,
    );
    if found.is_ok() {
        regions::read(&pieces, out);
    }
    hca.pieces = pieces;
    found
}

/// Copies `data` to `offset` of `segments`, which are those of the QP's own WQE.
///
/// # Errors
///
/// As [`resolve`].
pub(super) fn scatter(
    hca: &mut HcaState,
    qpn: u32,
    segments: &[Segment],
    offset: u64,
    data: &[u8],
) -> Result<(), Failure> {
    let user = user(hca, qpn);
    scatter_for(hca, user, segments, offset, data)
}

/// Copies `data` to `offset` of `segments`, whose keys `user` uses.
///
/// # Errors
///
/// As [`resolve`].
pub(super) fn scatter_for(
    hca: &mut HcaState,
    user: KeyUser,
    segments: &[Segment],
    offset: u64,
    data: &[u8],
) -> Result<(), Failure> {
    let mut pieces = std::mem::take(&mut hca.pieces);
    pieces.clear();
    let found = resolve(
        hca,
        user,
        segments,
        offset,
        data.len() as u64,
        Access::LOCAL_WRITE,
        &mut pieces,
    );
    if found.is_ok() {
        regions::write(&pieces, data);
        hca.news = true;
    }
    hca.pieces = pieces;
    found
}
