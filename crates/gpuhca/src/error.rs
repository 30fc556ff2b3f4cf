//! Why the kernel does not run.

use thiserror::Error;
use warpverbs::gpu::GpuError;

/// Why `gpuhca` cannot be started, or has ended badly.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GpuhcaError {
    /// An option is out of range.
    #[error("{what} is {value}; it must be {limit}")]
    Option {
        /// Which one.
        what: &'static str,
        /// Value given.
        value: String,
        /// Values allowed.
        limit: &'static str,
    },
    /// Another process has a kernel of this name.
    #[error(
        "gpuhca {name} runs in another process: kernels of several processes take turns on a GPU, so all ranks must be threads of that one"
    )]
    Claimed {
        /// The name that the options gave, which processes of a machine compare.
        name: String,
    },
    /// The name cannot be claimed.
    #[error("gpuhca {name} cannot be claimed: {source}")]
    Claim {
        /// The name that the options gave.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// softhca is not in this process.
    #[error(
        "softhca is not in this process: libsofthca.so must be preloaded, with SOFTHCA_EXECUTION=external"
    )]
    NoSofthca,
    /// softhca does not take the executor.
    #[error("softhca does not take gpuhca as its executor: {source}")]
    Attach {
        /// `EBUSY`: it has one; `EINVAL`: it is another version.
        source: std::io::Error,
    },
    /// The GPU refuses something, or the kernel failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}
