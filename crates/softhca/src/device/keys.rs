//! Memory keys: which memory a key stands for, and who may do what with it.

use super::memory::Region;
use super::table::Table;
use std::fmt;

/// Rights of a key, also what an access needs. The low bits are those of `enum ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// The device may write (receives, READ results, atomics' results).
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write.
    pub const REMOTE_WRITE: Self = Self(2);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(4);
    /// Peers may do atomics.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// The device may read: every region of the kernel's, a key made by command if its context says so.
    pub(crate) const LOCAL_READ: Self = Self(1 << 31);

    /// Has every right of `other`.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rights of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What the keys behind an indirect key must allow for this: only what the device itself may do counts there.
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

    fn name(self) -> &'static str {
        match self {
            Self::LOCAL_WRITE => "local write",
            Self::REMOTE_WRITE => "remote write",
            Self::REMOTE_READ => "remote read",
            Self::REMOTE_ATOMIC => "remote atomic",
            Self::LOCAL_READ => "local read",
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
    /// Address by which segments name the first byte.
    pub(crate) iova: u64,
    pub(crate) bytes: u64,
    pub(crate) backing: Backing,
    pub(crate) access: Access,
    /// UMEM that the memory lies in; `None` for a region registered by itself.
    pub(crate) umem: Option<u32>,
}

/// Where the bytes of a key are.
#[derive(Debug)]
pub(crate) enum Backing {
    /// In one piece.
    Direct(Region),
    /// Behind other keys, in order; all of them together have the length of the key.
    Indirect(Box<[Entry]>),
}

/// A piece of an indirect key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: u32,
    pub(crate) va: u64,
    pub(crate) bytes: u64,
}

/// Who uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyUser {
    pub(crate) pdn: u32,
    pub(crate) qpn: u32,
}

/// Why a key does not allow an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    NoKey,
    OtherDomain { own: u32, key: u32 },
    Right(Access),
    Outside { start: u64, bytes: u64 },
    TooDeep,
}

/// Indirect keys that lie between a segment and its memory.
const MAX_DEPTH: u32 = 4;

/// The memory of `bytes` bytes at `va` of `key`, if `user` may access it so, appended to `out`.
///
/// # Errors
///
/// See [`KeyError`]; `out` may have grown.
pub(crate) fn resolve(
    keys: &Table<MemoryKey>,
    key: u32,
    user: KeyUser,
    va: u64,
    bytes: u64,
    need: Access,
    out: &mut Vec<Region>,
) -> Result<(), KeyError> {
    let found = find(keys, key)?;
    let offset = found.offset(user, va, bytes, need)?;
    match &found.backing {
        Backing::Direct(region) => {
            out.push(region.part(offset, bytes).ok_or(found.outside())?);
            Ok(())
        }
        Backing::Indirect(entries) => {
            let span = Span {
                offset,
                bytes,
                need: need.behind(),
            };
            resolve_entries(keys, entries, user, span, MAX_DEPTH, out)
        }
    }
}

fn find(keys: &Table<MemoryKey>, key: u32) -> Result<&MemoryKey, KeyError> {
    keys.get(key >> 8)
        .filter(|found| u32::from(found.variant) == key & 0xff)
        .ok_or(KeyError::NoKey)
}

/// A range of an indirect key, and what is to be done there.
#[derive(Clone, Copy)]
struct Span {
    offset: u64,
    bytes: u64,
    need: Access,
}

fn resolve_entries(
    keys: &Table<MemoryKey>,
    entries: &[Entry],
    user: KeyUser,
    span: Span,
    depth: u32,
    out: &mut Vec<Region>,
) -> Result<(), KeyError> {
    let Span {
        offset: mut skip,
        bytes: mut left,
        need,
    } = span;
    let deeper = depth.checked_sub(1).ok_or(KeyError::TooDeep)?;
    for entry in entries {
        if left == 0 {
            break;
        }
        if skip >= entry.bytes {
            skip -= entry.bytes;
            continue;
        }
        let take = (entry.bytes - skip).min(left);
        let inner = find(keys, entry.key)?;
        let va = entry.va.checked_add(skip).ok_or(inner.outside())?;
        let offset = inner.offset(user, va, take, need)?;
        match &inner.backing {
            Backing::Direct(region) => out.push(region.part(offset, take).ok_or(inner.outside())?),
            Backing::Indirect(entries) => {
                let span = Span {
                    offset,
                    bytes: take,
                    need,
                };
                resolve_entries(keys, entries, user, span, deeper, out)?;
            }
        }
        skip = 0;
        left -= take;
    }
    if left == 0 {
        Ok(())
    } else {
        Err(KeyError::Outside {
            start: span.offset,
            bytes: span.bytes - left,
        })
    }
}

