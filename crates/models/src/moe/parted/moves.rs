//! A step by its name, and who takes it.

use std::fmt;

use super::state::State;

/// The numbers of actors that are no end: of steps that neither end takes alone, and of the third rank.
pub(super) const BOTH: usize = 2;
pub(super) const THIRD: usize = 3;

/// The name of a step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub(super) who: usize,
    pub(super) what: &'static str,
    pub(super) call: u8,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = ["a", "b", "both", "the third"][self.who];
        write!(f, "{who} {} {}", self.what, self.call)
    }
}

/// A function that takes a step and the state after it.
pub(super) type Emit<'a> = dyn FnMut(Step, State) + 'a;
