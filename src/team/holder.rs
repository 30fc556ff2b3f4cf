//! A generation of a rank, and the names of what it publishes.

use std::fmt;

/// The process that has a rank, or had it: each one that takes the rank has another generation. Prints as keys of the store name
/// it, `RANK.GENERATION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::team) struct Holder {
    pub(in crate::team) rank: u32,
    pub(in crate::team) generation: u32,
}

impl Holder {
    pub(in crate::team) const fn new(rank: u32, generation: u32) -> Self {
        Self { rank, generation }
    }

    /// The one with which such a name begins; none for other names.
    pub(in crate::team) fn parse(name: &str) -> Option<Self> {
        let (rank, generation) = name.split_once('.')?;
        Some(Self::new(rank.parse().ok()?, generation.parse().ok()?))
    }

    /// Where its hello is kept.
    pub(in crate::team) fn hello_key(self) -> String {
        format!("hello/{self}")
    }

    /// Where its welcome to another one is kept.
    pub(in crate::team) fn welcome_key(self, to: Self) -> String {
        format!("welcome/{self}/{to}")
    }

    /// Where it tells another one how far their reunion is.
    pub(in crate::team) fn reunite_key(self, to: Self) -> String {
        format!("reunite/{self}/{to}")
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.rank, self.generation)
    }
}
