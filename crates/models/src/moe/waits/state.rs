//! What the model of waits remembers.

use super::Waits;
use crate::explore::Codec;

pub(super) const WAITS: usize = 3;

/// What the thread does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The wait begins.
    #[default]
    Begin,
    /// It takes the completions that have come.
    Poll,
    /// It finds out whether what it waits for is there.
    Find,
    /// It looks at the clock.
    Clock,
}

const STAGES: [Stage; 4] = [Stage::Begin, Stage::Poll, Stage::Find, Stage::Clock];

/// What one wait is for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Thing {
    /// It is there.
    pub(super) come: bool,
    /// Completions that have been taken, where it is one.
    pub(super) taken: u8,
    /// Ghost: it came before the deadline, or before the wait began.
    pub(super) in_time: bool,
}

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Ticks since the phase began.
    pub(super) now: u8,
    /// The wait that runs.
    pub(super) at: u8,
    pub(super) stage: Stage,
    /// The clock has said that the deadline has passed: this is the last look.
    pub(super) last: bool,
    pub(super) things: [Thing; WAITS],
    /// When it beat last, for all that the thread knows; ghost: when it did.
    pub(super) since: u8,
    pub(super) beat: u8,
    /// A newcomer has come in. Ghost: when it last heard this rank, or came in.
    pub(super) newcomer: bool,
    pub(super) heard: u8,
    /// Beats of the held call.
    pub(super) held: u8,
}

impl Waits {
    pub(super) fn code_state(&self, state: &mut State, codec: &mut impl Codec) {
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
        for thing in &mut state.things[..self.kinds.len()] {
            codec.flag(&mut thing.come);
            codec.byte(&mut thing.taken, 2);
            codec.flag(&mut thing.in_time);
        }
    }
}
