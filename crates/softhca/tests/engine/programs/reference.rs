//! The sequential model: WQEs one after the other, as the specification describes them.
//!
//! A byte that the specification leaves open (the target of an operation that failed half way) is `None` when it is loaded.

use super::atomics::{Bytes, apply, known};
use super::program::{
    Damage, Key, LOG_RECEIVES, MEMORY, Operation, Piece, Receive, Rights, Segment, Setup, With,
    Work, Wqe,
};
use std::collections::VecDeque;
use std::ops::Range;

/// A completion, in the order of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    Sent {
        index: u16,
        opcode: u8,
        bytes: u32,
    },
    SendFailed {
        index: u16,
        opcode: u8,
        syndrome: u8,
    },
    Received {
        index: u16,
        kind: u8,
        bytes: u32,
        with: u32,
        solicited: bool,
    },
    ReceiveFailed {
        index: u16,
        syndrome: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Error,
    Reset,
}

/// One end.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) memory: Vec<u8>,
    /// Bytes that the specification leaves open; what [`Self::memory`] says of them means nothing.
    pub(crate) open: Vec<bool>,
    pub(crate) state: State,
    rights: Rights,
    receives: VecDeque<(u16, Receive)>,
    next_send: u16,
    next_receive: u16,
    /// Completions of sends and of receives since they were last taken.
    pub(crate) sent: Vec<Completion>,
    pub(crate) received: Vec<Completion>,
}

/// Both ends.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) sides: [Side; 2],
    /// Two things were wrong with one WQE: which of them is seen first is open, and so is what follows.
    pub(crate) ambiguous: bool,
}

const LENGTH: u8 = 0x01;
const QP_OPERATION: u8 = 0x02;
const PROTECTION: u8 = 0x04;
const FLUSHED: u8 = 0x05;
const ACCESS: u8 = 0x11;
const REMOTE_INVALID: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;
const REMOTE_OPERATION: u8 = 0x14;
const RETRIES: u8 = 0x15;
const RNR_RETRIES: u8 = 0x16;

pub(crate) const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 2;
const REMOTE_READ: u32 = 4;
const REMOTE_ATOMIC: u32 = 8;
const LOCAL_READ: u32 = 0;

const LONGEST: u64 = 1 << 30;

/// Why an operation fails: the requester's syndrome, and what becomes of the responder.
struct Failure {
    syndrome: u8,
    /// The responder has refused: it is in error as well.
    refused: bool,
}

const fn local(syndrome: u8) -> Failure {
    Failure {
        syndrome,
        refused: false,
    }
}

const fn refused(syndrome: u8) -> Failure {
    Failure {
        syndrome,
        refused: true,
    }
}

