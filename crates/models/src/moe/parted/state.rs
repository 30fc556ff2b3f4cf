//! What the model remembers: two ends with what the other end wrote into their memory, the packets on their way, and the record.

use super::configuration::Parted;
use super::numbers::Run;
use crate::explore::Codec;

pub(super) const MESSAGES: usize = 10;
/// An index that is not of any call: the value of a limit that is open.
pub(super) const OPEN: u8 = 15;

/// How far a phase is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Idle,
    /// The call has its number, and waits for the limit.
    Held,
    /// The call has its view.
    Entered,
    /// The phase has sent its credits, and waits for the other end's credit.
    Waits,
    /// The phase has found out about the other end, and reads.
    Reading,
}

const STAGES: [Stage; 5] = [
    Stage::Idle,
    Stage::Held,
    Stage::Entered,
    Stage::Waits,
    Stage::Reading,
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Qp {
    #[default]
    Rts,
    Err,
    /// The QP was reset: it has published its packet numbers, and takes nothing yet.
    Fresh,
}

const QPS: [Qp; 3] = [Qp::Rts, Qp::Err, Qp::Fresh];

/// The value of a data word, or the payload in a slot. In a slot, `call` counts from the first call on. Epoch 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) epoch: u8,
    pub(super) call: u8,
}

/// A signal, which the other end has written. `credit`: both zero means no credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signal {
    pub(super) data: Data,
    pub(super) credit: [u8; 2],
    pub(super) not_sent: Run,
}

/// What kernels keep of the other end. Arrays are indexed by kind and set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) last: [u8; 4],
    pub(super) sent: [bool; 4],
    pub(super) skip: [Run; 4],
    pub(super) told: [u8; 2],
    /// 1 + the life of the QP that carries the last data, or 0.
    pub(super) ticket: [u8; 4],
    pub(super) suspect: bool,
    /// True if a word has come since the other end became a suspect.
    pub(super) heard: bool,
}

/// A view, as one of the two ends has it. `first` is an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) first: u8,
    pub(super) epoch: u8,
    pub(super) united: bool,
}

