//! Memory keys: the memory that a key gives, and the rights of each user of the key.

use super::Region;
use super::mapping::Mapping;
use crate::device::memory::null::{self, NULL_KEY};
use crate::device::memory::translation::Translation;
use crate::device::table::Table;
use mlx5_prm::mkey::Mkc;
use std::fmt;

/// Rights: those that a key has, or those that an access needs. The low bits are those of `enum ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// The device may write (receives, results of READs and of atomics).
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write.
    pub const REMOTE_WRITE: Self = Self(2);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(4);
    /// Peers may do atomics.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// Memory windows may be bound to the key.
    pub const MW_BIND: Self = Self(0x10);
    /// A flag that is no right: bytes written by the key may overtake earlier bytes.
    pub const RELAXED_ORDERING: Self = Self(1 << 20);
    /// The device may read. Every region that the kernel's call registers has this right. A key made by command has it if its context says
    /// so.
    pub(crate) const LOCAL_READ: Self = Self(1 << 31);

    /// Returns whether these rights include every right of `other`.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these rights and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the pages must be writable. The rule is that of the kernel: any of these rights needs that.
    pub(crate) fn writes(self) -> bool {
        let writes = Self::LOCAL_WRITE
            .with(Self::REMOTE_WRITE)
            .with(Self::REMOTE_ATOMIC)
            .with(Self::MW_BIND);
        self.0 & writes.0 != 0
    }

    /// Returns what the keys behind an indirect key must allow for this access. For them only rights of the device itself count.
    fn behind(self) -> Self {
        let writes = Self::LOCAL_WRITE
            .with(Self::REMOTE_WRITE)
            .with(Self::REMOTE_ATOMIC);
        if self.0 & writes.0 == 0 {
            Self::LOCAL_READ
        } else {
            Self::LOCAL_WRITE
        }
    }

    /// Returns what the regions behind a window with these rights must allow.
    pub(in crate::device) fn behind_window(self) -> Self {
        let writes = Self::REMOTE_WRITE.with(Self::REMOTE_ATOMIC);
        if self.0 & writes.0 == 0 {
            Self::LOCAL_READ
        } else {
            Self::LOCAL_WRITE
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::LOCAL_WRITE => "local write",
            Self::REMOTE_WRITE => "remote write",
            Self::REMOTE_READ => "remote read",
            Self::REMOTE_ATOMIC => "remote atomic",
            Self::LOCAL_READ => "local read",
            Self::MW_BIND => "binding windows as an",
            _ => "several kinds of",
        }
    }
}

/// A memory key. lkey and rkey are the same number: index in the upper 24 bits, a changing byte below.
#[derive(Debug)]
pub(crate) struct MemoryKey {
    pub(crate) context: u32,
    pub(crate) pdn: u32,
    pub(crate) variant: u8,
    pub(crate) kind: Kind,
    /// True if the key cannot be used: it was made for UMR WQEs and is not set up yet, it is a window that is not bound, or it was
    /// invalidated.
    pub(crate) free: bool,
    /// The only QP that may use the key; None: any QP may.
    pub(crate) qpn: Option<u32>,
    /// True if peers may invalidate the key.
    pub(crate) remote_invalidate: bool,
    /// Address by which segments name the first byte.
    pub(crate) iova: u64,
    pub(crate) bytes: u64,
    pub(crate) backing: Backing,
    pub(crate) access: Access,
    /// The mapping that the memory lies in, if the device made it.
    pub(crate) mapping: Option<Mapping>,
}

/// The way in which a key was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A region registered by the kernel's call.
    Region,
    /// A key of memory in the UMEM with this id, made by command.
    Umem(u32),
    /// A key over other keys, made by command. If `umr`, UMR WQEs may change it.
    Indirect { umr: bool },
    /// A memory window.
    Window,
}

/// The place of the bytes of a key.
#[derive(Debug)]
pub(crate) enum Backing {
    /// The bytes lie in one piece of memory.
    Direct(Region),
    /// The bytes are reached through other keys.
    Indirect(Box<Translation>),
}

/// The protection domain and the QP of an access by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyUser {
    pub(crate) pdn: u32,
    pub(crate) qpn: u32,
}

/// The reason why a key does not allow an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    NoKey,
    /// The low byte of the number is not, or no longer, that of the key with its index.
    Stale {
        now: u32,
    },
    OtherDomain {
        own: u32,
        key: u32,
    },
    Right(Access),
    Outside {
        start: u64,
        bytes: u64,
    },
    Free,
    OtherQp {
        own: u32,
        key: u32,
    },
    ListEnds {
        offset: u64,
    },
    TooDeep,
}

/// The most indirect keys between a segment and its memory.
pub(crate) const MAX_DEPTH: u32 = 4;

/// Appends to `out` the memory of `bytes` bytes at `va` of `key`, if `user` may access it as `need` says.
///
/// # Errors
///
/// An error of [`KeyError`]. `out` may have grown.
pub(crate) fn resolve(
    keys: &Table<MemoryKey>,
    key: u32,
    user: KeyUser,
    va: u64,
    bytes: u64,
    need: Access,
    out: &mut Vec<Region>,
) -> Result<(), KeyError> {
    let found = match find(keys, key) {
        Ok(found) => found,
        Err(_) if key == NULL_KEY => return null::resolve(bytes, need, out),
        Err(error) => return Err(error),
    };
    let offset = found.offset(user, va, bytes, need)?;
    match &found.backing {
        Backing::Direct(region) => {
            out.push(region.part(offset, bytes).ok_or(found.outside())?);
            Ok(())
        }
        Backing::Indirect(list) => {
            let span = Span {
                offset,
                bytes,
                need: need.behind(),
            };
            resolve_list(keys, list, user, span, MAX_DEPTH, out)
        }
    }
}

