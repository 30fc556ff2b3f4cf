//! What the model remembers: shared words, threads with their store buffers, and the compact form of both.
//!
//! A search copies states millions of times, so no part of a state is on the heap.

use crate::explore::Codec;

/// The most WQEBBs of a ring, threads, and stores that a thread has not yet made visible.
const DEPTH: usize = 8;
const THREADS: usize = 4;
const STORES: usize = 12;

/// The most words that a mode adds after flags and WQEBBs.
pub(crate) const MODE_WORDS: usize = 8;

/// A mark on the word of a store that a lane of a warp made, until its leader has met the lane at a barrier.
pub(crate) const LANE: u8 = 0x80;

/// The indices of shared words in [`State::words`]. Flags of ring indices and WQEBBs follow at [`Word::FLAGS`].
pub(crate) struct Word;

impl Word {
    /// The ring space that was asked for.
    pub(crate) const CLAIM: usize = 0;
    /// The next index to reserve.
    pub(crate) const RESV: usize = 1;
    /// The index up to which WQEs are completed, as software knows it.
    pub(crate) const CONS: usize = 2;
    /// The last doorbell, as software knows it.
    pub(crate) const DOORBELL_INDEX: usize = 3;
    /// The first index of this life.
    pub(crate) const BASE: usize = 4;
    /// The latched error, 0 for none.
    pub(crate) const ERR: usize = 5;
    /// The number of guards held.
    pub(crate) const READERS: usize = 6;
    /// True if the host lets no guard in.
    pub(crate) const CLOSED: usize = 7;
    /// NIC: the doorbell record.
    pub(crate) const RECORD: usize = 8;
    /// NIC: the doorbell register.
    pub(crate) const DOORBELL: usize = 9;
    /// NIC: the collapsed CQE's counter, -1 for an error entry.
    pub(crate) const CQE: usize = 10;
    /// NIC: the number of WQEBBs run in this life.
    pub(crate) const RUN: usize = 11;
    /// NIC: whether the QP is in the error state.
    pub(crate) const DEAD: usize = 12;
    /// NIC that samples: whether a doorbell was seen and the record not yet read.
    pub(crate) const ARMED: usize = 13;
    /// NIC that samples: the record as it was read.
    pub(crate) const LIMIT: usize = 14;
    /// Ghost: the number of the life.
    pub(crate) const LIFE: usize = 15;
    /// Ghost: the index at which the token is parked, or -1 while it is held.
    pub(crate) const TOKEN: usize = 16;
    /// The first flag. `depth` flags are followed by `depth` WQEBBs, and those by the words that a mode adds.
    pub(crate) const FLAGS: usize = 17;
    /// The number of all words, for the largest depth and mode.
    const COUNT: usize = Self::FLAGS + 2 * DEPTH + MODE_WORDS;
}

/// The indices of words that threads store to, as the store buffer names them.
pub(crate) mod stored {
    use super::Word;

    pub(crate) const CONS: u8 = 2;
    pub(crate) const DOORBELL_INDEX: u8 = 3;
    pub(crate) const RECORD: u8 = 8;
    pub(crate) const DOORBELL: u8 = 9;
    const _: () = assert!(CONS as usize == Word::CONS);
    const _: () = assert!(DOORBELL_INDEX as usize == Word::DOORBELL_INDEX);
    const _: () = assert!(RECORD as usize == Word::RECORD);
    const _: () = assert!(DOORBELL as usize == Word::DOORBELL);
}

/// All shared words.
pub(crate) type Words = [i32; Word::COUNT];

/// Returns the token parked at `index`. The thread that takes it must ring if `owed`.
pub(crate) fn parked(index: i32, owed: bool) -> i32 {
    index << 8 | i32::from(owed) << 1 | 1
}

/// Returns the flag of a written batch of `blocks` WQEBBs at `index`. `more`: the batch need not be rung for its own sake.
pub(crate) fn written(index: i32, blocks: i32, more: bool) -> i32 {
    index << 8 | blocks << 4 | i32::from(more) << 1 | 4
}

/// Returns (WQEBBs, more) if `flag` says that a batch at `index` is written.
pub(crate) fn batch_at(flag: i32, index: i32) -> Option<(i32, bool)> {
    (flag >> 8 == index && flag & 4 != 0).then_some((flag >> 4 & 15, flag & 2 != 0))
}

/// The content of a WQEBB.
pub(crate) mod block {
    /// A WQE of one WQEBB.
    pub(crate) const SINGLE: i32 = 0;
    /// The first of two WQEBBs.
    pub(crate) const HEAD: i32 = 1;
    /// The second of two WQEBBs.
    pub(crate) const TAIL: i32 = 2;

    pub(crate) fn new(index: i32, kind: i32, signalled: bool) -> i32 {
        (index + 1) << 3 | i32::from(signalled) << 2 | kind
    }

