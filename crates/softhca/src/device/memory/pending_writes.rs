//! Decides when bytes that peers write reach memory: at once, or as late and in as odd an order as the device may place them.
//!
//! A device promises one of three [`DataOrder`]s. Without an [`Adversary`] bytes are placed as soon as they arrive, which keeps all three
//! promises. With an adversary each write is cut into chunks at lines of 64 bytes. Each chunk gets a time at which it is placed: mostly at
//! once, now and then late. Chunks that must not overtake others get a later time:
//!
//! | | overtakes earlier plain writes of its QP | forces earlier writes of its QP into memory |
//! |---|---|---|
//! | write by a strict key | not `in-order`; else yes | no: it waits for them |
//! | write by a key with relaxed ordering | yes | no |
//! | atomic | only `flush` | not `flush`; else yes |
//! | READ | not `in-order`; else yes | `in-order` |
//! | completion of a receive, completion at the requester | no | yes |
//!
//! QPs have no order between them. Writes that the requester does not know as done may be carried out again, with all later writes, as
//! after a retry. No pending write outlives a look at the device from outside. A caller that takes its lock (a command, the end of a
//! registration) finds everything placed.

use super::Region;
use crate::number::whole;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// The promise of a device about the order in which the writes of one QP are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataOrder {
    /// Writes are placed as they were posted, but writes by keys with relaxed ordering in any order.
    #[default]
    InOrder,
    /// Writes overtake each other. An atomic comes after all that was posted before it.
    AtomicsOrdered,
    /// Only what has completed is certain to be placed.
    FlushOnly,
}

impl DataOrder {
    /// The values that `SOFTHCA_ORDER` may have.
    pub(crate) const EXPECTED: &'static str = "in-order, atomics or flush";
}

/// A text that names no order of data.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no order of data: {expected}", expected = DataOrder::EXPECTED)]
pub struct UnknownOrder(pub String);

impl FromStr for DataOrder {
    type Err = UnknownOrder;

    fn from_str(text: &str) -> Result<Self, UnknownOrder> {
        match text {
            "in-order" => Ok(Self::InOrder),
            "atomics" => Ok(Self::AtomicsOrdered),
            "flush" => Ok(Self::FlushOnly),
            _ => Err(UnknownOrder(text.to_owned())),
        }
    }
}

impl fmt::Display for DataOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InOrder => "in-order",
            Self::AtomicsOrdered => "atomics",
            Self::FlushOnly => "flush",
        })
    }
}

/// An adversary that makes use of all freedom that the order leaves.
///
/// As text it is its seed, or `SEED:LONGEST` with the longest delay in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adversary {
    /// Seed of the tricks: equal seeds and equal traffic at equal times give equal tricks.
    pub seed: u64,
    /// Longest time for which a chunk is held back.
    pub longest: Duration,
    /// True if writes are carried out once more, as after a retry; the default is yes. A checker of memory order cannot tell such repeated
    /// bytes, after their signal, from a slot that is used again too early.
    pub repeats: bool,
}

impl Adversary {
    /// The values that `SOFTHCA_ADVERSARY` may have.
    pub(crate) const EXPECTED: &'static str =
        "a 64-bit seed, or SEED:MICROSECONDS with at most 1000000 of them";
    const LONGEST_US: u64 = 1_000_000;

    /// Returns an adversary with delays up to 2 ms.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            longest: Duration::from_millis(2),
            repeats: true,
        }
    }
}

/// A text that names no adversary.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not {expected}", expected = Adversary::EXPECTED)]
pub struct UnknownAdversary(pub String);

impl FromStr for Adversary {
    type Err = UnknownAdversary;

    fn from_str(text: &str) -> Result<Self, UnknownAdversary> {
        let unknown = || UnknownAdversary(text.to_owned());
        let (seed, longest) = match text.split_once(':') {
            Some((seed, longest)) => (seed, Some(longest)),
            None => (text, None),
        };
        let made = Self::new(whole(seed).ok_or_else(unknown)?);
        let Some(longest) = longest else {
            return Ok(made);
        };
        let longest = whole(longest).filter(|us| *us <= Self::LONGEST_US);
        Ok(Self {
            longest: Duration::from_micros(longest.ok_or_else(unknown)?),
            ..made
        })
    }
}

/// Most bytes of a write that a retry may repeat.
const RETRY_BYTES: usize = 1 << 16;
/// Most writes that a retry may repeat.
const RETRY_WRITES: usize = 8;
/// Most chunks of all QPs that wait. Beyond this the chunks of the QP that brings more are placed.
const MOST_CHUNKS: usize = 1 << 14;
/// Most chunks of one region of a write.
const MOST_CUTS: usize = 4;
/// The distance of the addresses at which writes may be cut. No word is ever torn.
const LINE: u64 = 64;

