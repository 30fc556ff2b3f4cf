//! What the model remembers: both ends, and the streams between them.

use crate::explore::Codec;

pub(super) const STREAMS: usize = 3;
/// The most messages of a stream under way in one direction.
const UNDER_WAY: usize = 10;

/// Messages under way in one direction of a stream, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UnderWay {
    length: u8,
    /// The messages. Those from `length` on are zeros.
    all: [u8; UNDER_WAY],
}

impl UnderWay {
    pub(super) fn push(&mut self, one: u8) {
        self.all[usize::from(self.length)] = one;
        self.length += 1;
    }

    pub(super) fn pop(&mut self) -> Option<u8> {
        self.length = self.length.checked_sub(1)?;
        let first = self.all[0];
        self.all.rotate_left(1);
        self.all[UNDER_WAY - 1] = 0;
        Some(first)
    }

    fn code<C: Codec>(&mut self, codec: &mut C) {
        codec.byte(&mut self.length, 4);
        for one in &mut self.all[..usize::from(self.length)] {
            codec.byte(one, 3);
        }
    }
}

/// The state of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// True if the stream was made.
    pub(super) is_made: bool,
    /// True if the sender has the stream; true if the receiver has it.
    pub(super) at_sender: bool,
    pub(super) at_receiver: bool,
    /// True if the sender has heard the accepted number, which is the first word that comes back.
    pub(super) is_heard: bool,
    /// The number of the notice that the sender sends next over the stream.
    pub(super) next: u8,
    /// The number of taken notices that the receiver has reported over the stream.
    pub(super) told: u8,
    /// The numbers of the notices under way to the receiver.
    pub(super) there: UnderWay,
    /// The words under way to the sender: the accepted number, then counts of taken notices.
    pub(super) back: UnderWay,
}

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The number of the first notice that the sender keeps, and the number after the last one.
    pub(super) first: u8,
    pub(super) end: u8,
    /// The number after the last notice that was given to any stream.
    pub(super) sent: u8,
    /// The number of the notice that is due at the receiver.
    pub(super) accepted: u8,
    /// The number of notices that the receiver's program has taken.
    pub(super) taken: u8,
    /// The streams that may carry, in order, each as 1 + its number.
    pub(super) order: [u8; STREAMS],
    pub(super) ways: [Way; STREAMS],
}

impl State {
    /// Returns the number of the stream that carries.
    pub(super) fn carrier(&self) -> Option<usize> {
        usize::from(self.order[0]).checked_sub(1)
    }

    pub(super) fn enter(&mut self, way: u8) {
        if let Some(free) = self.order.iter_mut().find(|one| **one == 0) {
            *free = way + 1;
        }
    }

    pub(super) fn leave(&mut self, way: u8) {
        if let Some(at) = self.order.iter().position(|one| *one == way + 1) {
            self.order[at..].rotate_left(1);
            self.order[STREAMS - 1] = 0;
        }
    }

    pub(super) fn code<C: Codec>(&mut self, codec: &mut C) {
        let Self {
            first,
            end,
            sent,
            accepted,
            taken,
            order,
            ways,
        } = self;
        for count in [first, end, sent, accepted, taken] {
            codec.byte(count, 3);
        }
        for one in order {
            codec.byte(one, 2);
        }
        for way in ways {
            let Way {
                is_made,
                at_sender,
                at_receiver,
                is_heard,
                next,
                told,
                there,
                back,
            } = way;
            for flag in [is_made, at_sender, at_receiver, is_heard] {
                codec.flag(flag);
            }
            codec.byte(next, 3);
            codec.byte(told, 3);
            there.code(codec);
            back.code(codec);
        }
    }
}
