//! The model of a parted pair, as the search needs it.

use std::fmt;

use super::configuration::Parted;
use super::state::{Change, End, OPEN, State, Third, View};
use crate::explore::{Codec, Model, broken};
use crate::moe::signals::pattern::DISPATCH;
use crate::moe::{Broken, MOST_STATES, Property};

/// The numbers of actors that are no end: of steps that neither end takes alone, and of the third rank.
pub(super) const BOTH: usize = 2;
const THIRD: usize = 3;

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

impl Parted {
    /// The steps of a third rank that is a member with both ends, as far as they see it.
    fn third(&self, state: &State, emit: &mut Emit<'_>) {
        let third = &state.third;
        let go = |what, next: Third| {
            let step = Step {
                who: THIRD,
                what,
                call: next.at,
            };
            (
                step,
                State {
                    third: next,
                    ..*state
                },
            )
        };
        if state.change != Change::None && !third.promised {
            let (step, next) = go(
                "promises at place",
                Third {
                    limit: self.started(third.at, third.held),
                    promised: true,
                    ..*third
                },
            );
            emit(step, next);
        }
        let Some(phase) = self.phases.get(usize::from(third.at)) else {
            return;
        };
        let begins = phase.sends && phase.kind == DISPATCH;
        if begins && phase.call > third.limit {
            if !third.held {
                let (step, next) = go(
                    "is held at place",
                    Third {
                        held: true,
                        ..*third
                    },
                );
                emit(step, next);
            }
            return;
        }
        let send = |end: &End| {
            let sent = self.phases[..usize::from(end.at)].iter();
            sent.filter(|sent| sent.sends && sent.kind == phase.kind)
                .any(|sent| sent.call == phase.call)
        };
        if phase.sends || state.ends.iter().all(send) {
            let (step, next) = go(
                "comes to place",
                Third {
                    at: third.at + 1,
                    held: false,
                    ..*third
                },
            );
            emit(step, next);
        }
    }
}

impl Model for Parted {
    type State = State;
    type Step = Step;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        let view = View {
            first: 1,
            epoch: 1,
            united: true,
        };
        let end = End {
            released: [self.first.wrapping_sub(1); 2],
            limit: OPEN,
            views: [view; 2],
            open: true,
            ..End::default()
        };
        State {
            ends: [end; 2],
            third: Third {
                limit: OPEN,
                ..Third::default()
            },
            record: view,
            breaks: self.breaks,
            retries: self.retries,
            timeouts: self.timeouts,
            aborts: self.aborts,
            ..State::default()
        }
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        self.code_state(state, codec);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        let mut emit = |step, mut next: State| {
            self.tidy(&mut next);
            emit(step, next);
        };
        let emit: &mut Emit<'_> = &mut emit;
        for end in 0..2 {
            self.network(state, end, emit)?;
            self.device(state, end, emit)?;
            self.host(state, end, emit);
        }
        self.record(state, emit);
        self.leap(state, emit);
        if self.third {
            self.third(state, emit);
        }
        Ok(())
    }

    /// Checks that every call has ended, and that the pair is united.
    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        let through = |at: u8| usize::from(at) == self.phases.len();
        let [a, b] = &state.ends;
        if !(through(a.at) && through(b.at) && (!self.third || through(state.third.at))) {
            let place = |end: &End| self.phases.get(usize::from(end.at)).copied();
            let text = format!("stuck: a at {:?}, b at {:?}", place(a), place(b));
            return broken(Property::DL, text);
        }
        let joined = state.record.united && state.is_joined(0) && state.is_joined(1);
        // A view that begins after the last call never unites, because the calls before it never end.
        let behind = !state.record.united && state.record.first > self.calls + 1;
        if joined || behind {
            Ok(())
        } else {
            broken(Property::L, "the two stay parted".to_owned())
        }
    }
}
