//! Notices: messages for the program at the other end, alone or after a transfer. They go over the control stream of the connection. Each
//! is delivered once, in the order in which they were sent, also across connections of the same two lives.
//!
//! A sender numbers its notices from 0 on, for a life of a peer. The sender keeps a notice until the program at the other end has
//! taken it. It keeps no more than the peer's inbox has room for. So a sender meets a full inbox before it sends anything, and a
//! program that takes nothing never stops a stream. One connection at a time carries the notices. The next begins with the number
//! for which the receiver has said that it waits. The receiver drops a lower number; a higher number ends the connection.
//! `models::engine::stream` is the model of both ends.

use std::collections::VecDeque;

use crate::engine::ledger::account::Outcome;
use crate::engine::ledger::report::FirstCause;
use crate::engine::limits::{MOST_NOTICE_BYTES, OVERHEAD};
use crate::provider::{Cause, LibfabricCause};

/// The bytes of a record before the bytes of the program.
const HEAD: usize = 16;

/// A message of a peer's program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// The name of the peer.
    pub peer: String,
    /// The life of the peer that has sent this.
    pub incarnation: u64,
    /// The bytes of the peer's program.
    pub bytes: Box<[u8]>,
    /// The result of the transfer with which it was sent. None: it was sent alone.
    pub transfer: Option<Behind>,
}

/// The result of the transfer after whose last byte a notice comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// How the transfer has ended. All bytes have landed only if it is done.
    pub outcome: Outcome,
    /// The operation that has failed first.
    pub operation: Option<u32>,
    /// The cause, as the HCA of the sender reports it. None: the slice was not posted.
    pub cause: Option<Cause>,
}

impl Behind {
    pub(in crate::engine) fn of(outcome: Outcome, first: Option<FirstCause>) -> Self {
        // The first failure of a transfer that is done was made good by a retry.
        let first = first.filter(|_| outcome != Outcome::Done);
        Self {
            outcome,
            operation: first.map(|first| first.operation),
            cause: first.and_then(|first| first.cause),
        }
    }
}

/// Returns the bytes that a notice takes of an inbox.
pub(in crate::engine) fn charge(bytes: usize) -> u64 {
    bytes as u64 + OVERHEAD
}

/// Why a message about notices is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::engine) enum NoticeError {
    #[error("a notice of {0} bytes with its head; it must be {HEAD} to {most}", most = HEAD + LIBFABRIC + MOST_NOTICE_BYTES)]
    Length(usize),
    #[error(
        "a notice whose head says {0:#x}; it must be 0, or an outcome of 1 to 4 with flags of 0 to 3, 6 or 7"
    )]
    Head(u64),
    #[error("notice {found}; it must be one up to {due}")]
    Gap { found: u64, due: u64 },
    #[error("notices for {used} bytes: this engine has announced room for {most}")]
    Full { used: u64, most: u64 },
    #[error(
        "{used} bytes of notices, also of earlier lives of peers, that the program has not taken; they must be at most {most}"
    )]
    Untaken { used: u64, most: u64 },
    #[error("the peer has accepted notices up to {found}; {sent} were sent")]
    Unsent { found: u64, sent: u64 },
    #[error("it has said twice with which notice it begins")]
    Twice,
}

/// A notice on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Record {
    pub(in crate::engine) number: u64,
    pub(in crate::engine) transfer: Option<Behind>,
    pub(in crate::engine) bytes: Box<[u8]>,
}

const ALONE: u8 = 0;
const HAS_OPERATION: u8 = 1;
const HAS_CAUSE: u8 = 2;
/// The cause is of libfabric. Its numbers come after the head.
const HAS_LIBFABRIC: u8 = 4;
/// The bytes of these numbers.
const LIBFABRIC: usize = 8;

