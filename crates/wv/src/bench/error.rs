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
    /// The device's.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// That of the HCA that is a kernel.
    #[error(transparent)]
    Gpuhca(#[from] gpuhca::GpuhcaError),
    /// The HCA's.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The team's.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// The layer's.
    #[error(transparent)]
    Moe(#[from] MoeError),
    /// The group's.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The host engine's.
    #[error(transparent)]
    Engine(#[from] HostError),
    /// A variable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A GPU without so much memory.
    #[error(
        "{gpu} has no memory for {bytes} bytes: {detail}; it must be no more than the GPU has free"
    )]
    NoMemory {
        /// The device.
        gpu: String,
        /// Bytes asked for.
        bytes: u64,
        /// The driver's reason.
        detail: String,
    },
    /// An option out of its range.
    #[error("{what} is {value}; it must be {limit}")]
    Option {
        /// Which one.
        what: &'static str,
        /// The value that the user gave, in words.
        value: String,
        /// What the option may be.
        limit: String,
    },
    /// A run that did not do what it should have: it is no measurement.
    #[error("{case}: {detail}")]
    Wrong {
        /// Which run.
        case: String,
        /// The found value, and the expected one.
        detail: String,
    },
}

impl From<BenchError> for Error {
    fn from(error: BenchError) -> Self {
        Self::new(Part::Bench, error)
    }
}