    /// Returns the index that a block was written for, or -1 if it was never written.
    pub(crate) fn index(block: i32) -> i32 {
        (block >> 3) - 1
    }

    pub(crate) fn kind(block: i32) -> i32 {
        block & 3
    }

    pub(crate) fn is_signalled(block: i32) -> bool {
        block & 4 != 0
    }
}

/// The place of a thread in its operation. The names are those of the protocol's sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum At {
    Idle,
    GuardCheck,
    GuardCountLate,
    GuardDrop,
    Flush,
    Stale,
    Admit,
    AdmitWait,
    Undo,
    Reserve,
    ReserveByCas,
    SlotWait,
    Write,
    Peek,
    Publish,
    Scan,
    HoldFence,
    RingFence,
    Park,
    LeaveCas,
    LeaveFence,
    LeavePark,
    Wait,
    RecordFence,
    Barrier,
    ExclusivePublish,
    ExclusiveRing,
    Agent,
    PollCons,
    PollEntry,
    PollRecheck,
    PollConsLate,
    PollTake,
    PollCas,
    PollSyndrome,
    Refresh,
    RefreshDrop,
    Held,
}

impl At {
    const ALL: [Self; 38] = [
        Self::Idle,
        Self::GuardCheck,
        Self::GuardCountLate,
        Self::GuardDrop,
        Self::Flush,
        Self::Stale,
        Self::Admit,
        Self::AdmitWait,
        Self::Undo,
        Self::Reserve,
        Self::ReserveByCas,
        Self::SlotWait,
        Self::Write,
        Self::Peek,
        Self::Publish,
        Self::Scan,
        Self::HoldFence,
        Self::RingFence,
        Self::Park,
        Self::LeaveCas,
        Self::LeaveFence,
        Self::LeavePark,
        Self::Wait,
        Self::RecordFence,
        Self::Barrier,
        Self::ExclusivePublish,
        Self::ExclusiveRing,
        Self::Agent,
        Self::PollCons,
        Self::PollEntry,
        Self::PollRecheck,
        Self::PollConsLate,
        Self::PollTake,
        Self::PollCas,
        Self::PollSyndrome,
        Self::Refresh,
        Self::RefreshDrop,
        Self::Held,
    ];
}

/// The bits of [`Thread::bits`].
pub(crate) mod bit {
    /// The batch need not be rung for its own sake.
    pub(crate) const MORE: i32 = 1;
    /// The holder of the token must ring.
    pub(crate) const MUST: i32 = 2;
    /// The operation is the NOP of a wait.
    pub(crate) const NOP: i32 = 4;
    /// The budget is used up: no doorbell until the token is parked.
    pub(crate) const QUIET: i32 = 8;
    /// The ticket that is waited for was posted with MORE.
    pub(crate) const HELD: i32 = 16;
    /// The wait has posted its NOP.
    pub(crate) const NOP_POSTED: i32 = 32;
    /// The thread looks at the CQ for an admission. Otherwise it looks for a wait.
    pub(crate) const ADMITTING: i32 = 64;
    /// Only in a mutant: what was read under the guard before its refresh is used after the refresh.
    pub(crate) const REFRESHED: i32 = 128;
}

/// A thread of the model. Equal programs have equal numbers, so that threads can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thread {
    pub(crate) program: u8,
    /// The number of operations done.
    pub(crate) done: u8,
    pub(crate) at: At,
    /// The first index of the batch.
    pub(crate) index: i32,
    /// The number of WQEBBs of the batch.
    pub(crate) blocks: i32,
    /// As holder of the token: the index after the last batch swept.
    pub(crate) head: i32,
    /// As holder: the flag that was seen at that index.
    pub(crate) flag: i32,
    /// As holder: the number of rounds, of ringing rounds first and then of quiet ones.
    pub(crate) round: i32,
    pub(crate) bits: i32,
    pub(crate) ticket: i32,
    pub(crate) life: i32,
    /// Block mode: ring slots, by bit, whose WQEs the NIC may not see yet. This thread has written them or learned of them by an acquire
    /// fence. A release fence of wider scope waits for them, because it is cumulative.
    pub(crate) known: u8,
    /// As `known`, but read in flags and not yet acquired.
    pub(crate) seen: u8,
    /// The lanes, by bit, that have not written their WQE yet.
    pub(crate) lanes: u8,
    /// The stores that no other thread sees yet. Stores to one word stay in order.
    pub(crate) buffer: Buffer,
}

/// Stores on their way, as word and value, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Buffer {
    length: usize,
    /// The stores. Entries from `length` on are zeros.
    stores: [(u8, i32); STORES],
}

