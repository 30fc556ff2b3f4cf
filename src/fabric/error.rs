//! What a rail can be refused.

use crate::gpu::GpuError;
use crate::verbs::VerbsError;

/// The HCA refused something, or the device that runs kernels did.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FabricError {
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
}