impl Record {
    pub(in crate::engine) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.bytes.len());
        bytes.extend(self.number.to_le_bytes());
        let (outcome, operation, cause) = match self.transfer {
            None => (ALONE, None, None),
            Some(it) => (code_of(it.outcome), it.operation, it.cause),
        };
        let has = |is: bool, flag| if is { flag } else { 0 };
        let libfabric = cause.and_then(|cause| cause.libfabric);
        let flags = has(operation.is_some(), HAS_OPERATION)
            | has(cause.is_some(), HAS_CAUSE)
            | has(libfabric.is_some(), HAS_LIBFABRIC);
        let cause = cause.unwrap_or(Cause::of_hca(0, 0));
        bytes.extend([outcome, flags, cause.syndrome, cause.vendor]);
        bytes.extend(operation.unwrap_or_default().to_le_bytes());
        if let Some(LibfabricCause { errno, provider }) = libfabric {
            bytes.extend(errno.to_le_bytes());
            bytes.extend(provider.to_le_bytes());
        }
        bytes.extend(&*self.bytes);
        bytes
    }

    pub(in crate::engine) fn from_bytes(bytes: &[u8]) -> Result<Self, NoticeError> {
        let length = bytes.len();
        let (head, bytes) = bytes
            .split_first_chunk::<HEAD>()
            .ok_or(NoticeError::Length(length))?;
        let half = |at: usize| {
            let mut half = [0; 8];
            half.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(half)
        };
        let (number, about) = (half(0), half(8));
        let bad = || NoticeError::Head(about);
        let [outcome, flags, syndrome, vendor, operation @ ..] = about.to_le_bytes();
        let operation = u32::from_le_bytes(operation);
        let (cause, bytes) = match flags & !HAS_OPERATION {
            0 => (None, bytes),
            HAS_CAUSE => (Some(Cause::of_hca(syndrome, vendor)), bytes),
            flags if flags == HAS_CAUSE | HAS_LIBFABRIC => {
                let whole = bytes.split_first_chunk::<LIBFABRIC>();
                let ([a, b, c, d, provider @ ..], bytes) =
                    whole.ok_or(NoticeError::Length(length))?;
                let errno = i32::from_le_bytes([*a, *b, *c, *d]);
                let cause = Cause::of_libfabric(errno, i32::from_le_bytes(*provider));
                (Some(cause), bytes)
            }
            _ => return Err(bad()),
        };
        if bytes.len() > MOST_NOTICE_BYTES {
            return Err(NoticeError::Length(length));
        }
        let transfer = match outcome {
            ALONE if about == 0 => None,
            ALONE => return Err(bad()),
            code => Some(Behind {
                outcome: outcome_of(code).ok_or_else(bad)?,
                operation: (flags & HAS_OPERATION != 0).then_some(operation),
                cause,
            }),
        };
        Ok(Self {
            number,
            transfer,
            bytes: bytes.into(),
        })
    }
}

const fn code_of(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Done => 1,
        Outcome::Failed => 2,
        Outcome::Cancelled => 3,
        Outcome::TimedOut => 4,
    }
}

const fn outcome_of(code: u8) -> Option<Outcome> {
    match code {
        1 => Some(Outcome::Done),
        2 => Some(Outcome::Failed),
        3 => Some(Outcome::Cancelled),
        4 => Some(Outcome::TimedOut),
        _ => None,
    }
}

/// The notices that this side sends to a life of a peer.
#[derive(Debug)]
pub(in crate::engine) struct Outbox {
    /// The number of the first notice that is kept.
    first: u64,
    kept: VecDeque<Record>,
    /// The number after the last notice that any connection was given.
    sent: u64,
    /// The bytes of the peer's inbox that are taken by notices that are kept, or are reserved.
    used: u64,
    most: u64,
    /// True if a notice found no room since the last call of `has_refused`.
    has_refused: bool,
    /// The connections that may carry notices, each with the number that it sends next. Only the first of them carries.
    links: Vec<(u64, u64)>,
}

impl Outbox {
    /// Returns an outbox to a peer whose inbox has `most` bytes.
    pub(in crate::engine) fn new(most: u64) -> Self {
        Self {
            first: 0,
            kept: VecDeque::new(),
            sent: 0,
            used: 0,
            most,
            has_refused: false,
            links: Vec::new(),
        }
    }

