//! Changes of keys by queue pairs. A UMR WQE binds a window, sets up an indirect key or invalidates either. A peer's SEND with invalidate
//! ends a key, too.
//!
//! A window is an indirect key of one piece, and binding it is a UMR WQE. This module checks that the region behind the window allows
//! windows. Hardware leaves that check to the library.

use crate::device::memory::keys::{self, Backing, KeyUser, Kind, MemoryKey};
use crate::device::memory::translation::{ListError, Mode, RawEntry, Translation};
use crate::device::memory::{Access, KeyError};
use crate::device::table::Table;
use mlx5_prm::mkey::Mkc;
use mlx5_prm::umr::UmrCtrlSeg;
use std::fmt;

/// The change of a key that a UMR WQE asks for.
#[derive(Debug)]
pub(crate) struct Change {
    /// The bits `UmrCtrlSeg::FLAG_*` of the change.
    pub(crate) flags: u8,
    /// The bits `UmrCtrlSeg::MASK_*`, which say which fields of `mkc` count.
    pub(crate) mask: u64,
    pub(crate) mkc: Mkc,
    /// Index in the key's list at which `entries` begin.
    pub(crate) first: usize,
    pub(crate) entries: Vec<RawEntry>,
}

/// The reason why a key is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UmrError {
    Key(KeyError),
    /// No UMR WQE may change a key of this kind.
    Kind,
    /// The key must be free and is not.
    InUse,
    /// The key must not be free and is.
    IsFree,
    /// Peers may not invalidate the key.
    NotByPeers,
    /// The change names fields that cannot be changed.
    Fields(u64),
    List(ListError),
    /// The key behind a window does not allow windows.
    NoWindows {
        key: u32,
    },
    /// The key behind a window does not cover the window with the rights that it needs.
    Behind {
        key: u32,
        error: KeyError,
    },
}

impl From<KeyError> for UmrError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

/// Fields that can be changed. Changes of the ordering fields have no effect here.
const FIELDS: u64 = UmrCtrlSeg::MASK_LEN
    | UmrCtrlSeg::MASK_START_ADDR
    | UmrCtrlSeg::MASK_EN_RINVAL
    | UmrCtrlSeg::MASK_MKEY
    | UmrCtrlSeg::MASK_QPN
    | RIGHTS
    | UmrCtrlSeg::MASK_SMALL_FENCE
    | UmrCtrlSeg::MASK_RELAXED_READ
    | UmrCtrlSeg::MASK_RELAXED_WRITE
    | UmrCtrlSeg::MASK_FREE;

const RIGHTS: u64 = UmrCtrlSeg::MASK_LOCAL_READ
    | UmrCtrlSeg::MASK_LOCAL_WRITE
    | UmrCtrlSeg::MASK_REMOTE_READ
    | UmrCtrlSeg::MASK_REMOTE_WRITE
    | UmrCtrlSeg::MASK_ATOMIC;

/// Changes `key` as the WQE of `user` asks, or not at all.
///
/// # Errors
///
/// See [`UmrError`].
pub(crate) fn change(
    keys: &mut Table<MemoryKey>,
    key: u32,
    user: KeyUser,
    change: &Change,
) -> Result<(), UmrError> {
    let found = permitted(keys, key, user)?;
    let has = |bit| change.mask & bit != 0;
    let frees = has(UmrCtrlSeg::MASK_FREE) && change.mkc.free() != 0;
    if change.mask & !FIELDS != 0 {
        return Err(UmrError::Fields(change.mask & !FIELDS));
    }
    // The low byte of a free key means nothing. The low byte of an indirect key is what the WQE makes it.
    let named = found.kind == Kind::Window || frees;
    if named && !found.free && u32::from(found.variant) != key & 0xff {
        let now = key & !0xff | u32::from(found.variant);
        return Err(UmrError::Key(KeyError::Stale { now }));
    }
    if change.flags & UmrCtrlSeg::FLAG_FAIL_IF_NOT_FREE != 0 && !found.free {
        return Err(UmrError::InUse);
    }
    if change.flags & UmrCtrlSeg::FLAG_FAIL_IF_FREE != 0 && found.free {
        return Err(UmrError::IsFree);
    }
    if change.flags & UmrCtrlSeg::FLAG_CHECK_QPN != 0 && !found.free {
        of_qp(found, user)?;
    }
    let access = rights(found.access, change);
    let list = match &found.backing {
        Backing::Indirect(list) if !change.entries.is_empty() => {
            let list = list.with(change.first, &change.entries);
            Some(list.map_err(UmrError::List)?)
        }
        Backing::Indirect(_) => None,
        Backing::Direct(_) => return Err(UmrError::Kind),
    };
    if found.kind == Kind::Window
        && let Some(list) = &list
    {
        check_behind(keys, list, user, access)?;
    }
    let Some(found) = keys.get_mut(key >> 8) else {
        return Err(UmrError::Key(KeyError::NoKey));
    };
    found.access = access;
    if let Some(list) = list {
        found.backing = Backing::Indirect(Box::new(list));
    }
    set_fields(found, change);
    Ok(())
}

/// Returns the key, if UMR WQEs of `user` may change it.
fn permitted(keys: &Table<MemoryKey>, key: u32, user: KeyUser) -> Result<&MemoryKey, UmrError> {
    let found = keys.get(key >> 8).ok_or(KeyError::NoKey)?;
    if found.pdn != user.pdn {
        return Err(UmrError::Key(KeyError::OtherDomain {
            own: user.pdn,
            key: found.pdn,
        }));
    }
    match found.kind {
        Kind::Window | Kind::Indirect { umr: true } => Ok(found),
        Kind::Region | Kind::Umem(_) | Kind::Indirect { umr: false } => Err(UmrError::Kind),
    }
}

