//! What can go wrong in a measurement.

use warpverbs::config::ConfigError;
use warpverbs::error::{Error, Part};
use warpverbs::gpu::GpuError;
use warpverbs::internal::engine::HostError;
use warpverbs::membership::GroupError;
use warpverbs::moe::MoeError;
use warpverbs::team::{StoreError, TeamError};
use warpverbs::verbs::VerbsError;

/// Why a measurement has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// An error of the device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// An error of gpuhca, the HCA that is a kernel.
    #[error(transparent)]
    Gpuhca(#[from] gpuhca::GpuhcaError),
    /// An error of the HCA.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// An error of the team.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// An error of the MoE layer.
    #[error(transparent)]
    Moe(#[from] MoeError),
    /// An error of the group.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// An error of the host engine.
    #[error(transparent)]
    Engine(#[from] HostError),
    /// An environment variable with a wrong value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The GPU has less free memory than was asked for.
    #[error(
        "{gpu} has no memory for {bytes} bytes: {detail}; it must be no more than the GPU has free"
    )]
    NoMemory {
        /// The device.
        gpu: String,
        /// The number of bytes asked for.
        bytes: u64,
        /// The driver's reason.
        detail: String,
    },
    /// An option out of its range.
    #[error("{what} is {value}; it must be {limit}")]
    Option {
        /// The name of the option.
        what: &'static str,
        /// The value that the user gave, in words.
        value: String,
        /// What the option may be.
        limit: String,
    },
    /// A run that did not do what it should have. Its times are no measurement.
    #[error("{case}: {detail}")]
    Wrong {
        /// The run, in words.
        case: String,
        /// What was found, and what was expected.
        detail: String,
    },
}

impl From<BenchError> for Error {
    fn from(error: BenchError) -> Self {
        Self::new(Part::Bench, error)
    }
}