impl Side {
    fn new(rights: Rights, start: u16, memory: Vec<u8>) -> Self {
        Self {
            memory,
            open: vec![false; usize::try_from(MEMORY).unwrap()],
            state: State::Ready,
            rights,
            receives: VecDeque::new(),
            next_send: start,
            next_receive: start,
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    /// Receive WQEs that still fit into the ring.
    pub(crate) fn room(&self) -> usize {
        (1 << LOG_RECEIVES) - self.receives.len()
    }

    /// No receive WQE waits for a message.
    pub(crate) fn is_empty(&self) -> bool {
        self.receives.is_empty()
    }

    fn post_receive(&mut self, receive: &Receive) {
        self.receives
            .push_back((self.next_receive, receive.clone()));
        self.next_receive = self.next_receive.wrapping_add(1);
    }

    pub(crate) fn enter_error(&mut self) {
        self.state = State::Error;
        for (index, _) in self.receives.drain(..) {
            self.received.push(Completion::ReceiveFailed {
                index,
                syndrome: FLUSHED,
            });
        }
    }

    pub(crate) fn reset(&mut self) {
        self.state = State::Reset;
        self.receives.clear();
        self.next_send = 0;
        self.next_receive = 0;
    }

    /// Returns the bytes that a key gives, if it gives them.
    fn resolve(key: Key, at: u64, bytes: u64, need: u32) -> Option<Range<usize>> {
        let access = key.access()?;
        let end = at.checked_add(bytes)?;
        let covered = key.range();
        (access & need == need && covered.start <= at && end <= covered.end)
            .then(|| usize::try_from(at).unwrap()..usize::try_from(end).unwrap())
    }

    /// Returns the first `bytes` bytes of a list of segments.
    pub(crate) fn pieces(segments: &[Segment], bytes: u64, need: u32) -> Option<Vec<Range<usize>>> {
        let mut left = bytes;
        let mut pieces = Vec::new();
        for segment in segments {
            let take = left.min(segment.bytes.into());
            if take > 0 {
                pieces.push(Self::resolve(segment.key, segment.at, take, need)?);
            }
            left -= take;
        }
        (left == 0).then_some(pieces)
    }

    fn load(&self, pieces: &[Range<usize>]) -> Bytes {
        let byte = |at: usize| (!self.open[at]).then_some(self.memory[at]);
        pieces.iter().cloned().flatten().map(byte).collect()
    }

    /// Returns the bytes of `data`, of which those in memory are at `pieces`.
    fn gather(&self, data: &[Piece], pieces: &[Range<usize>]) -> Bytes {
        let mut pieces = pieces.iter();
        let bytes = data.iter().flat_map(|piece| match piece {
            Piece::Inline(bytes) => known(bytes.clone()),
            Piece::Memory(_) => self.load(pieces.next().map_or(&[], std::slice::from_ref)),
        });
        bytes.collect()
    }

    fn store(&mut self, pieces: &[Range<usize>], data: &[Option<u8>]) {
        for (at, byte) in pieces.iter().cloned().flatten().zip(data) {
            self.open[at] = byte.is_none();
            self.memory[at] = byte.unwrap_or(0);
        }
    }

    /// What the specification leaves open.
    fn smear(&mut self, pieces: &[Range<usize>]) {
        for at in pieces.iter().cloned().flatten() {
            self.open[at] = true;
        }
    }

    /// Compares with what the device has made of the memory, and takes over what is open: the first byte that differs.
    pub(crate) fn compare(&mut self, found: &[u8]) -> Result<(), usize> {
        if self.memory != found {
            let differs = |at: &usize| self.memory[*at] != found[*at] && !self.open[*at];
            if let Some(at) = (0..found.len()).find(differs) {
                return Err(at);
            }
            self.memory.copy_from_slice(found);
        }
        self.open.fill(false);
        Ok(())
    }
}

impl Model {
    pub(crate) fn new(setup: &Setup, memory: [Vec<u8>; 2]) -> Self {
        let mut side = 0;
        let sides = memory.map(|memory| {
            side += 1;
            Side::new(setup.rights[side - 1], setup.start, memory)
        });
        Self {
            sides,
            ambiguous: false,
        }
    }

    pub(crate) fn renew(&mut self) {
        for side in &mut self.sides {
            side.reset();
            side.state = State::Ready;
        }
    }

    /// Posts receives at the peer of `side` and runs the WQEs of `side`.
    pub(crate) fn run(&mut self, side: usize, work: &Work) {
        for receive in &work.receives {
            self.sides[1 - side].post_receive(receive);
        }
        let mut found = true;
        for wqe in &work.wqes {
            if found {
                found = self.execute(side, wqe);
            } else {
                let own = &mut self.sides[side];
                own.next_send = own.next_send.wrapping_add(wqe.blocks());
            }
        }
    }

    /// One WQE; false if those after it cannot be found.
    fn execute(&mut self, side: usize, wqe: &Wqe) -> bool {
        let index = self.sides[side].next_send;
        let opcode = wqe.opcode();
        let fail = |side: &mut Side, syndrome| {
            side.sent.push(Completion::SendFailed {
                index,
                opcode,
                syndrome,
            });
        };
        self.sides[side].next_send = index.wrapping_add(wqe.blocks());
        if self.sides[side].state == State::Error {
            fail(&mut self.sides[side], FLUSHED);
            return !wqe.damage.is_some_and(Damage::hides_the_rest);
        }
        let outcome = match wqe.damage {
            Some(_) => Err(local(QP_OPERATION)),
            None => self.operate(side, wqe),
        };
        match outcome {
            Ok(bytes) => {
                if wqe.signalled {
                    self.sides[side].sent.push(Completion::Sent {
                        index,
                        opcode,
                        bytes,
                    });
                }
                true
            }
            Err(failure) => {
                fail(&mut self.sides[side], failure.syndrome);
                if failure.refused {
                    self.sides[1 - side].enter_error();
                }
                self.sides[side].enter_error();
                !wqe.damage.is_some_and(Damage::hides_the_rest)
            }
        }
    }

    /// Carries out a whole WQE; the bytes that its completion names.
    fn operate(&mut self, side: usize, wqe: &Wqe) -> Result<u32, Failure> {
        if matches!(wqe.operation, Operation::Nop) {
            return Ok(0);
        }
        let takes_results = wqe.takes_results();
        if takes_results && wqe.has_inline() {
            return Err(local(QP_OPERATION));
        }
        let segments = &wqe.segments();
        // 0 stands for 2^31, which is more than any message.
        let sized = |piece: &Piece| match piece {
            Piece::Memory(Segment { bytes: 0, .. }) => 1 << 31,
            piece => piece.bytes(),
        };
        let total: u64 = wqe.local.iter().map(sized).sum();
        if let Operation::Atomic { atomic, .. } = &wqe.operation
            && total != atomic.bytes()
        {
            return Err(local(LENGTH));
        }
        if total > LONGEST {
            return Err(local(LENGTH));
        }
        let bytes = u32::try_from(total).unwrap();
        let need = if takes_results {
            LOCAL_WRITE
        } else {
            LOCAL_READ
        };
        let in_memory = segments.iter().map(|part| u64::from(part.bytes)).sum();
        let pieces = Side::pieces(segments, in_memory, need);
        if self.sides[1 - side].state != State::Ready {
            self.ambiguous |= pieces.is_none();
            return Err(local(RETRIES));
        }
        match &wqe.operation {
            Operation::Nop => {}
            Operation::Write { to, immediate } => {
                let target = Side::resolve(to.key, to.at, total, REMOTE_WRITE);
                let Some(pieces) = pieces else {
                    self.ambiguous |= target.is_none() || !self.sides[1 - side].rights.write;
                    // Packets before the bad one may have arrived.
                    self.sides[1 - side].smear(&Vec::from_iter(target));
                    return Err(local(PROTECTION));
                };
                let data = self.sides[side].gather(&wqe.local, &pieces);
                let peer = &mut self.sides[1 - side];
                if total > 0 {
                    if !peer.rights.write {
                        return Err(refused(REMOTE_INVALID));
                    }
                    let target = [target.ok_or(refused(REMOTE_ACCESS))?];
                    if immediate.is_some() && peer.receives.is_empty() {
                        peer.smear(&target);
                    } else {
                        peer.store(&target, &data);
                    }
                }
                if let Some(immediate) = *immediate {
                    let (index, _) = peer.receives.pop_front().ok_or(local(RNR_RETRIES))?;
                    let solicited = wqe.solicited;
                    peer.received.push(Completion::Received {
                        index,
                        kind: 1,
                        bytes,
                        with: immediate,
                        solicited,
                    });
                }
            }
            Operation::Read { from } => {
                let peer = &self.sides[1 - side];
                let source = Side::resolve(from.key, from.at, total, REMOTE_READ);
                self.ambiguous |= pieces.is_none() && (source.is_none() || !peer.rights.read);
                let mut data = Vec::new();
                if total > 0 {
                    if !peer.rights.read {
                        return Err(refused(REMOTE_INVALID));
                    }
                    data = peer.load(&[source.ok_or(refused(REMOTE_ACCESS))?]);
                }
                match pieces {
                    Some(pieces) => self.sides[side].store(&pieces, &data),
                    None => {
                        self.smear_good_ones(side, segments);
                        return Err(local(PROTECTION));
                    }
                }
            }
            Operation::Atomic { at, atomic } => {
                let peer = &mut self.sides[1 - side];
                let target = Side::resolve(at.key, at.at, total, REMOTE_ATOMIC);
                let fits = peer.rights.atomic && target.is_some() && at.at.is_multiple_of(total);
                self.ambiguous |= pieces.is_none() && !fits;
                if !peer.rights.atomic {
                    return Err(refused(REMOTE_INVALID));
                }
                let target = target.ok_or(refused(REMOTE_ACCESS))?;
                if !at.at.is_multiple_of(total) {
                    return Err(refused(REMOTE_INVALID));
                }
                let mut old = peer.load(std::slice::from_ref(&target));
                peer.store(std::slice::from_ref(&target), &apply(atomic, &old));
                if atomic.bytes() == 4 {
                    old.reverse(); // big-endian
                }
                match pieces {
                    Some(pieces) => self.sides[side].store(&pieces, &old),
                    None => {
                        peer.smear(&[target]);
                        self.smear_good_ones(side, segments);
                        return Err(local(PROTECTION));
                    }
                }
            }
            Operation::Send { with } => {
                let Some(pieces) = pieces else {
                    // Some packets may have arrived in the receive WQE, which is not consumed.
                    let first = self.sides[1 - side].receives.front();
                    let segments =
                        first.map_or_else(Vec::new, |(_, receive)| receive.segments.clone());
                    self.ambiguous |= Side::pieces(&segments, total, LOCAL_WRITE).is_none();
                    self.smear_good_ones(1 - side, &segments);
                    return Err(local(PROTECTION));
                };
                let data = self.sides[side].gather(&wqe.local, &pieces);
                self.receive(1 - side, &data, *with, wqe.solicited)?;
            }
        }
        Ok(bytes)
    }

    /// A message of a SEND has come to `side`.
    fn receive(
        &mut self,
        side: usize,
        data: &[Option<u8>],
        with: With,
        solicited: bool,
    ) -> Result<(), Failure> {
        let own = &mut self.sides[side];
        let (index, receive) = own.receives.pop_front().ok_or(local(RNR_RETRIES))?;
        let total = data.len() as u64;
        let room: u64 = receive
            .segments
            .iter()
            .map(|segment| u64::from(segment.bytes))
            .sum();
        let failed = if total > room {
            Some((LENGTH, REMOTE_INVALID))
        } else {
            match Side::pieces(&receive.segments, total, LOCAL_WRITE) {
                Some(pieces) => {
                    own.store(&pieces, data);
                    None
                }
                None => Some((PROTECTION, REMOTE_OPERATION)),
            }
        };
        let failed = failed.or_else(|| {
            // The data may have been written; the key is not one to invalidate.
            matches!(with, With::Invalidate(_)).then_some((ACCESS, REMOTE_ACCESS))
        });
        if let Some((syndrome, remote)) = failed {
            own.received
                .push(Completion::ReceiveFailed { index, syndrome });
            self.smear_good_ones(side, &receive.segments);
            return Err(refused(remote));
        }
        let (kind, with) = match with {
            With::Nothing => (2, 0),
            With::Immediate(value) => (3, value),
            With::Invalidate(_) => unreachable!("refused above"),
        };
        let bytes = u32::try_from(total).unwrap();
        own.received.push(Completion::Received {
            index,
            kind,
            bytes,
            with,
            solicited,
        });
        Ok(())
    }

    /// Leaves open what the segments stand for, as far as their keys reach.
    fn smear_good_ones(&mut self, side: usize, segments: &[Segment]) {
        for segment in segments {
            let covered = segment.key.range();
            let start = segment.at.clamp(covered.start, covered.end);
            let end = (segment.at + u64::from(segment.bytes)).clamp(start, covered.end);
            let piece = Side::resolve(segment.key, start, end - start, LOCAL_WRITE);
            self.sides[side].smear(&Vec::from_iter(piece));
        }
    }
}
