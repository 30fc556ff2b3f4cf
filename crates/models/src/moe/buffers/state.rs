//! What the model of buffers remembers.

use super::configuration::{Buffers, Link};
use crate::explore::Codec;

/// The most peers, which are two sick ones and H, and the most items and open calls.
pub(super) const PEERS: usize = 3;
const ITEMS: usize = 6;
const OPEN: usize = 2;

const LINKS: [Link; 4] = [Link::Up, Link::Stopped, Link::OneWay, Link::Dead];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Qp {
    #[default]
    Rts,
    /// The host has asked for Err, but the HCA still reads.
    Ending,
    Err,
}

const QPS: [Qp; 3] = [Qp::Rts, Qp::Ending, Qp::Err];

/// An item: rows on their way to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) set: u8,
    pub(super) buffer: u8,
    /// Ghost: whether the buffer has the rows of a later call.
    pub(super) refilled: bool,
    /// Ghost: whether a later item of the set has landed.
    pub(super) passed: bool,
}

/// A short list without memory of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List<T, const N: usize> {
    len: u8,
    all: [T; N],
}

impl<T: Copy + Default, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        Self {
            len: 0,
            all: [T::default(); N],
        }
    }
}

impl<T: Copy + Default, const N: usize> List<T, N> {
    pub(super) fn all(&self) -> &[T] {
        &self.all[..usize::from(self.len)]
    }

    pub(super) fn all_mut(&mut self) -> &mut [T] {
        &mut self.all[..usize::from(self.len)]
    }

    pub(super) fn push(&mut self, value: T) {
        self.all[usize::from(self.len)] = value;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.all.copy_within(at + 1.., at);
        self.len -= 1;
    }

    fn code<C: Codec>(&mut self, codec: &mut C, code: impl Fn(&mut T, &mut C)) {
        codec.byte(&mut self.len, 3);
        for value in self.all_mut() {
            code(value, codec);
        }
    }
}

/// What the sender knows of one peer, and the state of the network between them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    pub(super) link: Link,
    /// How often the link may still fail.
    pub(super) failures: u8,
    pub(super) suspect: bool,
    /// True if the work in flight to the peer was waited for in vain.
    pub(super) vain: bool,
    /// Ghost: the number of phases that have waited for that work.
    pub(super) waits: u8,
    pub(super) masked: bool,
    pub(super) items: List<Item, ITEMS>,
    /// The number of words in the ring.
    pub(super) words: u8,
    /// For each set, whether the peer has not closed the last call.
    pub(super) open: [bool; 2],
    pub(super) qp: Qp,
    /// Ghost: whether bytes of the life before are on the wire.
    pub(super) stray: bool,
}

/// A call that this rank has sent and not received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) buffer: u8,
    /// True if the call ended without a buffer.
    pub(super) empty: bool,
    /// Ghost: whether the buffer has the rows of a later call.
    pub(super) spoiled: bool,
}

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// The set of the next call.
    pub(super) set: u8,
    pub(super) open: List<Open, OPEN>,
    pub(super) peers: [Peer; PEERS],
    /// The number of calls at which links may still fail, and whether a link has failed at this call.
    pub(super) moments: u8,
    pub(super) fresh: bool,
    /// The number of QPs that the host may still end, and of peers that may still be taken for late.
    pub(super) ends: u8,
    pub(super) suspicions: u8,
}

impl Peer {
    fn code(&mut self, codec: &mut impl Codec) {
        let (mut link, mut qp) = (self.link as u8, self.qp as u8);
        codec.byte(&mut link, 2);
        codec.byte(&mut qp, 2);
        (self.link, self.qp) = (LINKS[usize::from(link)], QPS[usize::from(qp)]);
        codec.byte(&mut self.failures, 2);
        codec.byte(&mut self.waits, 2);
        codec.byte(&mut self.words, 3);
        for flag in [
            &mut self.suspect,
            &mut self.vain,
            &mut self.masked,
            &mut self.stray,
        ] {
            codec.flag(flag);
        }
        for open in &mut self.open {
            codec.flag(open);
        }
        self.items.code(codec, |item, codec| {
            codec.byte(&mut item.set, 1);
            codec.byte(&mut item.buffer, 3);
            codec.flag(&mut item.refilled);
            codec.flag(&mut item.passed);
        });
    }
}

/// Codes a state of `model`.
pub(super) fn code(model: &Buffers, state: &mut State, codec: &mut impl Codec) {
    codec.byte(&mut state.set, 1);
    codec.byte(&mut state.moments, 2);
    codec.byte(&mut state.ends, 2);
    codec.byte(&mut state.suspicions, 2);
    codec.flag(&mut state.fresh);
    state.open.code(codec, |open, codec| {
        codec.byte(&mut open.buffer, 3);
        codec.flag(&mut open.empty);
        codec.flag(&mut open.spoiled);
    });
    for peer in &mut state.peers[..=model.sick] {
        peer.code(codec);
    }
}
