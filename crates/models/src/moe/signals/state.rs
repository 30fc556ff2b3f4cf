//! What the model remembers: ranks with what peers wrote into their memory, and messages on their way.

use super::configuration::Signals;
pub(super) use super::pattern::{COMBINE, DISPATCH};
use crate::explore::Codec;

/// The most ranks, peers of a rank, FIFOs, and messages in a FIFO.
pub(super) const RANKS: usize = 3;
pub(super) const PEERS: usize = RANKS - 1;
const FIFOS: usize = RANKS * PEERS * 4;
const MESSAGES: usize = 6;

/// A run of calls of one set: `number` of them from `first`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) first: u8,
    pub(super) number: u8,
}

/// A data word of a signal.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DataWord {
    pub(super) call: u8,
    /// True if all rows came. Otherwise none came.
    pub(super) full: bool,
    /// Only in a mutant: "not sent" was written over the data word.
    pub(super) overwritten: bool,
}

/// The state of one peer at a rank: what the rank keeps of it, and what the peer wrote. Arrays are indexed by kind and set.
#[derive(Clone, Copy, Default)]
pub(super) struct Peer {
    pub(super) told: [u8; 2],
    pub(super) last: [u8; 4],
    pub(super) skipped: [Run; 4],
    pub(super) suspect: bool,
    /// True if data was posted that the HCA has not carried yet; true if a phase has waited for it in vain. They count only if `carried` is
    /// set.
    pub(super) flight: [bool; 4],
    pub(super) vain: bool,
    /// Bits of calls: those whose dispatch was accepted; ghost: by kind, those whose data was sent; those in which the caller left the peer
    /// out.
    pub(super) accepted: u8,
    pub(super) sent: [u8; 2],
    pub(super) masked: u8,
    /// The peer's combine of the open call: 0 no word, 1 a word without rows, 2 a word with all rows.
    pub(super) combined: u8,

    pub(super) word: [DataWord; 4],
    pub(super) slot: [u8; 4],
    pub(super) not_sent: [Run; 4],
    /// The call of the peer when it wrote its newest control word. It counts only where ranks read it.
    pub(super) alive: [u8; 4],
    pub(super) credit: [u8; 2],
}

