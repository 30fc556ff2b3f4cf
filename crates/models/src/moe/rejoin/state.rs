//! What the model of rejoin remembers: a survivor, the generation that is dropped, the generation that joins, and messages.

use crate::explore::Codec;

pub(super) const MESSAGES: usize = 12;

/// The rank that has written something, or that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Who {
    #[default]
    Nobody,
    Survivor,
    Old,
    Joiner,
}

const WHO: [Who; 4] = [Who::Nobody, Who::Survivor, Who::Old, Who::Joiner];

/// The next step of a rank in its call. `Ahead`: it is in epoch 2 and has not sent its first call yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum At {
    #[default]
    Ahead,
    Send,
    Receive,
    Reading,
}

const AT: [At; 4] = [At::Ahead, At::Send, At::Receive, At::Reading];

/// How far the change of members is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
pub(super) enum Stage {
    #[default]
    Old,
    /// The first call of epoch 2 is fixed.
    Fixed,
    Fenced,
    /// The calls of the old epoch are finished.
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

/// The state of one rank. Arrays are indexed by set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) call: u8,
    pub(super) at: At,
    pub(super) released: u8,
    pub(super) last: [u8; 2],
    pub(super) credit: u8,
    /// The data words, each as epoch and call.
    pub(super) word: [(u8, u8); 2],
    pub(super) slot: [(Who, u8); 2],
    /// The first and last call that were not sent.
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
    /// The epoch of the data, or 0 for a control message.
    pub(super) epoch: u8,
    /// Of data, the call. Of a control message, the first and last call that were not sent.
    pub(super) call: u8,
    pub(super) last: u8,
    pub(super) credit: u8,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fifo {
    pub(super) len: u8,
    pub(super) messages: [Message; MESSAGES],
}

/// The indices of the FIFOs, by the way that they go. Each has one FIFO for each set.
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
    /// The first call of epoch 2; 0: it is not fixed yet.
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
