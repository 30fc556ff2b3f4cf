//! The step of each ladder that a rank would take on a pair.

use std::slice::from_ref;

use super::check::Look;
use super::nic::Nic;
use warpverbs::config::QpModes;
use warpverbs::gpu::{self, GpuSelector};
use warpverbs::team::{Choice, Matter, TeamConfig, TeamError, choices_on};

/// The choices of a rank.
pub(super) struct Steps(Vec<Choice>);

impl Steps {
    /// Tries the steps of `nic` with kernels on `gpu`, with the variables of the environment. If no step works, the error says why.
    pub(super) fn of(nic: &Nic, gpu: GpuSelector) -> Result<Self, Look> {
        let context = nic.context().map_err(Look::not_looked)?;
        let is_soft = context.info().is_soft();
        let gpu = gpu::open_bare(gpu, is_soft);
        let gpu = gpu.map_err(|error| Look::not_looked(error.to_string()))?;
        let modes = QpModes::from_env();
        let modes = modes.map_err(|error| Look::not_looked(error.to_string()))?;
        let config = TeamConfig::new(0, 2).with_modes(modes);
        match choices_on(&config, from_ref(context), &gpu) {
            Ok(choices) => Ok(Self(choices)),
            Err(error) => Err(match error {
                TeamError::NoWay { .. } | TeamError::Verbs(_) | TeamError::Gpu(_) => {
                    Look::missing(error.to_string())
                }
                other => Look::not_looked(other.to_string()),
            }),
        }
    }

    /// Returns the result for one matter. It is ok if the chosen step costs nothing more than the steps above it.
    pub(super) fn look(&self, matter: Matter) -> Look {
        match self.0.iter().find(|choice| choice.matter == matter) {
            Some(choice) if choice.price().is_none() => Look::ok(choice.step.to_string()),
            Some(choice) => Look::degraded(choice.to_string()),
            None => Look::not_looked("the runtime has made no such choice"),
        }
    }
}
