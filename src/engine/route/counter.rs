//! Counters of WRITEs that have landed at this side. A WRITE that counts needs no notice.
//!
//! A peer submits with [`Options::counter`](crate::engine::Options::counter). Each of its operations is one WRITE with the number of the
//! counter as its immediate. The WRITE consumes a receive WQE of this side after its last byte, and the worker that reaps this WQE
//! counts. A copy within the machine counts after its last byte too. Counters exist from the start of the engine, so it keeps what
//! arrives before the program asks for a counter.
//!
//! The bytes are in host memory before the completion that says so: an HCA keeps that order. Where memory of a GPU needs a flush, the
//! worker flushes before it counts (`flush`). Over libfabric a lane that ends may lose completions of WRITEs that are done. The peer then
//! tells how many have counted (`connection::counts`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::error::{EngineError, HostError};
use crate::engine::limits::MOST_COUNTERS;
use crate::engine::route::mirror::{Mirror, Mirrors, Target};
use crate::provider::local::{Board, Counts};
use crate::provider::{HostMemory, ProviderError};

/// The counters of an engine, as its workers and waiters share them.
#[derive(Debug)]
pub(in crate::engine) struct Counters {
    counts: Counts,
    mirrors: Arc<Mirrors>,
    is_closed: AtomicBool,
}

impl Counters {
    pub(in crate::engine) fn new(board: Option<&Arc<Board>>) -> Result<Self, ProviderError> {
        Ok(Self {
            counts: Counts::new(board)?,
            mirrors: Arc::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Counts so many WRITEs that have landed. Returns whether the counter exists.
    pub(in crate::engine) fn add(&self, id: u32, writes: u64) -> bool {
        self.counts.add(id, writes)
    }

    /// Ends all waits for counters.
    pub(in crate::engine) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.counts.ring();
    }

    /// Ends all mirrors. Nothing is counted any more, so their words have the final values of the counters.
    pub(in crate::engine) fn end_mirrors(&self) {
        self.mirrors.end(&self.counts);
    }
}

/// Refuses a number that no counter has.
pub(in crate::engine) fn check_counter(id: u32) -> Result<(), EngineError> {
    if id < MOST_COUNTERS {
        Ok(())
    } else {
        Err(EngineError::Counter { id })
    }
}

/// One counter of an engine. All callers that ask for the same number share it.
#[derive(Clone, Debug)]
pub struct Counter {
    counters: Arc<Counters>,
    id: u32,
}

impl Counter {
    /// Returns counter number `id`, which exists.
    pub(in crate::engine) fn new(counters: &Arc<Counters>, id: u32) -> Self {
        let counters = Arc::clone(counters);
        Self { counters, id }
    }

    /// Returns the number of the counter.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Returns the number of WRITEs that have counted since the counter was set to 0. Acquire: the bytes of these WRITEs are in memory.
    ///
    /// A WRITE that the peer reports as failed may have counted before that report, and does not count later.
    #[must_use]
    pub fn read(&self) -> u64 {
        let word = self.counters.counts.word(self.id);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Waits until the counter is `count` or more, and returns its value. Returns None if the time is over or the engine is closed.
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
    /// A program that uses a counter again and again need not reset it: it can wait for ever larger sums.
    pub fn reset(&self) -> u64 {
        let word = self.counters.counts.word(self.id);
        word.map_or(0, |word| word.swap(0, Ordering::AcqRel))
    }

    /// Returns the address of the counter: 8 bytes of this process. A kernel reads them by loads of system scope with acquire, once the
    /// program has registered the memory with the driver. The address is valid as long as the engine or a [`Counter`] of it exists. All
    /// counters lie together, from the beginning of a page on.
    #[must_use]
    pub fn word(&self) -> u64 {
        let word = self.counters.counts.word(self.id);
        word.map_or(0, |word| std::ptr::from_ref(word).addr() as u64)
    }

    /// Copies the value of the counter into the 8-byte word at `offset` of `memory`, now and at each change. It ends when the
    /// result is dropped or the engine is closed. A kernel waits for the word by loads of system scope, as `wv::wait_word` does.
    /// When it has seen a value, the bytes of as many WRITEs have landed.
    ///
    /// The memory may be any that this process and the kernel reach, such as [`HostMemory::over`] memory that the driver has mapped. It
    /// need not be registered. [`Counter::word`] needs no thread and no second word, if the program can register its page with the driver.
    ///
    /// # Errors
    /// [`EngineError::Word`]: the word is not at a multiple of 8; [`ProviderError::Range`]: it is outside; [`EngineError::Closing`];
    /// what the system refuses.
    pub fn mirror(&self, memory: &Arc<HostMemory>, offset: u64) -> Result<Mirror, HostError> {
        let target = Target::new(self.id, memory, offset)?;
        let counters = Arc::clone(&self.counters);
        let serve = move || counters.mirrors.serve(&counters.counts);
        let Counters {
            counts, mirrors, ..
        } = &*self.counters;
        mirrors.add(target, counts, serve)
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
            let link = Link::new(1, 0, &[0], None).with_counters(&counters);
            link.count(MOST_COUNTERS - 1, 1);
            assert!(link.is_open());
            link.count(immediate, 1);
            assert!(!link.is_open(), "{immediate:#x}");
        }
        let all = (0..MOST_COUNTERS).map(|id| {
            let counters = Arc::clone(&counters);
            Counter { counters, id }.read()
        });
        let counted: Vec<(usize, u64)> = all.enumerate().filter(|(_, said)| *said != 0).collect();
        assert_eq!(counted, [(MOST_COUNTERS as usize - 1, 3)]);
        // A link without counters for its peer ends too.
        let link = Link::new(1, 0, &[0], None);
        link.count(0, 1);
        assert!(!link.is_open());
    }
}
