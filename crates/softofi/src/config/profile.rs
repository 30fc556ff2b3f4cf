//! The two fabrics of EFA, as softofi plays them.

use libfabric_abi::bindings::{
    FI_CONTEXT2, FI_MR_ALLOCATED, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR,
};

/// What an endpoint can do and demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Work goes to the device as it is: no order, one range, the least of what a provider may offer. Bytes land by themselves.
    EfaDirect,
    /// The provider works on it: bytes move only while a thread of the program calls it. Four ranges, any length.
    Efa,
}

impl Profile {
    /// Name of the fabric, by which programs choose.
    #[must_use]
    pub fn fabric(self) -> &'static str {
        match self {
            Self::EfaDirect => "efa-direct",
            Self::Efa => "efa",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::EfaDirect, Self::Efa]
            .into_iter()
            .find(|profile| profile.fabric() == name)
    }

    /// Whether bytes move only while a thread calls the library: `FI_PROGRESS_MANUAL`.
    #[must_use]
    pub fn is_manual(self) -> bool {
        self == Self::Efa
    }

    /// Ranges of one operation, of local memory and of the peer's.
    #[must_use]
    pub fn ranges(self) -> usize {
        match self {
            Self::EfaDirect => 1,
            Self::Efa => 4,
        }
    }

    /// Longest operation, in bytes.
    #[must_use]
    pub fn longest(self) -> usize {
        match self {
            Self::EfaDirect => 1 << 30,
            Self::Efa => usize::MAX,
        }
    }

    /// Longest operation whose bytes are taken at once, in bytes. `efa-direct` has it for messages only.
    #[must_use]
    pub fn inline_bytes(self) -> usize {
        match self {
            Self::EfaDirect => 0,
            Self::Efa => 4096,
        }
    }

    /// What `tx_attr.inject_size` says, which is about messages too.
    #[must_use]
    pub fn inject_size(self) -> usize {
        match self {
            Self::EfaDirect => 32,
            Self::Efa => self.inline_bytes(),
        }
    }

    /// Modes that a program must serve.
    #[must_use]
    pub fn mode(self) -> u64 {
        match self {
            Self::EfaDirect => FI_CONTEXT2,
            Self::Efa => 0,
        }
    }

    /// Modes of registrations that a program must serve.
    #[must_use]
    pub fn mr_mode(self) -> i32 {
        let both = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        match self {
            Self::EfaDirect => both | FI_MR_LOCAL,
            Self::Efa => both,
        }
    }

    /// Whether a target lets only peers in that its address vector has.
    #[must_use]
    pub fn knows_its_peers(self) -> bool {
        self == Self::EfaDirect
    }
}
