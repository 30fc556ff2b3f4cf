//! The walk of a rank down one ladder.

use super::choice::{Choice, Matter, RefusedStep, Step};
use super::error::FabricError;

/// The step that a rank takes in one matter, and the lower steps that are left.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    choice: Choice,
    below: Vec<Step>,
    /// True if the configuration leaves more than one step.
    free: bool,
}

impl Ladder {
    /// Returns a ladder at the best step for which `allowed` holds: the steps that the configuration does not rule out.
    pub(crate) fn new(matter: Matter, allowed: impl Fn(Step) -> bool) -> Self {
        let ladder = matter.ladder().into_iter();
        let mut below: Vec<Step> = ladder.filter(|step| allowed(*step)).rev().collect();
        let free = below.len() > 1;
        let step = below.pop().expect("a configuration allows a step");
        Self {
            choice: Choice {
                matter,
                step,
                refused: Vec::new(),
            },
            below,
            free,
        }
    }

    /// Returns whether the configuration leaves more than one step.
    pub(crate) fn is_free(&self) -> bool {
        self.free
    }

    /// Returns what has been chosen so far.
    pub(crate) fn choice(&self) -> &Choice {
        &self.choice
    }

    pub(crate) fn step(&self) -> Step {
        self.choice.step
    }

    /// Goes one step down. `reason`: why the step does not hold.
    ///
    /// # Errors
    /// At the lowest allowed step: `reason` itself if that step was the only one; otherwise every step with its reason.
    pub(crate) fn leave(&mut self, reason: FabricError) -> Result<(), FabricError> {
        let refused = RefusedStep {
            step: self.choice.step,
            reason: reason.to_string(),
        };
        match self.below.pop() {
            Some(next) => {
                self.choice.refused.push(refused);
                self.choice.step = next;
                Ok(())
            }
            None if self.choice.refused.is_empty() => Err(reason),
            None => {
                let mut steps = self.choice.refused.clone();
                steps.push(refused);
                Err(FabricError::NoStep {
                    matter: self.choice.matter,
                    refused: steps,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::GpuError;
    use crate::verbs::Rung;

    fn reason(count: u32) -> FabricError {
        FabricError::Gpu(GpuError::NoDevice { ordinal: 7, count })
    }

    #[test]
    fn steps_are_left_in_their_order_and_the_last_tells_all_reasons() {
        let rungs = [Rung::DmabufPcie, Rung::Dmabuf, Rung::Address, Rung::Host];
        let mut ladder = Ladder::new(Matter::Queues, |_| true);
        for (count, rung) in (0..).zip(rungs) {
            assert_eq!(ladder.step(), Step::Memory(rung));
            let left = ladder.leave(reason(count));
            assert_eq!(left.is_ok(), rung != Rung::Host);
            let Err(error) = left else { continue };
            let text = error.to_string();
            assert!(
                text.starts_with("no way for queues: by dmabuf (PCIe): "),
                "{text}"
            );
            for count in 0..4 {
                let told = format!("no CUDA device 7: the driver knows {count}");
                assert!(text.contains(&told), "{told} is not in {text}");
            }
        }
        assert_eq!(ladder.choice().refused.len(), 3);
    }

    #[test]
    fn the_only_step_that_is_allowed_fails_with_its_own_reason() {
        let host = |step| step == Step::Memory(Rung::Host);
        let mut ladder = Ladder::new(Matter::Windows, host);
        let error = ladder.leave(reason(1)).unwrap_err();
        assert!(matches!(error, FabricError::Gpu(_)), "{error}");
        assert!(ladder.choice().refused.is_empty());
    }
}
