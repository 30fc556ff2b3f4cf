//! Errors of a rail: what the HCA, or the device that runs kernels, has refused.

use super::choice::{Matter, RefusedStep};
use crate::gpu::GpuError;
use crate::verbs::VerbsError;

/// The HCA or the device that runs kernels has refused something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FabricError {
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The owner of some memory does not offer it in this way.
    #[error("the device has no {0}")]
    NotOffered(&'static str),
    /// One step of a ladder does not hold. The next step may.
    #[error(transparent)]
    Step(Box<Self>),
    /// No step of a ladder holds.
    #[error("no way for {matter}: {}", every(.refused))]
    NoStep {
        matter: Matter,
        refused: Vec<RefusedStep>,
    },
}

impl FabricError {
    /// Returns `error` as the refusal of one step.
    pub(crate) fn of_step(error: impl Into<Self>) -> Self {
        Self::Step(Box::new(error.into()))
    }
}

/// Returns all steps with their reasons, as text.
pub(crate) fn every(refused: &[RefusedStep]) -> String {
    let each: Vec<String> = refused.iter().map(RefusedStep::to_string).collect();
    each.join("; ")
}