    /// Reserves room for a notice. If there is too little room, the error has the limit and the bytes in use.
    pub(in crate::engine) fn reserve(&mut self, bytes: usize) -> Result<(), [u64; 2]> {
        let used = self.used + charge(bytes);
        self.has_refused |= used > self.most;
        if used > self.most {
            return Err([self.most, self.used]);
        }
        self.used = used;
        Ok(())
    }

    /// Gives back the room of a notice that is not sent.
    pub(in crate::engine) fn give_back(&mut self, bytes: usize) {
        self.used -= charge(bytes);
    }

    /// Returns whether a notice found no room since the last call.
    pub(in crate::engine) const fn has_refused(&mut self) -> bool {
        std::mem::replace(&mut self.has_refused, false)
    }

    /// Sends a notice for which room was reserved.
    pub(in crate::engine) fn push(&mut self, transfer: Option<Behind>, bytes: Box<[u8]>) {
        self.kept.push_back(Record {
            number: self.end(),
            transfer,
            bytes,
        });
    }

    /// Returns whether a notice was sent.
    pub(in crate::engine) const fn has_sent(&self) -> bool {
        self.sent > 0
    }

    /// Returns the number after that of the last notice that is kept.
    fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// Lets a connection carry notices. Its other end waits for number `accepted`.
    pub(in crate::engine) fn enter(&mut self, link: u64, accepted: u64) -> Result<(), NoticeError> {
        if accepted > self.sent {
            let (found, sent) = (accepted, self.sent);
            return Err(NoticeError::Unsent { found, sent });
        }
        if self.links.iter().any(|(known, _)| *known == link) {
            return Err(NoticeError::Twice);
        }
        self.links.push((link, accepted));
        Ok(())
    }

    /// Lets the connection carry no more notices. Returns whether another connection carries now.
    pub(in crate::engine) fn leave(&mut self, link: u64) -> bool {
        let carried = self.links.first().is_some_and(|(first, _)| *first == link);
        self.links.retain(|(known, _)| *known != link);
        carried && !self.links.is_empty()
    }

    /// Returns the notice that the connection is to carry next.
    pub(in crate::engine) fn next(&mut self, link: u64) -> Option<Record> {
        let (_, next) = self.links.first_mut().filter(|(first, _)| *first == link)?;
        // The other end may have taken a notice since it connected, over another connection.
        let number = (*next).max(self.first);
        let nth = usize::try_from(number - self.first).ok()?;
        let record = self.kept.get(nth)?.clone();
        *next = number + 1;
        self.sent = self.sent.max(number + 1);
        Some(record)
    }

    /// Notes how many notices the program at the other end has taken. Returns whether that frees room.
    pub(in crate::engine) fn taken(&mut self, count: u64) -> Result<bool, NoticeError> {
        if count > self.sent {
            let (found, sent) = (count, self.sent);
            return Err(NoticeError::Unsent { found, sent });
        }
        let has_room = count > self.first;
        while self.first < count
            && let Some(record) = self.kept.pop_front()
        {
            self.used -= charge(record.bytes.len());
            self.first += 1;
        }
        Ok(has_room)
    }
}

/// What this side has received from a life of a peer.
#[derive(Debug)]
pub(in crate::engine) struct Inbox {
    accepted: u64,
    taken: u64,
    used: u64,
    most: u64,
}

impl Inbox {
    /// Returns an inbox with room for `most` bytes.
    pub(in crate::engine) const fn new(most: u64) -> Self {
        Self {
            accepted: 0,
            taken: 0,
            used: 0,
            most,
        }
    }

