//! What the model remembers: both ends, the ring, and the writes and credits under way.

use crate::explore::Codec;

pub(super) const RING: usize = 3;
/// The most writes, or credits, under way.
const UNDER_WAY: usize = 30;

/// The end that writes records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sender {
    /// The number of the record that the sender posts next.
    pub(super) next: u8,
    /// The number of records whose writes have completed.
    pub(super) completed: u8,
    /// The number below which the sender may post records.
    pub(super) credit: u8,
    pub(super) connection: u8,
    /// True if the sender's QP has failed and was not made again yet.
    pub(super) is_broken: bool,
}

/// The end that takes records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Receiver {
    /// The number of records taken and delivered.
    pub(super) taken: u8,
    pub(super) connection: u8,
    /// The number of taken records that a credit has reported.
    pub(super) told: u8,
    /// After a break, 1 + the number of records that the receiver says it has accepted; else 0.
    pub(super) answer: u8,
}

/// A slot of the ring. Each field is 1 + the number of the record whose header or body the slot contains, or 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) header: u8,
    pub(super) body: u8,
}

/// A write of half a record: its body or its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) connection: u8,
    pub(super) is_header: bool,
    pub(super) number: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Credit {
    pub(super) connection: u8,
    pub(super) count: u8,
}

/// A list without memory of a heap, the oldest entry first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnderWay<T> {
    length: u8,
    /// The entries. Those from `length` on are defaults.
    all: [T; UNDER_WAY],
}

impl<T: Copy + Default> Default for UnderWay<T> {
    fn default() -> Self {
        Self {
            length: 0,
            all: [T::default(); UNDER_WAY],
        }
    }
}

impl<T: Copy + Default> UnderWay<T> {
    pub(super) fn all(&self) -> &[T] {
        &self.all[..usize::from(self.length)]
    }

    pub(super) fn push(&mut self, one: T) {
        self.all[usize::from(self.length)] = one;
        self.length += 1;
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.all.copy_within(at + 1..usize::from(self.length), at);
        self.length -= 1;
        self.all[usize::from(self.length)] = T::default();
    }

    fn code<C: Codec>(&mut self, codec: &mut C, one: impl Fn(&mut T, &mut C)) {
        codec.byte(&mut self.length, 5);
        for each in &mut self.all[..usize::from(self.length)] {
            one(each, codec);
        }
    }
}

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) ring: [Record; RING],
    pub(super) writes: UnderWay<Write>,
    pub(super) credits: UnderWay<Credit>,
    /// How often the connection may still break.
    pub(super) breaks: u8,
}

impl State {
    pub(super) fn code<C: Codec>(&mut self, codec: &mut C) {
        let Sender {
            next,
            completed,
            credit,
            connection,
            is_broken,
        } = &mut self.sender;
        for count in [next, completed, credit] {
            codec.byte(count, 4);
        }
        codec.byte(connection, 2);
        codec.flag(is_broken);
        let Receiver {
            taken,
            connection,
            told,
            answer,
        } = &mut self.receiver;
        for count in [taken, told, answer] {
            codec.byte(count, 4);
        }
        codec.byte(connection, 2);
        for record in &mut self.ring {
            codec.byte(&mut record.header, 4);
            codec.byte(&mut record.body, 4);
        }
        self.writes.code(codec, |write, codec| {
            codec.byte(&mut write.connection, 2);
            codec.flag(&mut write.is_header);
            codec.byte(&mut write.number, 4);
        });
        self.credits.code(codec, |credit, codec| {
            codec.byte(&mut credit.connection, 2);
            codec.byte(&mut credit.count, 4);
        });
        codec.byte(&mut self.breaks, 2);
    }
}
