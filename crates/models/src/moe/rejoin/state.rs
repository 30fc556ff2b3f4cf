//! What the model of rejoin remembers: a survivor, the generation that is dropped, the one that joins, messages.

use crate::explore::Codec;

pub(super) const MESSAGES: usize = 12;

/// The writer or the running rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Who {
    #[default]
    Nobody,
    Survivor,
    Old,
    Joiner,
}

const WHO: [Who; 4] = [Who::Nobody, Who::Survivor, Who::Old, Who::Joiner];

/// What one side does next with its call. `Ahead`: in epoch 2 it has not sent its first call yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum At {
    #[default]
    Ahead,
    Send,
    Receive,
    Reading,
}

const AT: [At; 4] = [At::Ahead, At::Send, At::Receive, At::Reading];

/// How far the change is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
pub(super) enum Stage {
    #[default]
    Old,
    /// The first call of epoch 2 is fixed.
    Fixed,
    Fenced,
    /// Old calls are finished.
    Grace,
    /// What A left is cleared, and B is connected.
    Joined,
}

pub(super) const STAGES: [Stage; 5] = [
    Stage::Old,
    Stage::Fixed,
    Stage::Fenced,
    Stage::Grace,
    Stage::Joined,
];

/// One side. Arrays are by set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) call: u8,
    pub(super) at: At,
    pub(super) released: u8,
    pub(super) last: [u8; 2],
    pub(super) credit: u8,
    /// Data words: epoch, call.
    pub(super) word: [(u8, u8); 2],
    pub(super) slot: [(Who, u8); 2],
    /// First and last call not sent.
    pub(super) not_sent: [(u8, u8); 2],
}

impl Side {
    pub(super) fn new(call: u8) -> Self {
        Self {
            call,
            at: At::Send,
            released: call - 1,
            ..Self::default()
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// 0: control.
    pub(super) epoch: u8,
    /// Data: the call. Control: first and last call not sent.
    pub(super) call: u8,
    pub(super) last: u8,
    pub(super) credit: u8,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fifo {
    pub(super) len: u8,
    pub(super) messages: [Message; MESSAGES],
}

/// FIFOs by set, of each way.
pub(super) const TO_SURVIVOR: usize = 0;
pub(super) const TO_OLD: usize = 1;
pub(super) const FROM_JOINER: usize = 2;
pub(super) const TO_JOINER: usize = 3;

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    pub(super) survivor: Side,
    pub(super) old: Side,
    pub(super) joiner: Side,
    pub(super) stage: Stage,
    /// First call of epoch 2; 0: not fixed.
    pub(super) first: u8,
    pub(super) fifos: [[Fifo; 2]; 4],
}

pub(super) fn code_side(side: &mut Side, codec: &mut impl Codec) {
    let mut at = side.at as u8;
    codec.byte(&mut at, 2);
    side.at = AT[usize::from(at)];
    for field in [&mut side.call, &mut side.released, &mut side.credit] {
        codec.byte(field, 4);
    }
    for set in 0..2 {
        let mut who = side.slot[set].0 as u8;
        codec.byte(&mut who, 2);
        side.slot[set].0 = WHO[usize::from(who)];
        for field in [
            &mut side.slot[set].1,
            &mut side.last[set],
            &mut side.word[set].1,
            &mut side.not_sent[set].0,
            &mut side.not_sent[set].1,
        ] {
            codec.byte(field, 4);
        }
        codec.byte(&mut side.word[set].0, 2);
    }
}