    /// Returns whether the program has taken all notices that have come.
    pub(in crate::engine) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the number of the notice that is due.
    pub(in crate::engine) const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns how many notices the program has taken.
    pub(in crate::engine) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes a notice in. Returns whether it is new: the caller drops a notice that has come before.
    pub(in crate::engine) fn accept(
        &mut self,
        number: u64,
        bytes: usize,
    ) -> Result<bool, NoticeError> {
        let (due, most) = (self.accepted, self.most);
        if number > due {
            return Err(NoticeError::Gap { found: number, due });
        }
        if number < due {
            return Ok(false);
        }
        let used = self.used + charge(bytes);
        if used > most {
            return Err(NoticeError::Full { used, most });
        }
        self.used = used;
        self.accepted += 1;
        Ok(true)
    }

    /// Notes that the program takes a notice.
    pub(in crate::engine) fn take(&mut self, bytes: usize) {
        self.used -= charge(bytes);
        self.taken += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_what_it_was_on_the_other_side_and_no_other_bytes_are_one() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for length in [0, 1, 100, MOST_NOTICE_BYTES] {
            for code in 0..=4u8 {
                let transfer = outcome_of(code).map(|outcome| Behind {
                    outcome,
                    operation: random.bool().then(|| random.u32(..)),
                    cause: match random.u8(0..3) {
                        0 => None,
                        1 => Some(Cause::of_hca(random.u8(..), random.u8(..))),
                        _ => Some(Cause::of_libfabric(random.i32(..), random.i32(..))),
                    },
                });
                let bytes = (0..length).map(|_| random.u8(..)).collect();
                let record = Record {
                    number: random.u64(..),
                    transfer,
                    bytes,
                };
                let found = Record::from_bytes(&record.to_bytes()).unwrap();
                assert!(found == record, "seed {seed}");
            }
        }
        for length in [0, HEAD - 1, HEAD + MOST_NOTICE_BYTES + 1] {
            let found = Record::from_bytes(&vec![0; length]);
            assert_eq!(found, Err(NoticeError::Length(length)));
        }
        for (at, byte) in [(8, 5), (9, 1), (9, 4), (12, 1), (8, 255)] {
            let mut bytes = [0; HEAD];
            bytes[at] = byte;
            let found = Record::from_bytes(&bytes);
            assert!(matches!(found, Err(NoticeError::Head(_))), "{at} {byte}");
        }
        // Bytes are either refused, or they are the bytes of the record that they make.
        let full = std::env::var_os("WV_TEST_FULL").is_some();
        for _ in 0..if full { 1_000_000 } else { 20_000 } {
            let length = random.usize(0..40);
            let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            for byte in bytes.iter_mut().skip(8).take(4) {
                *byte %= 6;
            }
            if let Ok(record) = Record::from_bytes(&bytes) {
                let again = Record::from_bytes(&record.to_bytes());
                assert_eq!(again.as_ref(), Ok(&record), "seed {seed}");
            }
        }
    }

    /// Two ends, and streams that keep the order. Any stream may end at any time.
    struct Run {
        random: fastrand::Rng,
        out: Outbox,
        into: Inbox,
        /// The streams: for each its number, the records on their way to the other end, and the counts on their way back.
        streams: Vec<(u64, VecDeque<Record>, VecDeque<u64>)>,
        next: u64,
        pushed: u64,
        queue: VecDeque<Record>,
        delivered: u64,
    }

    impl Run {
        fn new(seed: u64) -> Self {
            let most = 3 * charge(1);
            Self {
                random: fastrand::Rng::with_seed(seed),
                out: Outbox::new(most),
                into: Inbox::new(most),
                streams: Vec::new(),
                next: 0,
                pushed: 0,
                queue: VecDeque::new(),
                delivered: 0,
            }
        }

        fn push(&mut self) {
            if self.out.reserve(1).is_ok() {
                let byte = self.pushed.to_le_bytes()[0];
                self.out.push(None, Box::new([byte]));
                self.pushed += 1;
            }
        }