/// A write of a peer.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// The memory that is written, in order.
    pub(crate) targets: Vec<Region>,
    pub(crate) data: Vec<u8>,
    /// True if the key of the write has relaxed ordering.
    pub(crate) relaxed: bool,
}

/// The bytes that wait to be placed. Without an adversary no bytes ever wait, and no caller asks this.
#[derive(Debug, Default)]
pub(crate) struct PendingWrites {
    adversary: Option<Tricks>,
    queues: Vec<Queue>,
    /// The number of chunks in all queues.
    waiting: usize,
}

#[derive(Debug)]
struct Tricks {
    lot: fastrand::Rng,
    longest_ns: u64,
    repeats: bool,
}

/// The writes that one QP has received.
#[derive(Debug)]
struct Queue {
    qpn: u32,
    chunks: Vec<Chunk>,
    /// Number of the next chunk.
    next: u64,
    /// Writes that the requester does not know as done, the oldest first.
    unacknowledged: VecDeque<Arrival>,
}

#[derive(Debug)]
struct Chunk {
    due_ns: u64,
    number: u64,
    target: Region,
    data: Box<[u8]>,
}

impl PendingWrites {
    pub(crate) fn new(adversary: Option<Adversary>, number: usize) -> Self {
        let tricks = adversary.map(|adversary| Tricks {
            lot: fastrand::Rng::with_seed(adversary.seed ^ (number as u64) << 32),
            longest_ns: u64::try_from(adversary.longest.as_nanos()).unwrap_or(u64::MAX),
            repeats: adversary.repeats,
        });
        Self {
            adversary: tricks,
            ..Self::default()
        }
    }

    /// Returns whether there is an adversary, so that writes must come this way.
    pub(crate) fn is_active(&self) -> bool {
        self.adversary.is_some()
    }

    /// Takes the bytes that a peer writes through QP `qpn`, and places all bytes that are due.
    pub(crate) fn accept(&mut self, qpn: u32, order: DataOrder, arrival: Arrival, now_ns: u64) {
        let Some(tricks) = &mut self.adversary else {
            return;
        };
        if self.waiting >= MOST_CHUNKS {
            self.force(qpn);
            return self.accept_now(qpn, order, arrival, now_ns);
        }
        // Rarely the acknowledgement to the requester is late, and the requester begins again with one of the last writes.
        let retry = tricks.lot.u32(0..32) == 0 && tricks.repeats;
        self.accept_now(qpn, order, arrival, now_ns);
        if retry {
            self.retry(qpn, order, now_ns);
        }
        self.place_due(now_ns);
    }

    fn accept_now(&mut self, qpn: u32, order: DataOrder, arrival: Arrival, now_ns: u64) {
        let Some(tricks) = &mut self.adversary else {
            return;
        };
        let place = find_or_add(&mut self.queues, qpn);
        self.waiting += place.add(tricks, order, &arrival, now_ns);
        if arrival.data.len() > RETRY_BYTES {
            place.unacknowledged.clear();
        } else {
            place.unacknowledged.push_back(arrival);
            if place.unacknowledged.len() > RETRY_WRITES {
                place.unacknowledged.pop_front();
            }
        }
    }

    /// Carries out once more one of the writes that the requester does not know as done, and all later writes.
    fn retry(&mut self, qpn: u32, order: DataOrder, now_ns: u64) {
        let Some(tricks) = &mut self.adversary else {
            return;
        };
        let place = find_or_add(&mut self.queues, qpn);
        let known = std::mem::take(&mut place.unacknowledged);
        let first = tricks.lot.usize(0..known.len().max(1));
        for arrival in known.iter().skip(first) {
            self.waiting += place.add(tricks, order, arrival, now_ns);
        }
        place.unacknowledged = known;
    }

    /// Places what must be in memory before an atomic of QP `qpn` is carried out.
    pub(crate) fn before_atomic(&mut self, qpn: u32, order: DataOrder) {
        if order != DataOrder::FlushOnly {
            self.force(qpn);
        }
    }

    /// Places what must be in memory before a READ of QP `qpn` is carried out.
    pub(crate) fn before_read(&mut self, qpn: u32, order: DataOrder) {
        if order == DataOrder::InOrder {
            self.force(qpn);
        }
    }

    /// Places all that QP `qpn` has received, since software is about to learn that it has arrived.
    pub(crate) fn force(&mut self, qpn: u32) {
        if let Some(at) = self.queues.iter().position(|queue| queue.qpn == qpn) {
            let mut queue = self.queues.swap_remove(at);
            self.waiting -= queue.chunks.len();
            queue.place(u64::MAX);
        }
    }

    /// Places all that all QPs have received, as `force` does for one.
    pub(crate) fn force_all(&mut self) {
        for mut queue in self.queues.drain(..) {
            queue.place(u64::MAX);
        }
        self.waiting = 0;
    }

