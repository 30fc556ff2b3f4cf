//! The rights of a key, and those that an access needs.

use mlx5_prm::mkey::Mkc;

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

    /// Returns the rights that the context of a key gives.
    pub(crate) fn of_context(mkc: &Mkc) -> Self {
        let rights = [
            (mkc.lr(), Self::LOCAL_READ),
            (mkc.lw(), Self::LOCAL_WRITE),
            (mkc.rr(), Self::REMOTE_READ),
            (mkc.rw(), Self::REMOTE_WRITE),
            (mkc.a(), Self::REMOTE_ATOMIC),
            (mkc.relaxed_ordering_write(), Self::RELAXED_ORDERING),
        ];
        rights
            .into_iter()
            .filter(|(bit, _)| *bit != 0)
            .fold(Self::default(), |all, (_, right)| all.with(right))
    }

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
    pub(super) fn behind(self) -> Self {
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

    pub(super) fn name(self) -> &'static str {
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