impl MemoryKey {
    /// How far `va` is into the key, if `user` may access the `bytes` there so.
    fn offset(&self, user: KeyUser, va: u64, bytes: u64, need: Access) -> Result<u64, KeyError> {
        if self.pdn != user.pdn {
            return Err(KeyError::OtherDomain {
                own: user.pdn,
                key: self.pdn,
            });
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
            Self::NoKey => write!(f, "there is no such key"),
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::tests_region;

    const USER: KeyUser = KeyUser { pdn: 3, qpn: 0x40 };

    fn key(access: Access, iova: u64, bytes: u64, backing: Backing) -> MemoryKey {
        MemoryKey {
            context: 0,
            pdn: 3,
            variant: 0x11,
            iova,
            bytes,
            backing,
            access,
            umem: None,
        }
    }

    fn direct(access: Access, iova: u64, address: u64, bytes: u64) -> MemoryKey {
        let region = tests_region(address, bytes);
        key(access, iova, bytes, Backing::Direct(region))
    }

    /// What resolves: (address, bytes).
    fn parts(
        keys: &Table<MemoryKey>,
        key: u32,
        va: u64,
        bytes: u64,
        need: Access,
    ) -> Result<Vec<(u64, u64)>, KeyError> {
        let mut out = Vec::new();
        resolve(keys, key, USER, va, bytes, need, &mut out)?;
        Ok(out
            .iter()
            .map(|part| (part.address(), part.bytes()))
            .collect())
    }

    fn table(all: impl IntoIterator<Item = MemoryKey>) -> (Table<MemoryKey>, Vec<u32>) {
        let mut keys = Table::new(1, 64);
        let numbers = all
            .into_iter()
            .map(|key| {
                let variant = u32::from(key.variant);
                keys.insert(key).unwrap() << 8 | variant
            })
            .collect();
        (keys, numbers)
    }

    #[test]
    fn a_key_covers_exactly_its_range_for_its_domain_and_rights() {
        let access = Access::REMOTE_WRITE.with(Access::LOCAL_READ);
        let (keys, numbers) = table([direct(access, 0x1000, 0x7000, 0x100)]);
        let key = numbers[0];
        let ok = |va, bytes| parts(&keys, key, va, bytes, Access::REMOTE_WRITE).is_ok();
        assert!(ok(0x1000, 0x100));
        assert!(ok(0x10ff, 1));
        assert!(ok(0x1100, 0));
        assert!(!ok(0x10ff, 2));
        assert!(!ok(0xfff, 1));
        assert!(!ok(u64::MAX, 2));
        let stranger = KeyUser { pdn: 4, ..USER };
        assert_eq!(
            resolve(
                &keys,
                key,
                stranger,
                0x1000,
                1,
                Access::REMOTE_WRITE,
                &mut Vec::new()
            ),
            Err(KeyError::OtherDomain { own: 4, key: 3 })
        );
        assert_eq!(
            parts(&keys, key, 0x1000, 1, Access::REMOTE_READ),
            Err(KeyError::Right(Access::REMOTE_READ))
        );
        assert_eq!(
            parts(&keys, key ^ 1, 0x1000, 1, access),
            Err(KeyError::NoKey)
        );
        assert_eq!(
            parts(&keys, key, 0x1010, 4, Access::LOCAL_READ),
            Ok(vec![(0x7010, 4)])
        );
    }

    #[test]
    fn an_indirect_key_gives_the_pieces_behind_it_under_their_local_rights() {
        let local = Access::LOCAL_READ.with(Access::LOCAL_WRITE);
        let (mut keys, numbers) = table([
            direct(local, 0x1000, 0x7000, 0x100),
            direct(Access::LOCAL_READ, 0, 0x9000, 0x100),
        ]);
        let entries = [
            Entry {
                key: numbers[0],
                va: 0x1080,
                bytes: 0x40,
            },
            Entry {
                key: numbers[1],
                va: 0x10,
                bytes: 0x20,
            },
        ];
        let all = local.with(Access::REMOTE_READ).with(Access::REMOTE_WRITE);
        let outer = key(all, 0x5000, 0x60, Backing::Indirect(entries.into()));
        let outer = keys.insert(outer).unwrap() << 8 | 0x11;
        let nested = [Entry {
            key: outer,
            va: 0x5030,
            bytes: 0x20,
        }; 2];
        let nested = key(all, 0, 0x40, Backing::Indirect(nested.into()));
        let nested = keys.insert(nested).unwrap() << 8 | 0x11;
        assert_eq!(
            parts(&keys, outer, 0x5030, 0x20, Access::REMOTE_READ),
            Ok(vec![(0x70b0, 0x10), (0x9010, 0x10)])
        );
        assert_eq!(
            parts(&keys, outer, 0x5000, 0x40, Access::REMOTE_WRITE),
            Ok(vec![(0x7080, 0x40)])
        );
        assert_eq!(
            parts(&keys, outer, 0x5030, 0x20, Access::REMOTE_WRITE),
            Err(KeyError::Right(Access::LOCAL_WRITE))
        );
        assert_eq!(
            parts(&keys, nested, 0x18, 0x10, Access::REMOTE_READ),
            Ok(vec![(0x9018, 8), (0x70b0, 8)])
        );
        assert!(parts(&keys, outer, 0x5060, 1, Access::REMOTE_READ).is_err());
        keys.remove(numbers[1] >> 8);
        assert_eq!(
            parts(&keys, outer, 0x5030, 0x20, Access::REMOTE_READ),
            Err(KeyError::NoKey)
        );
    }

    #[test]
    fn a_key_behind_itself_ends_in_a_refusal() {
        let all = Access::LOCAL_READ.with(Access::REMOTE_READ);
        let own = [Entry {
            key: 1 << 8 | 0x11,
            va: 0,
            bytes: 8,
        }];
        let (keys, numbers) = table([key(all, 0, 8, Backing::Indirect(own.into()))]);
        assert_eq!(
            parts(&keys, numbers[0], 0, 8, Access::REMOTE_READ),
            Err(KeyError::TooDeep)
        );
    }
}