        fn step(&mut self, seed: u64) {
            let streams = self.streams.len();
            let which = self.random.usize(0..streams.max(1));
            match (self.random.u32(0..8), self.streams.get_mut(which)) {
                (0, _) => self.push(),
                (1, _) if streams < 3 => {
                    self.out.enter(self.next, self.into.accepted()).unwrap();
                    self.streams
                        .push((self.next, VecDeque::new(), VecDeque::new()));
                    self.next += 1;
                }
                (2, Some(_)) => {
                    // Records and counts that are under way on the stream are lost.
                    let (link, ..) = self.streams.swap_remove(which);
                    self.out.leave(link);
                }
                (3, Some((link, there, _))) => there.extend(self.out.next(*link)),
                (4, Some((_, there, _))) => {
                    if let Some(record) = there.pop_front()
                        && self.into.accept(record.number, record.bytes.len()).unwrap()
                    {
                        self.queue.push_back(record);
                    }
                }
                (5, _) => {
                    if let Some(record) = self.queue.pop_front() {
                        self.into.take(record.bytes.len());
                        let expected = self.delivered.to_le_bytes()[0];
                        assert_eq!(record.number, self.delivered, "seed {seed}");
                        assert_eq!(*record.bytes, [expected], "seed {seed}");
                        self.delivered += 1;
                    }
                }
                (6, Some((_, _, back))) => back.push_back(self.into.taken()),
                (7, Some((_, _, back))) => {
                    if let Some(count) = back.pop_front() {
                        self.out.taken(count).unwrap();
                    }
                }
                _ => {}
            }
            assert!(
                self.out.kept.len() <= 3,
                "seed {seed}: more than the inbox has room for"
            );
        }
    }

    #[test]
    fn each_is_delivered_once_and_in_order_whichever_connections_end() {
        let seed = fastrand::u64(..1 << 32);
        let mut delivered = 0;
        for seed in seed..seed + 200 {
            let mut run = Run::new(seed);
            for _ in 0..2000 {
                run.step(seed);
            }
            // A last connection brings all notices that are left.
            run.streams.iter().for_each(|(link, ..)| {
                run.out.leave(*link);
            });
            run.out.enter(run.next, run.into.accepted()).unwrap();
            while let Some(record) = run.out.next(run.next) {
                if run.into.accept(record.number, 1).unwrap() {
                    run.queue.push_back(record);
                }
            }
            let left = run.queue.len() as u64;
            assert_eq!(run.delivered + left, run.pushed, "seed {seed}");
            assert_eq!(run.into.accepted(), run.pushed, "seed {seed}");
            delivered += run.delivered;
        }
        assert!(delivered > 1000, "{delivered}");
    }

    #[test]
    fn what_the_other_end_cannot_have_said_is_refused() {
        let mut out = Outbox::new(2 * charge(0));
        out.reserve(0).unwrap();
        out.reserve(0).unwrap();
        assert_eq!(out.reserve(0), Err([2 * charge(0); 2]));
        out.give_back(0);
        out.push(None, Box::default());
        assert_eq!(
            out.enter(1, 1),
            Err(NoticeError::Unsent { found: 1, sent: 0 })
        );
        out.enter(1, 0).unwrap();
        assert_eq!(out.enter(1, 0), Err(NoticeError::Twice));
        assert_eq!(out.taken(1), Err(NoticeError::Unsent { found: 1, sent: 0 }));
        assert_eq!(out.next(2), None, "it does not carry");
        assert_eq!(out.next(1).map(|record| record.number), Some(0));
        assert_eq!(out.taken(1), Ok(true));
        assert_eq!(out.taken(1), Ok(false));
        assert_eq!(out.taken(0), Ok(false), "an old count");
        let mut into = Inbox::new(charge(8));
        assert_eq!(
            into.accept(1, 0),
            Err(NoticeError::Gap { found: 1, due: 0 })
        );
        let full = NoticeError::Full {
            used: charge(9),
            most: charge(8),
        };
        assert_eq!(into.accept(0, 9), Err(full));
        assert_eq!(into.accept(0, 8), Ok(true));
        assert_eq!(into.accept(0, 8), Ok(false));
        assert!(into.accept(1, 0).is_err(), "it is full");
        into.take(8);
        assert_eq!(into.accept(1, 0), Ok(true));
    }
}
