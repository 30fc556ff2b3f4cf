//! What providers refuse.

use std::io;

use crate::verbs::VerbsError;

/// What a provider refuses or reports, with the value and the limit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The HCA or its driver.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A call of the system.
    #[error("{call}: {source}")]
    System {
        /// Name of the call.
        call: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Memory of no bytes, or of more than the address space has.
    #[error("{bytes} bytes of host memory; they must be 1 to {most}")]
    Memory {
        /// Number of bytes asked for.
        bytes: u64,
        /// Largest number of bytes.
        most: u64,
    },
    /// A range that a memory does not have.
    #[error("{bytes} bytes at offset {offset} of a memory of {has} bytes")]
    Range {
        /// Where it begins.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Bytes of the memory.
        has: u64,
    },
}

impl ProviderError {
    pub(super) fn system(call: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        Self::System { call, source }
    }
}