fn of_qp(key: &MemoryKey, user: KeyUser) -> Result<(), UmrError> {
    match key.qpn.filter(|qpn| *qpn != user.qpn) {
        None => Ok(()),
        Some(key) => Err(UmrError::Key(KeyError::OtherQp { own: user.qpn, key })),
    }
}

/// Returns the rights that the key has after the change.
fn rights(before: Access, change: &Change) -> Access {
    let new = Access::of_context(&change.mkc);
    let bits = [
        (UmrCtrlSeg::MASK_LOCAL_READ, Access::LOCAL_READ),
        (UmrCtrlSeg::MASK_LOCAL_WRITE, Access::LOCAL_WRITE),
        (UmrCtrlSeg::MASK_REMOTE_READ, Access::REMOTE_READ),
        (UmrCtrlSeg::MASK_REMOTE_WRITE, Access::REMOTE_WRITE),
        (UmrCtrlSeg::MASK_ATOMIC, Access::REMOTE_ATOMIC),
    ];
    bits.into_iter()
        .filter(|(mask, _)| change.mask & mask != 0)
        .fold(before, |all, (_, right)| {
            Access(all.0 & !right.0 | new.0 & right.0)
        })
}

/// Refuses a window over regions that do not allow it.
fn check_behind(
    keys: &Table<MemoryKey>,
    list: &Translation,
    user: KeyUser,
    access: Access,
) -> Result<(), UmrError> {
    let need = access.behind_window();
    for piece in list.pieces() {
        let behind = keys::find(keys, piece.key).map_err(|error| UmrError::Behind {
            key: piece.key,
            error,
        })?;
        if !behind.access.covers(Access::MW_BIND) {
            return Err(UmrError::NoWindows { key: piece.key });
        }
        let covered = behind.offset(user, piece.va, piece.bytes, need);
        covered.map_err(|error| UmrError::Behind {
            key: piece.key,
            error,
        })?;
    }
    Ok(())
}

fn set_fields(key: &mut MemoryKey, change: &Change) {
    let has = |bit| change.mask & bit != 0;
    let mkc = &change.mkc;
    if has(UmrCtrlSeg::MASK_LEN) {
        key.bytes = mkc.len();
    }
    if has(UmrCtrlSeg::MASK_START_ADDR) {
        key.iova = mkc.start_addr();
    }
    if has(UmrCtrlSeg::MASK_EN_RINVAL) {
        key.remote_invalidate = mkc.en_rinval() != 0;
    }
    if has(UmrCtrlSeg::MASK_MKEY) {
        // This is an 8-bit field.
        key.variant = mkc.mkey_7_0().to_be_bytes()[3];
    }
    if has(UmrCtrlSeg::MASK_QPN) {
        key.qpn = Some(mkc.qpn()).filter(|qpn| *qpn != Mkc::ANY_QP);
    }
    if has(UmrCtrlSeg::MASK_FREE) {
        key.free = mkc.free() != 0;
    }
}

/// Invalidates `key` because the peer of `user` asks for it.
///
/// # Errors
///
/// See [`UmrError`].
pub(crate) fn invalidate_remotely(
    keys: &mut Table<MemoryKey>,
    key: u32,
    user: KeyUser,
) -> Result<(), UmrError> {
    let found = keys::find(keys, key)?;
    if found.pdn != user.pdn {
        return Err(UmrError::Key(KeyError::OtherDomain {
            own: user.pdn,
            key: found.pdn,
        }));
    }
    if !found.remote_invalidate {
        return Err(UmrError::NotByPeers);
    }
    if found.free {
        return Err(UmrError::IsFree);
    }
    of_qp(found, user)?;
    if let Some(found) = keys.get_mut(key >> 8) {
        found.free = true;
    }
    Ok(())
}

/// Returns a window that is not bound.
pub(crate) fn new_window(context: u32, pdn: u32, variant: u8, type_2: bool) -> MemoryKey {
    /// Number of entries of a window's list: the smallest unit of a UMR WQE.
    const ENTRIES: usize = 4;
    MemoryKey {
        context,
        pdn,
        variant,
        kind: Kind::Window,
        free: true,
        qpn: None,
        remote_invalidate: type_2,
        iova: 0,
        bytes: 0,
        backing: Backing::Indirect(Box::new(Translation::new(Mode::Klm, ENTRIES))),
        access: Access::LOCAL_READ,
        mapping: None,
    }
}

impl fmt::Display for UmrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(error) => write!(f, "{error}"),
            Self::Kind => write!(f, "it is no window and was not made to be changed by UMR"),
            Self::InUse => write!(f, "it must be free and is in use"),
            Self::IsFree => write!(f, "it is free already"),
            Self::NotByPeers => write!(f, "peers may not invalidate it"),
            Self::Fields(mask) => {
                write!(f, "the fields of mask {mask:#x} cannot be changed")
            }
            Self::List(error) => write!(f, "{error}"),
            Self::NoWindows { key } => {
                write!(
                    f,
                    "the region of key {key:#x} was registered without the right to bind windows"
                )
            }
            Self::Behind { key, error } => write!(f, "the region of key {key:#x}: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
