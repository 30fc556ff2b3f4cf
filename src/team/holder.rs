//! A generation of a rank, and the keys of the records that it publishes.

use std::fmt;

/// The process that holds a rank, or held it. Each process that takes the rank has another generation. Printed as in the keys of
/// the store: `RANK.GENERATION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::team) struct Holder {
    pub(in crate::team) rank: u32,
    pub(in crate::team) generation: u32,
}

impl Holder {
    pub(in crate::team) const fn new(rank: u32, generation: u32) -> Self {
        Self { rank, generation }
    }

    /// Returns the rank and generation that `name` spells as `RANK.GENERATION`; none for other names.
    pub(in crate::team) fn parse(name: &str) -> Option<Self> {
        let (rank, generation) = name.split_once('.')?;
        Some(Self::new(rank.parse().ok()?, generation.parse().ok()?))
    }

    /// Returns the key of the hello of this generation.
    pub(in crate::team) fn hello_key(self) -> String {
        format!("hello/{self}")
    }

    /// Returns the key of the welcome of this generation to generation `to` of another rank.
    pub(in crate::team) fn welcome_key(self, to: Self) -> String {
        format!("welcome/{self}/{to}")
    }

    /// Returns the key under which this generation tells generation `to` of another rank how far their reunion is.
    pub(in crate::team) fn reunite_key(self, to: Self) -> String {
        format!("reunite/{self}/{to}")
    }

    /// Returns the key below which this generation and `other` tell each other how far their recovery `number` is.
    pub(in crate::team) fn recovery_topic(self, other: Self, number: u32) -> String {
        let (low, high) = (self.min(other), self.max(other));
        format!("recover/{low}-{high}/{number}")
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.rank, self.generation)
    }
}
