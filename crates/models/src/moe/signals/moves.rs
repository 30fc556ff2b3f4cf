//! A step by its name, and what must happen before it.

use std::fmt;

use super::state::State;

/// The name of a step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub(super) what: &'static str,
    pub(super) rank: usize,
    pub(super) peer: usize,
    pub(super) kind: usize,
    pub(super) call: u8,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = ["dispatch", "combine"][self.kind];
        let Self {
            what,
            rank,
            peer,
            call,
            ..
        } = self;
        write!(f, "rank {rank}: {what} {kind} {call}, peer {peer}")
    }
}

/// What must happen before a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// A deadline must pass, because of which the rank gives up on this rank.
    Deadline(usize),
    /// The deadline must pass of a call that awaits no member. It counts against no rank.
    OwnDeadline,
}

pub(super) type Steps = Vec<(Needs, Step, State)>;
