//! Memory keys: the memory that a key gives, and the rights of each user of the key.

use super::mapping::Mapping;
use super::{Access, KeyError, Region};
use crate::device::limits;
use crate::device::memory::null::{self, NULL_KEY};
use crate::device::memory::translation::Translation;
use crate::device::table::Table;

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
            resolve_list(keys, list, user, span, limits::KEY_DEPTH, out)
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

/// A UMEM: memory for queues, doorbell records and keys made by command.
#[derive(Debug)]
pub(crate) struct Umem {
    pub(crate) context: u32,
    pub(crate) region: Region,
    /// The mapping that the memory lies in, if the device made it.
    #[expect(dead_code, reason = "ends with the UMEM")]
    pub(crate) mapping: Option<Mapping>,
}

#[cfg(test)]
mod tests;