    /// Places the bytes that are due. Returns whether there were any, and when the next are due.
    pub(crate) fn place_due(&mut self, now_ns: u64) -> (bool, Option<u64>) {
        let mut next = None;
        let before = self.waiting;
        for queue in &mut self.queues {
            self.waiting -= queue.place(now_ns);
            let first = queue.chunks.first().map(|chunk| chunk.due_ns);
            next = [next, first].into_iter().flatten().min();
        }
        (self.waiting != before, next)
    }

    /// Returns the time at which the requester of QP `qpn` learns that its work so far is done. `None`: now, after the caller has called
    /// [`Self::force`].
    pub(crate) fn told_at(&mut self, qpn: u32) -> Option<u64> {
        let queue = self.queues.iter().find(|queue| queue.qpn == qpn)?;
        let last = queue.chunks.last()?.due_ns;
        let tricks = self.adversary.as_mut()?;
        tricks.lot.bool().then_some(last)
    }
}

fn find_or_add(queues: &mut Vec<Queue>, qpn: u32) -> &mut Queue {
    let at = match queues.iter().position(|queue| queue.qpn == qpn) {
        Some(at) => at,
        None => {
            queues.push(Queue {
                qpn,
                chunks: Vec::new(),
                next: 0,
                unacknowledged: VecDeque::new(),
            });
            queues.len() - 1
        }
    };
    // PANIC: the queue was found or has just been added.
    &mut queues[at]
}

impl Queue {
    /// Cuts a write into chunks. Returns how many.
    fn add(
        &mut self,
        tricks: &mut Tricks,
        order: DataOrder,
        arrival: &Arrival,
        now_ns: u64,
    ) -> usize {
        let before = self.chunks.len();
        let strict = order == DataOrder::InOrder && !arrival.relaxed;
        // Strict chunks wait for all chunks before them, so their times never fall.
        let mut floor_ns = match (strict, self.chunks.last()) {
            (true, Some(last)) => last.due_ns,
            _ => now_ns,
        };
        let mut data = arrival.data.as_slice();
        for target in &arrival.targets {
            for (target, length) in tricks.cut(*target) {
                let (bytes, rest) = data.split_at(length.min(data.len()));
                data = rest;
                let mut due_ns = now_ns.saturating_add(tricks.delay());
                if strict {
                    due_ns = due_ns.max(floor_ns);
                    floor_ns = due_ns;
                }
                let number = self.next;
                self.next += 1;
                let at = self.chunks.partition_point(|chunk| chunk.due_ns <= due_ns);
                let chunk = Chunk {
                    due_ns,
                    number,
                    target,
                    data: bytes.into(),
                };
                self.chunks.insert(at, chunk);
            }
        }
        debug_assert!(
            self.chunks
                .is_sorted_by_key(|chunk| (chunk.due_ns, chunk.number))
        );
        self.chunks.len() - before
    }

    /// Places the chunks that are due at `now_ns`. Returns how many.
    fn place(&mut self, now_ns: u64) -> usize {
        let due = self.chunks.partition_point(|chunk| chunk.due_ns <= now_ns);
        for chunk in self.chunks.drain(..due) {
            // If the page has gone since the write was accepted, there is no memory that lacks the bytes.
            let _ = chunk.target.place(&chunk.data);
        }
        due
    }
}

impl Tricks {
    /// Returns a delay, which is mostly 0.
    fn delay(&mut self) -> u64 {
        let longest = match self.lot.u32(0..16) {
            0..=8 => 0,
            9..=12 => self.longest_ns / 64,
            13..=14 => self.longest_ns / 8,
            _ => self.longest_ns,
        };
        self.lot.u64(0..=longest)
    }

    /// Returns the pieces of a region, cut at lines, with their lengths.
    fn cut(&mut self, whole: Region) -> Vec<(Region, usize)> {
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < whole.bytes() {
            let left = whole.bytes() - at;
            let length = if pieces.len() + 1 < MOST_CUTS {
                self.cut_length(whole.address() + at, left)
            } else {
                left
            };
            if let (Some(piece), Ok(bytes)) = (whole.part(at, length), usize::try_from(length)) {
                pieces.push((piece, bytes));
            }
            at += length;
        }
        pieces
    }

    /// Returns the length of the next piece: up to the end of the region, or to one of the lines before that.
    fn cut_length(&mut self, start: u64, left: u64) -> u64 {
        let first = start.next_multiple_of(LINE) - start;
        let first = if first == 0 { LINE } else { first };
        if left <= first || self.lot.bool() {
            return left;
        }
        let lines = (left - first).div_ceil(LINE);
        first + self.lot.u64(0..lines) * LINE
    }
}

#[cfg(test)]
mod tests;
