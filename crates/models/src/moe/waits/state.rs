//! What the model of waits remembers.

use super::configuration::Waits;
use crate::explore::Codec;

pub(super) const WAITS: usize = 3;

/// The next step of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The thread begins the wait.
    #[default]
    Begin,
    /// The thread takes the completions that have come.
    Poll,
    /// The thread finds out if the thing that it waits for is there.
    Find,
    /// The thread looks at the clock.
    Clock,
}

const STAGES: [Stage; 4] = [Stage::Begin, Stage::Poll, Stage::Find, Stage::Clock];

/// The thing that one wait waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Thing {
    /// True if the thing has come.
    pub(super) come: bool,
    /// The number of completions taken, if the thing is a completion.
    pub(super) taken: u8,
    /// Ghost: whether the thing came before the deadline, or before the wait began.
    pub(super) in_time: bool,
}

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// The number of ticks since the phase began.
    pub(super) now: u8,
    /// The index of the present wait.
    pub(super) at: u8,
    pub(super) stage: Stage,
    /// True if the clock has said that the deadline has passed, so that this is the last look.
    pub(super) last: bool,
    pub(super) things: [Thing; WAITS],
    /// The time of the last beat, as the thread knows it; ghost: the real time of that beat.
    pub(super) since: u8,
    pub(super) beat: u8,
    /// True if a newcomer has come in. Ghost: when the newcomer last heard this rank, or came in.
    pub(super) newcomer: bool,
    pub(super) heard: u8,
    /// The number of beats of the held call.
    pub(super) held: u8,
}

/// Codes a state of `model`.
pub(super) fn code(model: &Waits, state: &mut State, codec: &mut impl Codec) {
    let mut stage = state.stage as u8;
    codec.byte(&mut stage, 2);
    state.stage = STAGES[usize::from(stage)];
    codec.byte(&mut state.at, 2);
    codec.flag(&mut state.last);
    codec.flag(&mut state.newcomer);
    for tick in [
        &mut state.now,
        &mut state.since,
        &mut state.beat,
        &mut state.heard,
        &mut state.held,
    ] {
        codec.byte(tick, 4);
    }
    for thing in &mut state.things[..model.kinds.len()] {
        codec.flag(&mut thing.come);
        codec.byte(&mut thing.taken, 2);
        codec.flag(&mut thing.in_time);
    }
}