/// The handle of a call in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handle {
    /// The number of calls right before this one that ended aborted. The call reports them again.
    pub(super) untold: u8,
    pub(super) united: bool,
    pub(super) aborted: bool,
    pub(super) epoch: u8,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End {
    /// The index of the present phase in the program.
    pub(super) at: u8,
    pub(super) stage: Stage,
    /// The handles, by set.
    pub(super) handles: [Handle; 2],
    pub(super) released: [u8; 2],
    /// Ghost: the released calls as indices, and, by kind, bits of the calls whose data was posted.
    pub(super) closed: [u8; 2],
    pub(super) posted: [u8; 2],
    pub(super) peer: Peer,
    pub(super) signals: [Signal; 4],
    pub(super) slots: [Data; 4],

    /// The index of the last call that may start.
    pub(super) limit: u8,
    pub(super) promised: bool,
    /// The two views, the older one first.
    pub(super) views: [View; 2],
    /// The number of newest calls in a row that have ended aborted.
    pub(super) aborted: u8,
    /// True if kernels get guards of the other end.
    pub(super) open: bool,
    pub(super) qp: Qp,
    /// The life of the QP here, and the life of the other end's QP to which it is connected. Packets carry both.
    pub(super) own: u8,
    pub(super) other: u8,
    /// True if the end has cleared since the pair was parted; true if it has connected since.
    pub(super) cleared: bool,
    pub(super) connected: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Message {
    pub(super) is_data: bool,
    /// The epoch of the call that posted the message.
    pub(super) epoch: u8,
    pub(super) call: u8,
    pub(super) index: u8,
    pub(super) credit: [u8; 2],
    pub(super) not_sent: Run,
    pub(super) from: u8,
    pub(super) to: u8,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fifo {
    pub(super) len: u8,
    pub(super) messages: [Message; MESSAGES],
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

    pub(super) fn front(&self) -> Option<Message> {
        (self.len > 0).then(|| self.messages[0])
    }

    pub(super) fn pop(&mut self) {
        self.len -= 1;
        self.messages.copy_within(1.., 0);
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Message) -> bool) {
        let mut kept = 0;
        for place in 0..usize::from(self.len) {
            let message = self.messages[place];
            if keep(&message) {
                self.messages[kept] = message;
                kept += 1;
            }
        }
        self.len = u8::try_from(kept).expect("no more than before");
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Change {
    #[default]
    None,
    Part,
    Unite,
}

const CHANGES: [Change; 3] = [Change::None, Change::Part, Change::Unite];

/// A rank that is a member with both ends, as far as they see it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Third {
    pub(super) at: u8,
    pub(super) held: bool,
    pub(super) limit: u8,
    pub(super) promised: bool,
}

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    pub(super) ends: [End; 2],
    pub(super) third: Third,
    /// The FIFOs by sender, and by kind and set.
    pub(super) fifos: [[Fifo; 4]; 2],
    pub(super) record: View,
    pub(super) change: Change,
    /// True if something has failed since both ends have cleared, or since a view has united the connected pair.
    pub(super) disturbed: bool,
    /// The index of the first call after the leap; 0: it has not happened yet.
    pub(super) leapt: u8,
    /// How often each of these may still happen.
    pub(super) breaks: u8,
    pub(super) retries: u8,
    pub(super) timeouts: u8,
    pub(super) aborts: u8,
}

impl State {
    pub(super) fn reset(&mut self, me: usize) {
        let end = &mut self.ends[me];
        end.qp = Qp::Fresh;
        end.own += 1;
        end.connected = false;
    }

    /// Returns whether end `me` takes packets of the other end's present life.
    pub(super) fn is_joined(&self, me: usize) -> bool {
        let (end, other) = (&self.ends[me], &self.ends[1 - me]);
        end.qp == Qp::Rts && end.other == other.own && other.qp == Qp::Rts
    }

    /// Returns whether the sender still has the life that posted the message.
    pub(super) fn is_of(&self, from: usize, message: &Message) -> bool {
        let end = &self.ends[from];
        end.qp == Qp::Rts && end.own == message.from && end.other == message.to
    }

    /// Returns whether the receiver may still come to the life for which the message is.
    pub(super) fn comes(&self, to: usize, message: &Message) -> bool {
        let end = &self.ends[to];
        end.qp == Qp::Fresh && end.own == message.to
    }
}

/// Codes one bit for a value that is missing, which is the default.
fn some<T: Default + PartialEq, C: Codec>(
    value: &mut T,
    codec: &mut C,
    code: impl Fn(&mut T, &mut C),
) {
    let mut any = *value != T::default();
    codec.flag(&mut any);
    if any {
        code(value, codec)
    } else {
        *value = T::default();
    }
}

fn code_data<C: Codec>(data: &mut Data, codec: &mut C) {
    some(data, codec, |data, codec| {
        codec.byte(&mut data.epoch, 3);
        codec.byte(&mut data.call, 8);
    });
}

fn code_run<C: Codec>(run: &mut Run, codec: &mut C) {
    some(run, codec, |run, codec| {
        codec.byte(&mut run.first, 8);
        codec.byte(&mut run.number, 4);
    });
}

fn code_pair<C: Codec>(pair: &mut [u8; 2], codec: &mut C) {
    some(pair, codec, |pair, codec| {
        for number in pair {
            codec.byte(number, 8);
        }
    });
}

fn code_view(view: &mut View, codec: &mut impl Codec) {
    codec.byte(&mut view.first, 4);
    codec.byte(&mut view.epoch, 3);
    codec.flag(&mut view.united);
}

fn code_peer<C: Codec>(peer: &mut Peer, codec: &mut C) {
    some(peer, codec, |peer, codec| {
        for i in 0..4 {
            codec.flag(&mut peer.sent[i]);
            some(&mut peer.last[i], codec, |last, codec| codec.byte(last, 8));
            some(&mut peer.ticket[i], codec, |life, codec| {
                codec.byte(life, 4);
            });
            code_run(&mut peer.skip[i], codec);
        }
        code_pair(&mut peer.told, codec);
        codec.flag(&mut peer.suspect);
        codec.flag(&mut peer.heard);
    });
}

impl End {
    fn code(&mut self, codec: &mut impl Codec) {
        codec.byte(&mut self.at, 5);
        let mut stage = self.stage as u8;
        codec.byte(&mut stage, 3);
        self.stage = STAGES[usize::from(stage)];
        for handle in &mut self.handles {
            codec.byte(&mut handle.untold, 2);
            codec.flag(&mut handle.united);
            codec.flag(&mut handle.aborted);
            codec.byte(&mut handle.epoch, 3);
        }
        code_pair(&mut self.released, codec);
        for kind in 0..2 {
            codec.byte(&mut self.closed[kind], 4);
            codec.byte(&mut self.posted[kind], 8);
        }
        code_peer(&mut self.peer, codec);
        for signal in &mut self.signals {
            some(signal, codec, |signal, codec| {
                code_data(&mut signal.data, codec);
                code_pair(&mut signal.credit, codec);
                code_run(&mut signal.not_sent, codec);
            });
        }
        for slot in &mut self.slots {
            code_data(slot, codec);
        }
        codec.byte(&mut self.limit, 4);
        codec.flag(&mut self.promised);
        for view in &mut self.views {
            code_view(view, codec);
        }
        codec.byte(&mut self.aborted, 2);
        codec.flag(&mut self.open);
        let mut qp = self.qp as u8;
        codec.byte(&mut qp, 2);
        self.qp = QPS[usize::from(qp)];
        codec.byte(&mut self.own, 4);
        codec.byte(&mut self.other, 4);
        codec.flag(&mut self.cleared);
        codec.flag(&mut self.connected);
    }
}

impl Message {
    fn code(&mut self, codec: &mut impl Codec) {
        codec.flag(&mut self.is_data);
        codec.byte(&mut self.epoch, 3);
        codec.byte(&mut self.call, 8);
        codec.byte(&mut self.index, 4);
        code_pair(&mut self.credit, codec);
        code_run(&mut self.not_sent, codec);
        codec.byte(&mut self.from, 4);
        codec.byte(&mut self.to, 4);
    }
}

/// Codes a state of `model`.
pub(super) fn code(model: &Parted, state: &mut State, codec: &mut impl Codec) {
    for end in &mut state.ends {
        end.code(codec);
    }
    if model.third {
        codec.byte(&mut state.third.at, 5);
        codec.flag(&mut state.third.held);
        codec.byte(&mut state.third.limit, 4);
        codec.flag(&mut state.third.promised);
    }
    for fifo in state.fifos.as_flattened_mut() {
        codec.byte(&mut fifo.len, 4);
        for message in &mut fifo.messages[..usize::from(fifo.len)] {
            message.code(codec);
        }
    }
    code_view(&mut state.record, codec);
    let mut change = state.change as u8;
    codec.byte(&mut change, 2);
    state.change = CHANGES[usize::from(change)];
    codec.flag(&mut state.disturbed);
    codec.byte(&mut state.leapt, 4);
    for count in [
        &mut state.breaks,
        &mut state.retries,
        &mut state.timeouts,
        &mut state.aborts,
    ] {
        codec.byte(count, 3);
    }
}
