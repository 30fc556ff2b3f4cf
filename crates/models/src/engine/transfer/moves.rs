//! A step by its name.

use std::fmt;

/// The name of a step, with its subject, as `worker 0 posts`.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    whose: &'static str,
    number: usize,
    what: &'static str,
}

impl Step {
    pub(super) fn new(whose: &'static str, number: usize, what: &'static str) -> Self {
        Self {
            whose,
            number,
            what,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.whose, self.number, self.what)
    }
}
