//! Why a file was not copied.

use std::io;

use warpverbs::config::ConfigError;
use warpverbs::engine::{EngineError, HostError, Outcome, ProviderError};
use warpverbs::team::StoreError;

/// Why a file was not copied.
#[derive(Debug, thiserror::Error)]
pub(super) enum P2pError {
    /// An error of the engine.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An environment variable with a wrong value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An error of the store in which servers have names.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The memory for the file cannot be allocated.
    #[error(transparent)]
    Memory(#[from] ProviderError),
    /// A file cannot be opened, read or written.
    #[error("{path}: {source}")]
    File {
        /// The path of the file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A name that cannot be one of a file in the server's directory.
    #[error(
        "{name:?} is no name of a file; it must be 1 to 255 bytes without '/', that do not begin with '.'"
    )]
    Name {
        /// The name that the other end or the user gave.
        name: String,
    },
    /// The other end has refused something, or has not answered.
    #[error("{place}: {reason}")]
    Other {
        /// The address of the other end.
        place: String,
        /// What the other end said, or why it said nothing.
        reason: String,
    },
    /// The connection to the other end has ended.
    #[error("{place} is gone: {reason}")]
    Gone {
        /// The address of the other end.
        place: String,
        /// How that became known.
        reason: String,
    },
    /// A transfer that did not end as done.
    #[error("the transfer at byte {offset} {}: {reason}", how(*.outcome))]
    Transfer {
        /// The offset in the file.
        offset: u64,
        /// How the transfer ended.
        outcome: Outcome,
        /// The reason.
        reason: String,
    },
    /// A transfer that has not ended in time.
    #[error("the transfer at byte {offset} has not ended in time")]
    Late {
        /// The offset in the file.
        offset: u64,
    },
    /// The bytes of a file have changed on their way.
    #[error(
        "{path}: the sum of what was sent is {sent:#018x}, of what came {came:#018x}: the file is not kept"
    )]
    Sum {
        /// The path of the file.
        path: String,
        /// The sum of the bytes that were sent.
        sent: u64,
        /// The sum of the bytes that arrived.
        came: u64,
    },
}

impl From<EngineError> for P2pError {
    fn from(error: EngineError) -> Self {
        Self::Host(error.into())
    }
}

impl P2pError {
    /// Returns the error as text for the other end. It leaves out the other end's own address.
    pub(super) fn to_other_end(&self) -> String {
        match self {
            Self::Other { reason, .. } => reason.clone(),
            error => error.to_string(),
        }
    }
}

fn how(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "is done",
        Outcome::Failed => "has failed",
        Outcome::Cancelled => "was cancelled",
        Outcome::TimedOut => "has timed out",
    }
}
