//! What the model of ends remembers. Calls and views count from 1.

use super::configuration::Ends;
use crate::explore::Codec;

pub(super) const CALLS: usize = 7;
/// The number of slot sets, and of places of views.
pub(super) const SETS: u8 = 2;

/// How far a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Unborn,
    /// The call's dispatch is sent.
    Sent,
    Dispatched,
    /// The call's combine is sent.
    CombineSent,
    Combined,
}

const STAGES: [Stage; 5] = [
    Stage::Unborn,
    Stage::Sent,
    Stage::Dispatched,
    Stage::CombineSent,
    Stage::Combined,
];

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) stage: Stage,
    pub(super) abandoned: bool,
    /// The view in which the call runs.
    pub(super) view: u8,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct View {
    /// The number of the view among all views; 0: it is not written.
    pub(super) serial: u8,
    pub(super) first: u8,
}

/// Everything that a step may change. Arrays of two are indexed by kind (dispatch, combine) or by set.
#[derive(Clone, Copy, Default)]
pub struct State {
    pub(super) calls: [Call; CALLS],
    /// The last call that has begun.
    pub(super) started: u8,
    /// The call whose kernel runs, or 0 if none does. The stage of the call is the one before that kernel.
    pub(super) running: u8,
    /// The newest closed call, by kind.
    pub(super) released: [u8; 2],
    /// The newest call of each set that has ended with its last phase.
    pub(super) ended: [u8; 2],
    /// The word `finished`, which the host reads.
    pub(super) finished: u8,
    /// The two views, the older one first.
    pub(super) views: [View; 2],
}

impl State {
    pub(super) fn call(&self, number: u8) -> &Call {
        &self.calls[usize::from(number) - 1]
    }

    pub(super) fn call_mut(&mut self, number: u8) -> &mut Call {
        &mut self.calls[usize::from(number) - 1]
    }

    pub(super) fn is_ended(&self, number: u8) -> bool {
        self.ended[usize::from(number % SETS)] == number
    }

    pub(super) fn set_ended(&mut self, number: u8) {
        self.ended[usize::from(number % SETS)] = number;
    }
}

/// Codes a state of `model`.
pub(super) fn code(model: &Ends, state: &mut State, codec: &mut impl Codec) {
    for call in &mut state.calls[..usize::from(model.calls)] {
        let mut stage = call.stage as u8;
        codec.byte(&mut stage, 3);
        call.stage = STAGES[usize::from(stage)];
        codec.flag(&mut call.abandoned);
        codec.byte(&mut call.view, 3);
    }
    codec.byte(&mut state.started, 3);
    codec.byte(&mut state.running, 3);
    codec.byte(&mut state.finished, 3);
    for number in state.released.iter_mut().chain(&mut state.ended) {
        codec.byte(number, 3);
    }
    for view in &mut state.views {
        codec.byte(&mut view.serial, 3);
        codec.byte(&mut view.first, 4);
    }
}