/// Returns the key with this number, its low byte included.
pub(crate) fn find(keys: &Table<MemoryKey>, key: u32) -> Result<&MemoryKey, KeyError> {
    let found = keys.get(key >> 8).ok_or(KeyError::NoKey)?;
    if u32::from(found.variant) != key & 0xff {
        let now = key & !0xff | u32::from(found.variant);
        return Err(KeyError::Stale { now });
    }
    Ok(found)
}

/// A range of an indirect key, and the access to it.
#[derive(Clone, Copy)]
struct Span {
    offset: u64,
    bytes: u64,
    need: Access,
}

fn resolve_list(
    keys: &Table<MemoryKey>,
    list: &Translation,
    user: KeyUser,
    span: Span,
    depth: u32,
    out: &mut Vec<Region>,
) -> Result<(), KeyError> {
    let deeper = depth.checked_sub(1).ok_or(KeyError::TooDeep)?;
    let mut done = 0;
    while done < span.bytes {
        let offset = span.offset.saturating_add(done);
        let piece = list.at(offset).ok_or(KeyError::ListEnds { offset })?;
        let bytes = piece.bytes.min(span.bytes - done);
        done += bytes;
        if piece.key == NULL_KEY {
            null::resolve(bytes, span.need, out)?;
            continue;
        }
        let inner = find(keys, piece.key)?;
        let offset = inner.offset(user, piece.va, bytes, span.need)?;
        match &inner.backing {
            Backing::Direct(region) => {
                out.push(region.part(offset, bytes).ok_or(inner.outside())?);
            }
            Backing::Indirect(list) => {
                let span = Span {
                    offset,
                    bytes,
                    need: span.need,
                };
                resolve_list(keys, list, user, span, deeper, out)?;
            }
        }
    }
    Ok(())
}

impl MemoryKey {
    /// Returns the offset of `va` in the key, if `user` may access `bytes` bytes there as `need` says.
    pub(in crate::device) fn offset(
        &self,
        user: KeyUser,
        va: u64,
        bytes: u64,
        need: Access,
    ) -> Result<u64, KeyError> {
        if self.pdn != user.pdn {
            return Err(KeyError::OtherDomain {
                own: user.pdn,
                key: self.pdn,
            });
        }
        if self.free {
            return Err(KeyError::Free);
        }
        if let Some(key) = self.qpn.filter(|qpn| *qpn != user.qpn) {
            return Err(KeyError::OtherQp { own: user.qpn, key });
        }
        if !self.access.covers(need) {
            return Err(KeyError::Right(need));
        }
        va.checked_sub(self.iova)
            .filter(|offset| {
                offset
                    .checked_add(bytes)
                    .is_some_and(|end| end <= self.bytes)
            })
            .ok_or(self.outside())
    }

    /// Returns the memory of the `bytes` bytes at `va`, if `user` may access it as `need` says and it lies in one piece.
    pub(crate) fn piece(&self, user: KeyUser, va: u64, bytes: u64, need: Access) -> Option<Region> {
        let Backing::Direct(region) = &self.backing else {
            return None;
        };
        region.part(self.offset(user, va, bytes, need).ok()?, bytes)
    }

    fn outside(&self) -> KeyError {
        KeyError::Outside {
            start: self.iova,
            bytes: self.bytes,
        }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { now } => write!(f, "no such key, only {now:#x}"),
            Self::NoKey => write!(f, "no such key"),
            Self::OtherDomain { own, key } => {
                write!(
                    f,
                    "the key is of domain {key:#x} and the QP of domain {own:#x}"
                )
            }
            Self::Right(need) => write!(f, "the key does not allow {} access", need.name()),
            Self::Outside { start, bytes } => {
                write!(f, "the key covers {bytes:#x} bytes at {start:#x}")
            }
            Self::Free => write!(f, "the key is not bound to memory, or was invalidated"),
            Self::OtherQp { own, key } => {
                write!(f, "the key belongs to QP {key:#x} and not to QP {own:#x}")
            }
            Self::ListEnds { offset } => {
                write!(f, "the key's list of pieces ends before offset {offset:#x}")
            }
            Self::TooDeep => write!(
                f,
                "more than {MAX_DEPTH} indirect keys lie behind one another"
            ),
        }
    }
}

/// A UMEM: memory for queues, doorbell records and keys made by command.
#[derive(Debug)]
pub(crate) struct Umem {
    pub(crate) context: u32,
    pub(crate) region: Region,
    /// The mapping that the memory lies in, if the device made it.
    #[expect(dead_code, reason = "ends with the UMEM")]
    pub(crate) mapping: Option<Mapping>,
}

/// Returns the rights that the context of a key gives.
pub(crate) fn access_of(mkc: &Mkc) -> Access {
    let rights = [
        (mkc.lr(), Access::LOCAL_READ),
        (mkc.lw(), Access::LOCAL_WRITE),
        (mkc.rr(), Access::REMOTE_READ),
        (mkc.rw(), Access::REMOTE_WRITE),
        (mkc.a(), Access::REMOTE_ATOMIC),
        (mkc.relaxed_ordering_write(), Access::RELAXED_ORDERING),
    ];
    rights
        .into_iter()
        .filter(|(bit, _)| *bit != 0)
        .fold(Access::default(), |all, (_, right)| all.with(right))
}

#[cfg(test)]
mod tests;
