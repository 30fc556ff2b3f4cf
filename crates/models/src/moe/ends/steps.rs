//! The steps of a program's kernels and of the host.

use std::fmt;

use super::configuration::{Ends, Mutant};
use super::state::{self, SETS, Stage, State, View};
use crate::explore::{Codec, Model, broken};
use crate::moe::limits::MOST_STATES;
use crate::moe::property::{Broken, Property};

const DISPATCH: usize = 0;
const COMBINE: usize = 1;

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

impl Model for Ends {
    type State = State;
    type Step = Step;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        let first = View {
            serial: 1,
            first: 1,
        };
        State {
            views: [View::default(), first],
            ..State::default()
        }
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        state::code(self, state, codec);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        let mut emit = |what, value, next| emit(Step { what, value }, next);
        self.host(state, &mut emit);
        if state.running != 0 {
            return self.end(state, &mut emit);
        }
        self.begin_dispatch(state, &mut emit)?;
        for call in 1..=state.started {
            self.begin(state, call, &mut emit);
            self.abandon(state, call, &mut emit);
        }
        Ok(())
    }

    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        let [_, newest] = state.views;
        if newest.serial <= self.changes {
            let finished = state.finished;
            return broken(
                Property::L,
                format!("the host waits behind {newest:?} for ever: call {finished} has finished"),
            );
        }
        Ok(())
    }
}

impl Ends {
    /// The host writes a view that holds from the next call on, in the place of the older of two. It waits until no call needs that older
    /// view.
    fn host(&self, state: &State, emit: &mut impl FnMut(&'static str, u8, State)) {
        let [older, newer] = state.views;
        if newer.serial > self.changes {
            return;
        }
        let needed = newer.first - 1;
        let waits = older.serial != 0 && state.finished < needed;
        if waits && !self.has(Mutant::HostDoesNotWait) {
            return;
        }
        let view = View {
            serial: newer.serial + 1,
            first: state.started + 1,
        };
        let mut next = *state;
        next.views = [newer, view];
        emit("the host writes view", view.serial, next);
    }

    /// A call begins, and closes the call two before it.
    fn begin_dispatch(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, u8, State),
    ) -> Result<(), Broken> {
        let call = state.started + 1;
        if call > self.calls {
            return Ok(());
        }
        let mut next = *state;
        next.started = call;
        for released in &mut next.released {
            *released = (*released).max(call.saturating_sub(SETS));
        }
        self.publish_finished(&mut next);
        let views = state.views;
        let found = views.iter().rev().find(|view| view.first <= call);
        let Some(view) = found.filter(|view| view.serial != 0) else {
            return broken(
                Property::VT,
                format!("call {call} finds no view in {views:?}"),
            );
        };
        next.call_mut(call).view = view.serial;
        next.running = call;
        emit("begins the dispatch of call", call, next);
        Ok(())
    }

    /// The next phase of a call begins, unless it is refused. Programs receive their calls in order.
    fn begin(&self, state: &State, call: u8, emit: &mut impl FnMut(&'static str, u8, State)) {
        let it = state.call(call);
        let open = |kind: usize| call > state.released[kind];
        let may = match it.stage {
            Stage::Sent => open(DISPATCH) && self.all_before_are_received(state, call),
            Stage::Dispatched => {
                open(COMBINE) && (!it.abandoned || self.has(Mutant::CombineOfAbandoned))
            }
            Stage::CombineSent => open(COMBINE),
            Stage::Unborn | Stage::Combined => false,
        };
        if may {
            let mut next = *state;
            next.running = call;
            emit("begins the next phase of call", call, next);
        }
    }

    fn all_before_are_received(&self, state: &State, call: u8) -> bool {
        (1..call).all(|other| other <= state.released[DISPATCH])
    }

    /// The running kernel ends. It has read its view until now.
    fn end(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, u8, State),
    ) -> Result<(), Broken> {
        let call = state.running;
        let it = *state.call(call);
        if !state.views.iter().any(|view| view.serial == it.view) {
            let views = state.views;
            return broken(
                Property::VT,
                format!("call {call} reads view {}, {views:?}", it.view),
            );
        }
        let mut next = *state;
        next.running = 0;
        next.call_mut(call).stage = match it.stage {
            Stage::Unborn => Stage::Sent,
            Stage::Sent => {
                next.released[DISPATCH] = call;
                Stage::Dispatched
            }
            Stage::Dispatched => Stage::CombineSent,
            Stage::CombineSent | Stage::Combined => {
                next.released[COMBINE] = call;
                next.set_ended(call);
                self.publish_finished(&mut next);
                Stage::Combined
            }
        };
        emit("ends a phase of call", call, next);
        Ok(())
    }

    /// The program abandons a call that was received, which ends the call: it has no combine.
    fn abandon(&self, state: &State, call: u8, emit: &mut impl FnMut(&'static str, u8, State)) {
        let it = state.call(call);
        let early = it.stage == Stage::Sent && self.has(Mutant::AbandonBeforeReceived);
        if it.abandoned || (it.stage != Stage::Dispatched && !early) {
            return;
        }
        let mut next = *state;
        next.call_mut(call).abandoned = true;
        // A closed call has ended already, and its place in `ended` may belong to a later call.
        let closed = call <= state.released[COMBINE] && !self.has(Mutant::AbandonOfReplaced);
        if !closed && !self.has(Mutant::AbandonEndsNothing) {
            next.set_ended(call);
            self.publish_finished(&mut next);
        }
        emit("abandons call", call, next);
    }

    /// Sets `finished` to the last call that has ended together with all calls before it.
    fn publish_finished(&self, state: &mut State) {
        let newest = state.started;
        let mut finished = newest.saturating_sub(SETS);
        let passed = if self.has(Mutant::LaterCombineEndsNothing) {
            0
        } else {
            state.released[COMBINE]
        };
        let over = |call: u8| state.is_ended(call) || call <= passed;
        while finished != newest && over(finished + 1) {
            finished += 1;
        }
        if self.has(Mutant::FinishedSkips) && state.is_ended(newest) {
            finished = newest;
        }
        state.finished = finished;
    }
}