impl Peer {
    /// Returns whether a word of the peer names a call for which `such` holds.
    pub(super) fn has_said(&self, such: impl Fn(u8) -> bool) -> bool {
        let data = self.word.iter().map(|word| word.call);
        data.chain(self.alive).any(such)
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct Rank {
    /// The index of the present phase in the program.
    pub(super) at: u8,
    /// Bits of the peers with which the phase is done.
    pub(super) done: u8,
    pub(super) released: [u8; 2],
    /// Bits of calls that ended aborted, and of calls that were refused.
    pub(super) aborted: u8,
    pub(super) refused: u8,
    /// True if the call at its begin has waited for its deadline, because it awaits no member.
    pub(super) paced: bool,
    /// The number of calls that the host will hold in vain after the last one that it held.
    pub(super) held: u8,
    /// Ghost: the number of calls begun without a member to await, or held in vain, since a deadline has passed, a word has come, or
    /// another rank has begun as many. It is at most 2.
    pub(super) ahead: u8,
    pub(super) peers: [Peer; PEERS],
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum MessageKind {
    /// A message with payload, data word and credits.
    #[default]
    Data,
    /// A message with payload alone, and a message with data word and credits alone.
    Payload,
    Word,
    /// A message with credits and the calls that were not sent.
    Control,
    /// Only in a mutant: "not sent" in the data word.
    Overwrite,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Message {
    pub(super) what: MessageKind,
    /// Of data, the call. Of a control message, the first call of the run.
    pub(super) call: u8,
    /// Of data, whether rows came. Of a control message, the length of the run.
    pub(super) number: u8,
    /// Of a control message, the present call of the sender, where ranks read it.
    pub(super) alive: u8,
    pub(super) released: [u8; 2],
}

#[derive(Clone, Copy, Default)]
pub(super) struct Fifo {
    len: u8,
    messages: [Message; MESSAGES],
}

impl Fifo {
    pub(super) fn push(&mut self, message: Message) {
        let place = usize::from(self.len);
        assert!(
            place < MESSAGES,
            "a FIFO with more than {MESSAGES} messages"
        );
        self.messages[place] = message;
        self.len += 1;
    }

    /// Returns whether data is on its way in this FIFO.
    pub(super) fn has_data(&self) -> bool {
        let messages = &self.messages[..usize::from(self.len)];
        messages
            .iter()
            .any(|message| message.what == MessageKind::Data)
    }

    pub(super) fn front(&self) -> Option<Message> {
        (self.len > 0).then(|| self.messages[0])
    }

    pub(super) fn pop(&mut self) {
        self.len -= 1;
        self.messages.copy_within(1.., 0);
    }
}

/// Everything that a step may change.
#[derive(Clone, Copy, Default)]
pub struct State {
    /// True if the link of rank 0 is cut; true if it was cut at any time.
    pub(super) cut: bool,
    pub(super) was_cut: bool,
    pub(super) ranks: [Rank; RANKS],
    pub(super) fifos: [Fifo; FIFOS],
    /// How many timeouts, aborts, refusals and masks may still happen.
    pub(super) timeouts: u8,
    pub(super) aborts: u8,
    pub(super) refusals: u8,
    pub(super) masks: u8,
}

/// Codes a state of `signals`.
pub(super) fn code(signals: &Signals, state: &mut State, codec: &mut impl Codec) {
    let call = if signals.wraps_from.is_some() { 4 } else { 3 };
    let bits = u32::from(signals.calls) + 1;
    if signals.cut().is_some() {
        codec.flag(&mut state.cut);
        codec.flag(&mut state.was_cut);
    }
    codec.byte(&mut state.timeouts, 2);
    codec.byte(&mut state.aborts, 2);
    codec.byte(&mut state.refusals, 2);
    codec.byte(&mut state.masks, 2);
    for rank in &mut state.ranks[..signals.ranks] {
        codec.byte(&mut rank.at, 5);
        codec.byte(&mut rank.done, 2);
        codec.byte(&mut rank.aborted, bits);
        codec.byte(&mut rank.refused, bits);
        if signals.paces {
            codec.flag(&mut rank.paced);
            codec.byte(&mut rank.held, 2);
            codec.byte(&mut rank.ahead, 2);
        }
        for closed in &mut rank.released {
            codec.byte(closed, call);
        }
        for peer in &mut rank.peers[..signals.ranks - 1] {
            code_peer(peer, codec, call, bits);
            if signals.carried {
                peer.flight.iter_mut().for_each(|flight| codec.flag(flight));
                codec.flag(&mut peer.vain);
            }
            if signals.tells_calls() {
                for word in &mut peer.alive {
                    codec.byte(word, call);
                }
            }
        }
    }
    let fifos = signals.fifos();
    for fifo in &mut state.fifos[..fifos] {
        codec.byte(&mut fifo.len, 4);
        for message in &mut fifo.messages[..usize::from(fifo.len)] {
            code_message(message, codec, call);
            if signals.tells_calls() {
                codec.byte(&mut message.alive, call);
            }
        }
    }
}

fn code_peer(peer: &mut Peer, codec: &mut impl Codec, call: u32, bits: u32) {
    for index in 0..2 {
        codec.byte(&mut peer.told[index], call);
        codec.byte(&mut peer.sent[index], bits);
        codec.byte(&mut peer.credit[index], call);
    }
    codec.flag(&mut peer.suspect);
    codec.byte(&mut peer.accepted, bits);
    codec.byte(&mut peer.masked, bits);
    codec.byte(&mut peer.combined, 2);
    for index in 0..4 {
        codec.byte(&mut peer.last[index], call);
        codec.byte(&mut peer.slot[index], call);
        for run in [&mut peer.skipped[index], &mut peer.not_sent[index]] {
            codec.byte(&mut run.first, call);
            codec.byte(&mut run.number, call);
        }
        let word = &mut peer.word[index];
        codec.byte(&mut word.call, call);
        codec.flag(&mut word.full);
        codec.flag(&mut word.overwritten);
    }
}

fn code_message(message: &mut Message, codec: &mut impl Codec, call: u32) {
    const ALL: [MessageKind; 5] = [
        MessageKind::Data,
        MessageKind::Payload,
        MessageKind::Word,
        MessageKind::Control,
        MessageKind::Overwrite,
    ];
    let mut what = message.what as u8;
    codec.byte(&mut what, 3);
    message.what = ALL[usize::from(what)];
    codec.byte(&mut message.call, call);
    codec.byte(&mut message.number, call);
    for closed in &mut message.released {
        codec.byte(closed, call);
    }
}
