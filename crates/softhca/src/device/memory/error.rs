//! Why a key does not give memory.

use super::Access;
use crate::device::limits;
use std::fmt;

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
                "more than {} indirect keys lie behind one another",
                limits::KEY_DEPTH
            ),
        }
    }
}
