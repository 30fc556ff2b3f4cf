//! Why a demo ended early.

use std::path::{Path, PathBuf};

use crate::moe::MoeError;

/// An error of `wv demo`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// An option outside its limits, or two that contradict each other.
    #[error("{0}")]
    Option(String),
    /// A file that cannot be read or written.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// An array that is not what it should be.
    #[error("{name}: {reason}")]
    Array {
        /// Which one.
        name: String,
        /// Why.
        reason: String,
    },
    /// The shape or a routing.
    #[error(transparent)]
    Moe(#[from] MoeError),
}

impl DemoError {
    pub(super) fn file(path: &Path, reason: &dyn ToString) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    pub(super) fn array(name: &str, reason: impl ToString) -> Self {
        Self::Array {
            name: name.to_owned(),
            reason: reason.to_string(),
        }
    }
}