impl Buffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn stores(&self) -> &[(u8, i32)] {
        &self.stores[..self.length]
    }

    pub(crate) fn push(&mut self, store: (u8, i32)) {
        self.stores[self.length] = store;
        self.length += 1;
    }

    /// Notes that lanes and leader have met at a barrier, so that the leader's fences cover the lanes' stores.
    pub(crate) fn join_lanes(&mut self) {
        for (word, _) in &mut self.stores[..self.length] {
            *word &= !LANE;
        }
    }

    pub(crate) fn remove(&mut self, at: usize) {
        self.stores.copy_within(at + 1..self.length, at);
        self.length -= 1;
        self.stores[self.length] = (0, 0);
    }

    /// Codes the buffer. A buffer that is read into was empty before.
    fn code(&mut self, codec: &mut impl Codec) {
        let mut length = u8::try_from(self.length).unwrap();
        codec.whole(&mut length);
        self.length = usize::from(length);
        for (word, value) in &mut self.stores[..self.length] {
            codec.whole(word);
            codec.value(value);
        }
    }
}

impl Thread {
    pub(crate) fn new(program: u8) -> Self {
        Self {
            program,
            done: 0,
            at: At::Idle,
            index: 0,
            blocks: 0,
            head: 0,
            flag: 0,
            round: 0,
            bits: 0,
            ticket: 0,
            life: 0,
            known: 0,
            seen: 0,
            lanes: 0,
            buffer: Buffer::default(),
        }
    }

    /// Returns this thread between operations, at `at`, with its stores that no other thread sees yet.
    pub(crate) fn cleared(&self, at: At) -> Self {
        Self {
            done: self.done,
            at,
            known: self.known,
            lanes: self.lanes,
            buffer: self.buffer,
            ..Self::new(self.program)
        }
    }

    fn code(&mut self, codec: &mut impl Codec) {
        let mut at = self.at as u8;
        for field in [&mut self.program, &mut self.done, &mut at] {
            codec.whole(field);
        }
        self.at = At::ALL[usize::from(at)];
        for field in [
            &mut self.index,
            &mut self.blocks,
            &mut self.head,
            &mut self.flag,
            &mut self.round,
            &mut self.bits,
            &mut self.ticket,
            &mut self.life,
        ] {
            codec.value(field);
        }
        for field in [&mut self.known, &mut self.seen, &mut self.lanes] {
            codec.whole(field);
        }
        self.buffer.code(codec);
    }
}

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub(crate) words: Words,
    threads: [Thread; THREADS],
    count: usize,
    /// The number of steps of a recovery that the host has done.
    pub(crate) recovery: u8,
}

impl State {
    /// Returns a state with these threads and all words 0.
    pub(crate) fn new(threads: &[Thread]) -> Self {
        let mut all = [Thread::new(0); THREADS];
        all[..threads.len()].copy_from_slice(threads);
        let mut state = Self {
            words: [0; Word::COUNT],
            threads: all,
            count: threads.len(),
            recovery: 0,
        };
        state.sort();
        state
    }

    pub(crate) fn threads(&self) -> &[Thread] {
        &self.threads[..self.count]
    }

    pub(crate) fn all_threads(&mut self) -> &mut [Thread] {
        &mut self.threads[..self.count]
    }

    pub(crate) fn thread(&mut self, number: usize) -> &mut Thread {
        &mut self.threads[number]
    }

    /// Sorts the threads. Threads with the same program are interchangeable, so states that differ only in their order become one.
    pub(crate) fn sort(&mut self) {
        self.threads[..self.count].sort_unstable();
    }

    /// Codes the state. All states of a search have as many words and threads.
    pub(crate) fn code(&mut self, words: usize, codec: &mut impl Codec) {
        for word in &mut self.words[..words] {
            codec.value(word);
        }
        for thread in &mut self.threads[..self.count] {
            thread.code(codec);
        }
        codec.whole(&mut self.recovery);
    }
}

#[cfg(test)]
use crate::explore::{Reader, Writer};

#[test]
fn a_packed_state_comes_back() {
    let mut thread = Thread::new(3);
    thread.at = At::Wait;
    thread.flag = parked(1000, true);
    thread.round = -1;
    (thread.known, thread.seen, thread.lanes) = (3, 255, 1);
    for store in [(7, written(500, 3, true)), (8, 1), (9, -1)] {
        thread.buffer.push(store);
    }
    thread.buffer.remove(1);
    let mut state = State::new(&[thread, Thread::new(0)]);
    state.words[..6].copy_from_slice(&[-1, 149, 150, i32::MAX, -101, i32::MIN]);
    state.recovery = 2;
    let mut writer = Writer::default();
    state.code(6, &mut writer);
    let mut back = State::new(&[Thread::new(1), Thread::new(1)]);
    back.code(6, &mut Reader::new(writer.end()));
    assert_eq!(back, state);
    for (number, at) in At::ALL.into_iter().enumerate() {
        assert_eq!(at as usize, number);
    }
}
