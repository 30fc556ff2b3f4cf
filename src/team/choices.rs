//! What a rank has chosen where its devices leave a choice, and what it would choose on given ones.

use std::sync::{Arc, PoisonError};

use super::order::Signals;
use super::{Choice, Step, Team, TeamConfig, TeamError, order};
use crate::config::SignalOrder;
use crate::fabric::Ways;
use crate::gpu::Gpu;
use crate::verbs::Context;

impl Team {
    /// What this rank has chosen in each matter: the step that it takes, its cost, and why the rank did not take the steps above.
    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let ways = ways.choices().into_iter().cloned();
        ways.chain([self.signals.clone()]).collect()
    }
}

/// What a rank with this configuration would choose on these devices, in each matter. It makes a QP and registers a page on each
/// step that it tries, and takes all of it down again.
///
/// # Errors
/// [`TeamError::NoWay`] for a matter in which no step holds. Also a step that the configuration names and the device refuses, and
/// errors that concern no step.
pub fn choices_on(
    config: &TeamConfig,
    contexts: &[Arc<Context>],
    gpu: &Arc<dyn Gpu>,
) -> Result<Vec<Choice>, TeamError> {
    config.check(u32::try_from(contexts.len()).unwrap_or(u32::MAX))?;
    let (ways, signals) = settle(config, contexts, gpu.as_ref())?;
    let ways = ways.choices().into_iter().cloned();
    Ok(ways.chain([signals.choice]).collect())
}

/// The way of each ladder, and the orders of signals that this rank can take.
pub(super) fn settle(
    config: &TeamConfig,
    contexts: &[Arc<Context>],
    gpu: &dyn Gpu,
) -> Result<(Ways, Signals), TeamError> {
    let ways = Ways::settle(&config.allowed(), &config.any_shape(), contexts, gpu)?;
    let devices = order::Devices {
        contexts,
        gpu,
        windows: ways.window_rung(),
        pci_relaxed: config.modes.pci_relaxed,
    };
    let signals = order::choose(config, devices)?;
    Ok((ways, signals))
}

/// Logs steps of the ladders that cost something, except those that another rank of the machine has logged.
pub(super) fn tell<'a>(choices: impl IntoIterator<Item = &'a Choice>, told: &[String]) {
    for choice in choices {
        match cost(choice).filter(|cost| !told.contains(cost)) {
            Some(_) => tracing::warn!("{choice}"),
            None => tracing::debug!("{choice}"),
        }
    }
}

/// Those that cost something, in words.
pub(super) fn costs<'a>(choices: impl IntoIterator<Item = &'a Choice>) -> Vec<String> {
    choices.into_iter().filter_map(cost).collect()
}

/// What a choice comes to, without its reasons, which name devices; none if it costs nothing, or was named.
fn cost(choice: &Choice) -> Option<String> {
    choice.price().filter(|_| !choice.refused.is_empty())?;
    Some(format!("{} {}", choice.matter, choice.step))
}

/// The order that a choice of signals has come to.
pub(super) fn order_of(signals: &Choice) -> SignalOrder {
    match signals.step {
        Step::Signal(order) => order,
        // No other step is on that ladder; the dearest keeps everywhere.
        Step::Doorbell(_) | Step::Memory(_) => SignalOrder::Flush,
    }
}
