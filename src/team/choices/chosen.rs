//! What a rank has chosen where its devices leave a choice, and what it would choose on given devices.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::order::{self, Signals};
use crate::config::SignalOrder;
use crate::fabric::{Choice, FabricError, Step, Ways};
use crate::gpu::Gpu;
use crate::team::config::TeamConfig;
use crate::team::error::TeamError;
use crate::verbs::{Context, Rung};

/// The choices of this rank.
#[derive(Debug)]
pub(in crate::team) struct Choices {
    /// The ways in which the HCAs of the rank hear of work and reach its memory.
    ways: Mutex<Ways>,
    /// The choice of the order in which signals are kept after data.
    signals: Choice,
}

impl Choices {
    pub(in crate::team) fn new(ways: Ways, signals: Choice) -> Self {
        Self {
            ways: Mutex::new(ways),
            signals,
        }
    }

    /// Returns the choice in each matter.
    pub(in crate::team) fn all(&self) -> Vec<Choice> {
        let ways = self.ways();
        let ways = ways.choices().into_iter().cloned();
        ways.chain([self.signals.clone()]).collect()
    }

    /// Returns how signals are kept in order with data.
    pub(in crate::team) fn order(&self) -> SignalOrder {
        order_of(&self.signals)
    }

    /// Returns which memory windows lie in, and how the HCA reaches that memory.
    pub(in crate::team) fn window_rung(&self) -> Rung {
        self.ways().window_rung()
    }

    /// Makes a window on the step of the ladder that windows lie on. If a device refuses the window and it `is_first`, all windows
    /// take the next step from then on, and the call tries again.
    pub(in crate::team) fn make_window<T>(
        &self,
        is_first: bool,
        make: impl Fn(Rung) -> Result<T, FabricError>,
    ) -> Result<T, TeamError> {
        let mut ways = self.ways();
        loop {
            match make(ways.window_rung()) {
                Ok(made) => return Ok(made),
                Err(refusal @ FabricError::Step(_)) if is_first => {
                    ways.leave_windows(refusal)?;
                    let [.., windows] = ways.choices();
                    tell([windows], &[]);
                }
                Err(other) => return Err(other.into()),
            }
        }
    }

    fn ways(&self) -> MutexGuard<'_, Ways> {
        // A thread that panicked has left the ways whole: each step changes them at once.
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what a rank with this configuration would choose on these devices, in each matter. It makes a QP and registers a page on
/// each step that it tries, and takes them down again.
///
/// # Errors
/// [`TeamError::NoWay`] for a matter in which no step works. A step that the configuration names and the device refuses. Errors
/// that concern no step.
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

/// Returns the way that is chosen on each ladder, and the orders of signals that this rank can take.
pub(in crate::team) fn settle(
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
pub(in crate::team) fn tell<'a>(choices: impl IntoIterator<Item = &'a Choice>, told: &[String]) {
    for choice in choices {
        match cost(choice).filter(|cost| !told.contains(cost)) {
            Some(_) => tracing::warn!("{choice}"),
            None => tracing::debug!("{choice}"),
        }
    }
}

/// Returns the choices that cost something, in words.
pub(in crate::team) fn costs<'a>(choices: impl IntoIterator<Item = &'a Choice>) -> Vec<String> {
    choices.into_iter().filter_map(cost).collect()
}

/// Returns the matter and the step of a choice in words, without reasons, which name devices. None if the choice costs nothing, or
/// the configuration named the step.
fn cost(choice: &Choice) -> Option<String> {
    choice.price().filter(|_| !choice.refused.is_empty())?;
    Some(format!("{} {}", choice.matter, choice.step))
}

/// Returns the order of signals that was chosen.
pub(in crate::team) fn order_of(signals: &Choice) -> SignalOrder {
    match signals.step {
        Step::Signal(order) => order,
        // No other step is on that ladder. The dearest order keeps signals after data on every device.
        Step::Doorbell(_) | Step::Memory(_) => SignalOrder::Flush,
    }
}
