//! Memory keys: which memory a key stands for, and who may do what with it.

use super::memory::Region;
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
    pub(crate) region: Region,
    pub(crate) access: Access,
    /// UMEM that the memory lies in; `None` for a region registered by itself.
    pub(crate) umem: Option<u32>,
}

/// Why a key does not allow an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    NoKey,
    OtherDomain { own: u32, key: u32 },
    Right(Access),
    Outside { start: u64, bytes: u64 },
}

impl MemoryKey {
    /// The memory of `bytes` bytes at `va`, if a user of domain `pdn` may access it so.
    pub(crate) fn resolve(
        &self,
        pdn: u32,
        va: u64,
        bytes: u64,
        need: Access,
    ) -> Result<Region, KeyError> {
        if self.pdn != pdn {
            return Err(KeyError::OtherDomain {
                own: pdn,
                key: self.pdn,
            });
        }
        if !self.access.covers(need) {
            return Err(KeyError::Right(need));
        }
        va.checked_sub(self.iova)
            .and_then(|offset| self.region.part(offset, bytes))
            .ok_or(KeyError::Outside {
                start: self.iova,
                bytes: self.region.bytes(),
            })
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

    fn key() -> MemoryKey {
        MemoryKey {
            context: 0,
            pdn: 3,
            variant: 0,
            iova: 0x1000,
            region: crate::device::memory::tests_region(0x7000, 0x100),
            access: Access::REMOTE_WRITE.with(Access::LOCAL_READ),
            umem: None,
        }
    }

    #[test]
    fn a_key_covers_exactly_its_range_for_its_domain_and_rights() {
        let key = key();
        let ok = |va, bytes| key.resolve(3, va, bytes, Access::REMOTE_WRITE).is_ok();
        assert!(ok(0x1000, 0x100));
        assert!(ok(0x10ff, 1));
        assert!(ok(0x1100, 0));
        assert!(!ok(0x10ff, 2));
        assert!(!ok(0xfff, 1));
        assert!(!ok(u64::MAX, 2));
        assert_eq!(
            key.resolve(4, 0x1000, 1, Access::REMOTE_WRITE),
            Err(KeyError::OtherDomain { own: 4, key: 3 })
        );
        assert_eq!(
            key.resolve(3, 0x1000, 1, Access::REMOTE_READ),
            Err(KeyError::Right(Access::REMOTE_READ))
        );
        let part = key.resolve(3, 0x1010, 4, Access::LOCAL_READ).unwrap();
        assert_eq!((part.address(), part.bytes()), (0x7010, 4));
    }
}
