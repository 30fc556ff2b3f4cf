//! Why a demo ended early.

use std::path::{Path, PathBuf};

use gpuhca::GpuhcaError;
use warpverbs::error::Error;
use warpverbs::gpu::GpuError;
use warpverbs::membership::GroupError;
use warpverbs::moe::MoeError;
use warpverbs::team::{StoreError, TeamError};
use warpverbs::verbs::VerbsError;
use warpverbs_cli::etcd::EtcdError;
use warpverbs_cli::output::OutputError;
use warpverbs_cli::sim::SimError;

/// An error of `wv demo`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// An option outside its limits, or two that contradict each other.
    #[error("{0}")]
    Option(String),
    /// A file that cannot be read or written.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// An array of a file that is not what it should be.
    #[error("{name}: {reason}")]
    Array {
        /// The name of the array.
        name: String,
        /// Why the array is refused.
        reason: String,
    },
    /// The result of a step differs from that of the reference implementation.
    #[error("rank {rank}, step {step}: {words}")]
    Mismatch {
        /// The rank that failed.
        rank: u32,
        /// The step in which it failed, from 1 on.
        step: u32,
        /// What differs: the token, its first element, and both values.
        words: String,
    },
    /// Failures of rank processes, in words. The first is the cause.
    #[error("{}", messages.join("\n"))]
    Ranks {
        /// The messages, one line for each rank.
        messages: Vec<String>,
    },
    /// The run took too long.
    #[error("not done within {seconds} s (--timeout): {progress}")]
    Timeout {
        /// The limit of the run, in seconds.
        seconds: u64,
        /// How far the run was, in words.
        progress: String,
    },
    /// The checker of the software HCA objected to what the kernels did.
    #[error("the software HCA has {count} findings; its log says which")]
    Findings {
        /// The number of objections.
        count: u64,
    },
    /// The machine gave the ranks too little time for a verdict on their tokens.
    #[error(
        "not judged: in {calls} of {of} calls after deeds the machine gave a rank without a deed no time for a quarter of a deadline; \
         at most a tenth may be; run it on a machine with less load, with fewer --ranks, or with a longer --deadline"
    )]
    NotJudged {
        /// The number of calls that do not count.
        calls: u64,
        /// The number of calls of undisturbed ranks after deeds.
        of: u64,
    },
    /// The result could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Software HCAs could not be made.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The shape, a routing or a call is wrong.
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
    /// The HCA has failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The device that runs kernels has failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The GPU or the HCAs of a rank could not be opened.
    #[error(transparent)]
    Device(#[from] Error),
    /// The HCA that is a kernel has failed.
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
    /// Returns the exit status of a command that ends with this error.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::NotJudged { .. } => 3,
            input if input.is_input() => 2,
            _ => 1,
        }
    }

    pub(crate) fn file(path: &Path, reason: &dyn ToString) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// Returns whether the input is to blame, so that another try would fail, too.
    pub(crate) fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Option(_) | Self::File { .. } | Self::Array { .. } | Self::Moe(_)
        )
    }

    pub(crate) fn array(name: &str, reason: impl ToString) -> Self {
        Self::Array {
            name: name.to_owned(),
            reason: reason.to_string(),
        }
    }
}
