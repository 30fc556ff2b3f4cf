//! The errors of starting and running the kernel.

use thiserror::Error;
use warpverbs::gpu::GpuError;

/// Why `gpuhca` cannot be started, or has failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GpuhcaError {
    /// An option is outside its limits.
    #[error("{what} is {value}; it must be {limit}")]
    Option {
        /// The name of the option.
        what: &'static str,
        /// The value that was given.
        value: String,
        /// The values that are allowed.
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
        /// The error of the system.
        source: std::io::Error,
    },
    /// softhca is not in this process.
    #[error(
        "softhca is not in this process: libsofthca.so must be preloaded, with SOFTHCA_EXECUTION=external"
    )]
    NoSofthca,
    /// softhca does not accept the executor.
    #[error("softhca does not take gpuhca as its executor: {source}")]
    Attach {
        /// `EBUSY`: softhca has an executor already. `EINVAL`: softhca is of another version.
        source: std::io::Error,
    },
    /// The GPU has refused something, or the kernel has failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}
