//! Ids of transfers: slots that are used again, each use with a generation of its own.
//!
//! One atomic word of a slot has its generation and its status, so a poll is one load. The answer is the state of the transfer
//! with that id, or that the id is unknown. It stays right however often the slot has been used since. Polling changes nothing.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::error::EngineError;
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::Outcome;
use crate::engine::limits::MOST_SLOTS;

/// The outcome of a transfer, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is not concluded yet.
    Pending,
    /// It is concluded, and the HCA has nothing more of it.
    Concluded(Outcome),
    /// It was released.
    Unknown,
}

/// The word of a slot: `generation << 3 | state`. A generation counts uses. Its 61 bits last longer than any machine.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotWord(u64);

const STATE_BITS: u32 = 3;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;
const FREE: u64 = 0;
const PENDING: u64 = 1;
const DONE: u64 = 2;
const FAILED: u64 = 3;
const CANCELLED: u64 = 4;
const TIMED_OUT: u64 = 5;

impl SlotWord {
    /// Returns the number of this use of the slot.
    #[must_use]
    pub const fn generation(self) -> u64 {
        self.0 >> STATE_BITS
    }

    /// Puts the next transfer into a free slot.
    #[must_use]
    pub fn take(self) -> Option<Self> {
        let next = (self.generation() + 1) << STATE_BITS;
        (self.state() == FREE).then_some(Self(next | PENDING))
    }

    /// Concludes the transfer, which is pending.
    #[must_use]
    pub fn conclude(self, outcome: Outcome) -> Option<Self> {
        let state = match outcome {
            Outcome::Done => DONE,
            Outcome::Failed => FAILED,
            Outcome::Cancelled => CANCELLED,
            Outcome::TimedOut => TIMED_OUT,
        };
        (self.state() == PENDING).then_some(self.with(state))
    }

    /// Frees the slot of the transfer of `generation`, if that is concluded.
    #[must_use]
    pub fn release(self, generation: u64) -> Option<Self> {
        let is_concluded = matches!(self.poll(generation), Status::Concluded(_));
        is_concluded.then_some(self.with(FREE))
    }

    /// Returns what became of the transfer of `generation`.
    #[must_use]
    pub fn poll(self, generation: u64) -> Status {
        match self.state() {
            _ if self.generation() != generation => Status::Unknown,
            PENDING => Status::Pending,
            DONE => Status::Concluded(Outcome::Done),
            FAILED => Status::Concluded(Outcome::Failed),
            CANCELLED => Status::Concluded(Outcome::Cancelled),
            TIMED_OUT => Status::Concluded(Outcome::TimedOut),
            _ => Status::Unknown,
        }
    }

    const fn state(self) -> u64 {
        self.0 & STATE_MASK
    }

    const fn with(self, state: u64) -> Self {
        Self(self.0 & !STATE_MASK | state)
    }
}

impl fmt::Debug for SlotWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = self.generation();
        write!(f, "generation {generation}, {:?}", self.poll(generation))
    }
}

/// The slots of one engine.
#[derive(Debug)]
pub struct Slots {
    engine: u32,
    words: Box<[AtomicU64]>,
    /// Slots without a transfer. The slot that was freed last is used next. The list never grows beyond its first length.
    free: Mutex<Vec<u32>>,
}

impl Slots {
    /// Returns `count` slots of the engine that this process numbers `engine`.
    ///
    /// # Errors
    /// [`EngineError::Slots`]: `count` is 0 or more than [`MOST_SLOTS`].
    pub fn new(engine: u32, count: u32) -> Result<Self, EngineError> {
        if !(1..=MOST_SLOTS).contains(&count) {
            return Err(EngineError::Slots { count });
        }
        Ok(Self {
            engine,
            words: (0..count).map(|_| AtomicU64::default()).collect(),
            free: Mutex::new((0..count).rev().collect()),
        })
    }

    /// Returns how many slots there are.
    pub(in crate::engine) fn count(&self) -> usize {
        self.words.len()
    }

    /// Returns the number of the slots' engine.
    pub(in crate::engine) const fn engine(&self) -> u32 {
        self.engine
    }

    /// Takes a slot for a new transfer, which is pending from then on. None: all slots are taken.
    pub fn take(&self) -> Option<TransferId> {
        let slot = self.lock().pop()?;
        let word = self.change(slot, SlotWord::take)?;
        Some(TransferId {
            engine: self.engine,
            slot,
            generation: word.generation(),
        })
    }

    /// Concludes the transfer. Returns false if it was concluded before.
    ///
    /// Release: a thread that polls the transfer as concluded sees what the caller has written of it.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn conclude(&self, id: TransferId, outcome: Outcome) -> Result<bool, EngineError> {
        self.check(id)?;
        let step = |word: SlotWord| {
            if word.generation() == id.generation {
                word.conclude(outcome)
            } else {
                None
            }
        };
        Ok(self.change(id.slot, step).is_some())
    }

    /// Returns what became of the transfer. Once it is concluded, every poll returns the same until it is released.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn poll(&self, id: TransferId) -> Result<Status, EngineError> {
        self.check(id)?;
        Ok(self.word(id.slot).poll(id.generation))
    }

    /// Gives the slot of a concluded transfer back. The id of the transfer is unknown from then on. An id that is unknown already
    /// stays so.
    ///
    /// # Errors
    /// [`EngineError::Pending`]: the transfer is not concluded; [`EngineError::ForeignId`].
    pub fn release(&self, id: TransferId) -> Result<(), EngineError> {
        self.check(id)?;
        if self
            .change(id.slot, |word| word.release(id.generation))
            .is_some()
        {
            self.lock().push(id.slot);
            return Ok(());
        }
        match self.poll(id)? {
            Status::Pending => Err(EngineError::Pending { id }),
            Status::Concluded(_) | Status::Unknown => Ok(()),
        }
    }

    /// Returns how many transfers have a slot.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.words.len() - self.lock().len()
    }

    fn check(&self, id: TransferId) -> Result<(), EngineError> {
        let engine = self.engine;
        if id.engine == engine && (id.slot as usize) < self.words.len() {
            Ok(())
        } else {
            Err(EngineError::ForeignId { id, engine })
        }
    }

    /// Returns the word of a slot, which is one of this engine, as `check` has seen.
    fn word(&self, slot: u32) -> SlotWord {
        // Acquire pairs with the release of `change`.
        SlotWord(self.words[slot as usize].load(Ordering::Acquire))
    }

    fn change(&self, slot: u32, step: impl Fn(SlotWord) -> Option<SlotWord>) -> Option<SlotWord> {
        let next = |word| step(SlotWord(word)).map(|word| word.0);
        let word = &self.words[slot as usize];
        let before = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        before.ok().and_then(|word| step(SlotWord(word)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        // Each change of the list is complete, so a poisoned lock does no harm.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
