//! Counters: how many WRITEs have landed here that count, without a notice for each.
//!
//! A peer submits with [`Options::counter`](crate::engine::Options::counter). Each of its operations is one WRITE with the number of the
//! counter as its immediate. The WRITE consumes a receive WQE of this side after its last byte, and the worker that reaps this WQE
//! counts. A copy within the machine counts after its last byte too. Counters exist from the start of the engine, so it keeps what
//! arrives before the program asks for a counter.
//!
//! The bytes are in host memory before the completion that says so: an HCA keeps that order. Where memory of a GPU needs a flush, the
//! worker flushes before it counts (`flush`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::error::EngineError;
use crate::engine::limits::MOST_COUNTERS;
use crate::engine::route::mirror::Mirrors;
use crate::provider::ProviderError;
use crate::provider::local::{Board, Counts};

/// The counters of an engine, as its workers and waiters share them.
#[derive(Debug)]
pub(in crate::engine) struct Counters {
    pub(in crate::engine) counts: Counts,
    pub(in crate::engine) mirrors: Mirrors,
    is_closed: AtomicBool,
}

impl Counters {
    pub(in crate::engine) fn new(board: Option<&Arc<Board>>) -> Result<Self, ProviderError> {
        Ok(Self {
            counts: Counts::new(board)?,
            mirrors: Mirrors::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Counts one WRITE that has landed. Returns whether the counter exists.
    pub(in crate::engine) fn add(&self, id: u32) -> bool {
        self.counts.add(id)
    }

    /// Ends all waits.
    pub(in crate::engine) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.counts.ring();
    }

    /// Nothing is counted any more: the words that mirror say what the counters say, and stay so.
    pub(in crate::engine) fn end_mirrors(&self) {
        self.mirrors.end(&self.counts);
    }
}

/// Refuses a number that no counter has.
pub(in crate::engine) fn check_counter(id: u32) -> Result<(), EngineError> {
    match id < MOST_COUNTERS {
        true => Ok(()),
        false => Err(EngineError::Counter { id }),
    }
}

/// One counter of an engine. All callers that ask for the same number share it.
#[derive(Clone, Debug)]
pub struct Counter {
    pub(in crate::engine) counters: Arc<Counters>,
    id: u32,
}

impl Counter {
    /// Counter number `id`, which exists.
    pub(in crate::engine) fn new(counters: &Arc<Counters>, id: u32) -> Self {
        let counters = Arc::clone(counters);
        Self { counters, id }
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// The number of WRITEs that have counted since it was set to 0. Acquire: the bytes of these WRITEs are in memory.
    ///
    /// One that the peer reports as failed may have counted too, by the time of the report; none does later.
    #[must_use]
    pub fn read(&self) -> u64 {
        let word = self.counters.counts.word(self.id);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Waits until it says `count` or more: what it says. None: the time is over, or the engine is closed.
    #[must_use]
    pub fn wait(&self, count: u64, most: Duration) -> Option<u64> {
        let look = || Some(self.read()).filter(|now| *now >= count);
        let ends = || self.counters.is_closed.load(Ordering::SeqCst);
        let found = look().or_else(|| {
            let look = || look().map(Some).or_else(|| ends().then_some(None));
            self.counters.counts.until(most, look).flatten()
        });
        found.or_else(look)
    }

    /// Sets the counter to 0 and returns the old value. A WRITE that counts during the call is in the old or in the new value, never in
    /// both.
    ///
    /// A program that uses a counter again and again need not: it waits for one sum after the other.
    pub fn reset(&self) -> u64 {
        let word = self.counters.counts.word(self.id);
        word.map_or(0, |word| word.swap(0, Ordering::AcqRel))
    }

    /// Its address, as 8 bytes of this process, for kernels that wait for it. They read it by loads of system scope with acquire,
    /// once the program has registered the memory with the driver. It is valid as long as the engine or a [`Counter`] of it
    /// exists. All counters lie together, from the beginning of a page on.
    #[must_use]
    pub fn word(&self) -> u64 {
        let word = self.counters.counts.word(self.id);
        word.map_or(0, |word| std::ptr::from_ref(word).addr() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::route::link::Link;

    #[test]
    fn an_immediate_that_is_no_counter_ends_the_link_and_counts_nowhere() {
        let counters = Arc::new(Counters::new(None).unwrap());
        for immediate in [MOST_COUNTERS, 1 << 24, u32::MAX] {
            let link = Link::new((1, 0), &[0], None).with_counters(&counters);
            link.count(MOST_COUNTERS - 1);
            assert!(link.is_open());
            link.count(immediate);
            assert!(!link.is_open(), "{immediate:#x}");
        }
        let all = (0..MOST_COUNTERS).map(|id| {
            let counters = Arc::clone(&counters);
            Counter { counters, id }.read()
        });
        let counted: Vec<(usize, u64)> = all.enumerate().filter(|(_, said)| *said != 0).collect();
        assert_eq!(counted, [(MOST_COUNTERS as usize - 1, 3)]);
        // Of an engine without counters for its peer.
        let link = Link::new((1, 0), &[0], None);
        link.count(0);
        assert!(!link.is_open());
    }
}
