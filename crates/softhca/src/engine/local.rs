//! The local memory of WQEs: segments are looked up by lkey, anew at each use.

use crate::device::check::Finding;
use crate::device::memory::keys::KeyUser;
use crate::device::memory::{Access, KeyError, Region, regions};
use crate::device::objects::work::{InlineBytes, Local, Piece, Segment};
use crate::device::state::HcaState;
use crate::transport::Failure;
use file_memory::Gone;

/// Returns the key user of the QP's own WQEs: its protection domain and number.
pub(super) fn user(hca: &HcaState, qpn: u32) -> KeyUser {
    let pdn = hca.qps.get(qpn).map_or(0, |qp| qp.pdn);
    KeyUser { pdn, qpn }
}

/// Appends to `out` the memory of `bytes` bytes from `offset` of `segments`, piece by piece.
///
/// # Errors
///
/// A key does not allow the access (the checker has noted the finding), or the segments are shorter.
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
    let length = |segment: &Segment| segment.bytes;
    each_part(segments, length, offset, bytes, |segment, start, take| {
        let Some(va) = segment.address.checked_add(start) else {
            return Err(Failure::LocalProtection);
        };
        let Err(error) = hca.resolve(segment.lkey, user, va, take, need, out) else {
            return Ok(());
        };
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
        Err(Failure::LocalProtection)
    })
}

/// Does what [`resolve`] does, for local data of which some or all may be inline. Inline bytes lie in no memory and add nothing to `out`.
///
/// # Errors
///
/// The errors of [`resolve`].
pub(super) fn resolve_data(
    hca: &mut HcaState,
    user: KeyUser,
    local: &Local,
    offset: u64,
    bytes: u64,
    need: Access,
    out: &mut Vec<Region>,
) -> Result<(), Failure> {
    match local {
        Local::Inline(_) => Ok(()),
        Local::Mixed(pieces) => each_part(
            pieces,
            Piece::bytes,
            offset,
            bytes,
            |piece, start, take| match piece {
                Piece::Inline(_) => Ok(()),
                Piece::Memory(segment) => {
                    let segment = std::slice::from_ref(segment);
                    resolve(hca, user, segment, start, take, need, out)
                }
            },
        ),
        Local::Nothing | Local::One(_) | Local::Many(_) => {
            resolve(hca, user, local.segments(), offset, bytes, need, out)
        }
    }
}

/// Calls `each` with the parts of `pieces`, which have the lengths `length`, that make up `bytes` bytes from `offset`, in order.
/// `each` gets the piece, the offset in the piece at which the part begins, and the part's length, which is never 0.
///
/// # Errors
///
/// The error of `each`, or the pieces are shorter.
fn each_part<T>(
    pieces: &[T],
    length: impl Fn(&T) -> u64,
    offset: u64,
    bytes: u64,
    mut each: impl FnMut(&T, u64, u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mut skip, mut left) = (offset, bytes);
    for piece in pieces {
        if left == 0 {
            break;
        }
        let length = length(piece);
        if skip >= length {
            skip -= length;
            continue;
        }
        let take = (length - skip).min(left);
        each(piece, skip, take)?;
        skip = 0;
        left -= take;
    }
    if left == 0 {
        Ok(())
    } else {
        Err(Failure::LocalProtection)
    }
}

/// Reports that a page is gone to which the QP's WQE leads by an lkey. Returns the failure for the WQE.
pub(super) fn refuse_gone(hca: &mut HcaState, qpn: u32, gone: Gone) -> Failure {
    hca.checker.note(Finding::LocalKey, qpn, || {
        format!("QP {qpn:#x}: a WQE names memory that cannot be used: {gone}")
    });
    Failure::LocalProtection
}

/// Copies `out.len()` bytes from `offset` of the local data to `out`.
///
/// # Errors
///
/// The errors of [`resolve`].
pub(super) fn gather(
    hca: &mut HcaState,
    qpn: u32,
    local: &Local,
    offset: u64,
    out: &mut [u8],
) -> Result<(), Failure> {
    match local {
        Local::Inline(data) => copy_inline(data, offset, out),
        Local::Mixed(pieces) => {
            let mut at = 0;
            let bytes = out.len() as u64;
            each_part(pieces, Piece::bytes, offset, bytes, |piece, start, take| {
                let end = usize::try_from(take).map_or(out.len(), |take| at + take);
                let part = &mut out[at..end];
                at = end;
                match piece {
                    Piece::Inline(data) => copy_inline(data, start, part),
                    Piece::Memory(segment) => {
                        read_memory(hca, qpn, std::slice::from_ref(segment), start, part)
                    }
                }
            })
        }
        Local::Nothing | Local::One(_) | Local::Many(_) => {
            read_memory(hca, qpn, local.segments(), offset, out)
        }
    }
}

/// Copies `out.len()` bytes from `offset` of inline data to `out`.
fn copy_inline(data: &InlineBytes, offset: u64, out: &mut [u8]) -> Result<(), Failure> {
    let data = usize::try_from(offset)
        .ok()
        .and_then(|start| data.bytes().get(start..start.checked_add(out.len())?))
        .ok_or(Failure::LocalProtection)?;
    out.copy_from_slice(data);
    Ok(())
}

/// Copies `out.len()` bytes from `offset` of `segments` to `out`.
fn read_memory(
    hca: &mut HcaState,
    qpn: u32,
    segments: &[Segment],
    offset: u64,
    out: &mut [u8],
) -> Result<(), Failure> {
    let mut pieces = std::mem::take(&mut hca.pieces);
    pieces.clear();
    let user = user(hca, qpn);
    let found = resolve(
        hca,
        user,
        segments,
        offset,
        out.len() as u64,
        Access::LOCAL_READ,
        &mut pieces,
    );
    let read = found
        .and_then(|()| regions::read(&pieces, out).map_err(|gone| refuse_gone(hca, qpn, gone)));
    hca.pieces = pieces;
    read
}

/// Copies `data` to `offset` of `segments`, which belong to a WQE of QP `qpn`.
///
/// # Errors
///
/// The errors of [`resolve`].
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

/// Copies `data` to `offset` of `segments`, whose keys are used for `user`.
///
/// # Errors
///
/// The errors of [`resolve`].
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
    let written = found.and_then(|()| {
        hca.news = true;
        regions::write(&pieces, data).map_err(|gone| refuse_gone(hca, user.qpn, gone))
    });
    hca.pieces = pieces;
    written
}
