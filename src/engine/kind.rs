//! The direction of an operation's bytes, and the directions that a grant allows.

use std::fmt;

use crate::verbs::Access;

/// The direction in which bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The bytes go from this end to the peer.
    Write,
    /// The bytes go from the peer to this end.
    Read,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "WRITE",
            Self::Read => "READ",
        })
    }
}

/// What a peer may do with the bytes of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// The peer may read them.
    Read,
    /// The peer may write them.
    Write,
    /// The peer may read and write them.
    Both,
}

impl Rights {
    pub(in crate::engine) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Both];

    /// Returns the number of the rights, in grants and for other languages: 1, 2 or 3.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Both => 3,
        }
    }

    /// Returns the rights with this number. None: no rights have it.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.number() == number)
    }

    /// Returns whether an operation of this kind is allowed.
    #[must_use]
    pub const fn allow(self, kind: Kind) -> bool {
        matches!(
            (self, kind),
            (Self::Both, _) | (Self::Read, Kind::Read) | (Self::Write, Kind::Write)
        )
    }

    pub(in crate::engine) fn access(self) -> Access {
        let write = Access::REMOTE_WRITE | Access::LOCAL_WRITE;
        match self {
            Self::Read => Access::REMOTE_READ,
            Self::Write => write,
            Self::Both => Access::REMOTE_READ | write,
        }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Both => "reads and writes",
        })
    }
}
