//! What the host engine refuses.

use super::slots::{MOST_SLOTS, TransferId};
use crate::error::{Error, Part};

/// An error of the host engine. Nothing has been done where one is returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No slots, or too many.
    #[error("{count} transfers at a time: expected 1 to {MOST_SLOTS}")]
    Slots {
        /// How many.
        count: u32,
    },
    /// An id of another engine.
    #[error("transfer {id:?} is not of engine {engine}: ask the engine that it was submitted to")]
    ForeignId {
        /// The id.
        id: TransferId,
        /// The engine that was asked.
        engine: u32,
    },
    /// A transfer that is to be released runs.
    #[error("transfer {id:?} is not concluded yet: wait for it, or cancel it and wait")]
    Pending {
        /// The id.
        id: TransferId,
    },
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self::new(Part::Engine, error)
    }
}
