//! The steps of the thread that waits, of what it waits for, and of time.

use std::fmt;

use super::state::{Stage, State};
use super::{Kind, Mutant, QUARTER, Waits};
use crate::explore::{Codec, Model, broken};
use crate::moe::{Broken, MOST_STATES, Property};

/// Completions that come before what a wait is for, and that one itself.
const COMPLETIONS: u8 = 2;

/// One step, by name; `value` is its subject.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    what: &'static str,
    value: u8,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.value)
    }
}

impl Model for Waits {
    type State = State;
    type Step = Step;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        State::default()
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        self.code_state(state, codec);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        let mut emit = |what, value, next| emit(Step { what, value }, next);
        if state.now < self.deadline + QUARTER {
            let mut next = *state;
            next.now += 1;
            emit("time comes to tick", next.now, next);
        }
        for (thing, at) in (0..self.kinds.len()).zip(0_u8..) {
            if at >= state.at && !state.things[thing].come {
                let mut next = *state;
                let it = &mut next.things[thing];
                it.come = true;
                it.in_time = state.now < self.deadline;
                emit("there comes what is waited for by", at, next);
            }
        }
        match self.kinds.get(usize::from(state.at)) {
            Some(kind) => self.thread(state, *kind, &mut emit),
            None => Ok(()),
        }
    }

    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        match usize::from(state.at) == self.kinds.len() {
            true => Ok(()),
            false => broken(
                Property::DL,
                format!("the thread waits for ever: {state:?}"),
            ),
        }
    }

    fn is_live(&self) -> bool {
        true
    }
}

impl Waits {
    fn thread(
        &self,
        state: &State,
        kind: Kind,
        emit: &mut impl FnMut(&'static str, u8, State),
    ) -> Result<(), Broken> {
        let at = state.at;
        let mut next = *state;
        let thing = &mut next.things[usize::from(at)];
        let polls = kind != Kind::Credit;
        let first = match polls && !self.has(Mutant::PollsLast) {
            true => Stage::Poll,
            false => Stage::Find,
        };
        match state.stage {
            Stage::Begin => {
                // What is there already is not late, whatever the clock says.
                thing.in_time |= thing.come;
                if self.has(Mutant::BeatClockRestarts) {
                    next.since = state.now;
                }
                next.stage = first;
                next.last = state.now >= self.deadline;
                if next.last && self.has(Mutant::PassedIsLate) {
                    return self.late(next, emit);
                }
                emit("the thread begins wait", at, next);
            }
            Stage::Poll => {
                let came = if thing.come { COMPLETIONS } else { 0 };
                let most = match self.has(Mutant::OneCompletion) {
                    true => thing.taken + 1,
                    false => came,
                };
                thing.taken = most.min(came);
                if self.has(Mutant::PollsLast) {
                    return self.looked(next, emit);
                }
                next.stage = Stage::Find;
                emit("the thread polls in wait", at, next);
            }
            Stage::Find => {
                let found = match polls {
                    true => thing.taken == COMPLETIONS,
                    false => thing.come,
                };
                if found {
                    emit(
                        "the thread finds what it wants in wait",
                        at,
                        Self::ended(next),
                    );
                    return Ok(());
                }
                if polls && self.has(Mutant::PollsLast) {
                    next.stage = Stage::Poll;
                    emit("the thread finds nothing yet in wait", at, next);
                    return Ok(());
                }
                return self.looked(next, emit);
            }
            Stage::Clock => {
                let silent = kind == Kind::Room && self.has(Mutant::RoomIsSilent);
                if state.now - state.since >= QUARTER && !silent {
                    (next.since, next.beat) = (state.now, state.now);
                }
                if state.now - next.beat >= QUARTER {
                    let text = format!("no beat from tick {} to {}", next.beat, state.now);
                    return broken(Property::T2, text);
                }
                next.last = state.now >= self.deadline;
                if next.last && self.has(Mutant::NoLookAfterTheClock) {
                    return self.late(next, emit);
                }
                next.stage = first;
                emit("the thread looks at the clock in wait", at, next);
            }
        }
        Ok(())
    }

    /// A look was in vain.
    fn looked(
        &self,
        mut next: State,
        emit: &mut impl FnMut(&'static str, u8, State),
    ) -> Result<(), Broken> {
        if next.last {
            return self.late(next, emit);
        }
        next.stage = Stage::Clock;
        emit("the thread looks in vain in wait", next.at, next);
        Ok(())
    }

    /// The wait ends in vain.
    fn late(
        &self,
        next: State,
        emit: &mut impl FnMut(&'static str, u8, State),
    ) -> Result<(), Broken> {
        let thing = next.things[usize::from(next.at)];
        if thing.in_time {
            let text = format!("wait {} ends in vain: {thing:?}", next.at);
            return broken(Property::T1, text);
        }
        emit("the thread gives up wait", next.at, Self::ended(next));
        Ok(())
    }

    fn ended(mut next: State) -> State {
        next.at += 1;
        next.stage = Stage::Begin;
        next.last = false;
        next
    }
}
