//! Why a demo ended early.

use std::path::{Path, PathBuf};

use crate::cmd::etcd::EtcdError;
use crate::cmd::output::OutputError;
use crate::cmd::sim::SimError;
use gpuhca::GpuhcaError;
use warpverbs::error::Error;
use warpverbs::gpu::GpuError;
use warpverbs::membership::GroupError;
use warpverbs::moe::MoeError;
use warpverbs::team::{StoreError, TeamError};
use warpverbs::verbs::VerbsError;

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
    /// What a step gave is not what the reference gives.
    #[error("rank {rank}, step {step}: {words}")]
    Mismatch {
        /// The rank that failed.
        rank: u32,
        /// The step in which it failed, from 1 on.
        step: u32,
        /// What differs: token, first element, both values.
        words: String,
    },
    /// Rank processes that failed, in words; the first is the cause.
    #[error("{}", messages.join("\n"))]
    Ranks {
        /// One line per rank.
        messages: Vec<String>,
    },
    /// The run took too long.
    #[error("not done within {seconds} s (--timeout): {progress}")]
    Timeout {
        /// The limit.
        seconds: u64,
        /// How far it was.
        progress: String,
    },
    /// The checker of the software HCA objected to what the kernels did.
    #[error("the software HCA has {count} findings; its log says which")]
    Findings {
        /// How many.
        count: u64,
    },
    /// The machine gave the ranks too little time for a verdict on their tokens.
    #[error(
        "not judged: in {calls} of {of} calls after deeds the machine gave a rank without a deed no time for a quarter of a deadline; \
         at most a tenth may be; run it on a machine with less load, with fewer --ranks, or with a longer --deadline"
    )]
    NotJudged {
        /// Calls that do not count.
        calls: u64,
        /// All calls of undisturbed ranks after deeds.
        of: u64,
    },
    /// The result was not written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Software HCAs cannot be had.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The shape, a routing or a call.
    #[error(transparent)]
    Moe(#[from] MoeError),
    /// The team of the ranks has failed.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// The group of the ranks has failed.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The store that the ranks meet in has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The HCA.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The device that runs kernels.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The GPU or the HCAs of a rank.
    #[error(transparent)]
    Device(#[from] Error),
    /// The HCA that is a kernel.
    #[error(transparent)]
    Gpuhca(#[from] GpuhcaError),
}

impl From<EtcdError> for DemoError {
    fn from(error: EtcdError) -> Self {
        Self::File {
            path: error.file,
            reason: error.reason,
        }
    }
}

impl DemoError {
    /// Returns the status of a command that ends so.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::NotJudged { .. } => 3,
            input if input.is_input() => 2,
            _ => 1,
        }
    }

    pub(super) fn file(path: &Path, reason: &dyn ToString) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// Returns whether the input is to blame, so that another try is in vain.
    #[must_use]
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Option(_) | Self::File { .. } | Self::Array { .. } | Self::Moe(_)
        )
    }

    pub(super) fn array(name: &str, reason: impl ToString) -> Self {
        Self::Array {
            name: name.to_owned(),
            reason: reason.to_string(),
        }
    }
}
