//! The model of a parted pair, as the search needs it.

use super::configuration::Parted;
use super::moves::{Emit, Step, THIRD};
use super::state::{self, Change, End, OPEN, State, Third, View};
use super::{device, host, network};
use crate::explore::{Codec, Model, broken};
use crate::moe::limits::MOST_STATES;
use crate::moe::property::{Broken, Property};
use crate::moe::signals::pattern::DISPATCH;

/// The steps of a third rank that is a member with both ends, as far as they see it.
fn third(model: &Parted, state: &State, emit: &mut Emit<'_>) {
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
                limit: model.started(third.at, third.held),
                promised: true,
                ..*third
            },
        );
        emit(step, next);
    }
    let Some(phase) = model.phases.get(usize::from(third.at)) else {
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
        let sent = model.phases[..usize::from(end.at)].iter();
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
        state::code(self, state, codec);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        let mut emit = |step, mut next: State| {
            network::tidy(self, &mut next);
            emit(step, next);
        };
        let emit: &mut Emit<'_> = &mut emit;
        for end in 0..2 {
            network::steps(self, state, end, emit)?;
            device::steps(self, state, end, emit)?;
            host::steps(self, state, end, emit);
        }
        host::record(self, state, emit);
        host::leap(self, state, emit);
        if self.third {
            third(self, state, emit);
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
