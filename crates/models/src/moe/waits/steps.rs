//! The steps of the waiting thread, of the things that it waits for, and of time.

use std::fmt;

use super::configuration::{HELD_DEADLINES, Kind, Mutant, QUARTER, Waits};
use super::state::{self, Stage, State};
use crate::explore::{Codec, Model, broken};
use crate::moe::limits::MOST_STATES;
use crate::moe::property::{Broken, Property};

/// The number of completions up to that for which a wait waits: one before it, and that one.
const COMPLETIONS: u8 = 2;

/// The name of a step; `value` is its subject.
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
        state::code(self, state, codec);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        let mut emit = |what, value, next| emit(Step { what, value }, next);
        let held = if self.kinds.contains(&Kind::Held) {
            HELD_DEADLINES * self.deadline
        } else {
            self.deadline
        };
        if !state.newcomer {
            let mut next = *state;
            (next.newcomer, next.heard) = (true, state.now);
            emit("a newcomer comes in at tick", state.now, next);
        }
        if state.now < held + QUARTER {
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
        if usize::from(state.at) == self.kinds.len() {
            Ok(())
        } else {
            broken(
                Property::DL,
                format!("the thread waits for ever: {state:?}"),
            )
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
        let polls = matches!(kind, Kind::Room | Kind::Work);
        let first = if polls && !self.has(Mutant::PollsLast) {
            Stage::Poll
        } else {
            Stage::Find
        };
        match state.stage {
            Stage::Begin => {
                // A thing that is there when the wait begins is not late, whatever the clock says.
                thing.in_time |= thing.come;
                if self.has(Mutant::BeatClockRestarts) {
                    next.since = state.now;
                }
                next.stage = first;
                next.last = kind != Kind::Held && state.now >= self.deadline;
                if next.last && self.has(Mutant::PassedIsLate) {
                    return self.late(next, emit);
                }
                emit("the thread begins wait", at, next);
            }
            Stage::Poll => {
                let came = if thing.come { COMPLETIONS } else { 0 };
                let most = if self.has(Mutant::OneCompletion) {
                    thing.taken + 1
                } else {
                    came
                };
                thing.taken = most.min(came);
                if self.has(Mutant::PollsLast) {
                    return self.looked(next, emit);
                }
                next.stage = Stage::Find;
                emit("the thread polls in wait", at, next);
            }
            Stage::Find => {
                let found = if polls {
                    thing.taken == COMPLETIONS
                } else {
                    thing.come
                };
                if found {
                    emit(
                        "the thread finds what it wants in wait",
                        at,
                        self.ended(next),
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
                self.beat(&mut next, kind)?;
                // In the model the host's word for a held call has no deadline.
                next.last = kind != Kind::Held && state.now >= self.deadline;
                if next.last && self.has(Mutant::NoLookAfterTheClock) {
                    return self.late(next, emit);
                }
                next.stage = first;
                emit("the thread looks at the clock in wait", at, next);
            }
        }
        Ok(())
    }

    /// Beats to all peers, if a beat is due.
    fn beat(&self, next: &mut State, kind: Kind) -> Result<(), Broken> {
        let now = next.now;
        let silent = match kind {
            Kind::Room => self.has(Mutant::RoomIsSilent),
            Kind::Held => {
                let all = next.held >= self.held_beats() && !self.has(Mutant::HeldBeatsOn);
                all || self.has(Mutant::HeldIsSilent)
            }
            Kind::Credit | Kind::Work => false,
        };
        if now - next.since >= QUARTER && !silent {
            (next.since, next.beat) = (now, now);
            next.held += u8::from(kind == Kind::Held);
            if !self.has(Mutant::OnlyMembers) {
                next.heard = now;
            }
        }
        if next.held > self.held_beats() {
            let text = format!("beat {} of a held call", next.held);
            return broken(Property::T3, text);
        }
        if kind == Kind::Held && next.held == self.held_beats() {
            return Ok(());
        }
        if now - next.beat >= QUARTER {
            let text = format!("no beat from tick {} to {now}", next.beat);
            return broken(Property::T2, text);
        }
        if next.newcomer && now - next.heard >= QUARTER {
            let text = format!("none to the newcomer from tick {} to {now}", next.heard);
            return broken(Property::T2, text);
        }
        Ok(())
    }

    /// Goes on after a look that found nothing.
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

    /// Ends the wait in vain.
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
        emit("the thread gives up wait", next.at, self.ended(next));
        Ok(())
    }

    fn ended(&self, mut next: State) -> State {
        if self.kinds.get(usize::from(next.at)) == Some(&Kind::Held) {
            // The call may begin, and with it the phase.
            (next.now, next.since, next.beat, next.heard) = (0, 0, 0, 0);
        }
        next.at += 1;
        next.stage = Stage::Begin;
        next.last = false;
        next
    }
}
