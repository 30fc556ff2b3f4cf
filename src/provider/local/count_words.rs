//! The words of the counters: a page with the bell and the number of sleepers, then a word for each counter.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex::{self, Flags};

use super::words::Words;

/// The number of counters of an engine.
pub(crate) const MOST_COUNTERS: u32 = 4096;
/// The number of words of a page.
pub(super) const PAGE: usize = 512;
/// The first words of the first page: the bell, and the number of sleepers.
pub(super) const BELL: usize = 0;
pub(super) const SLEEPERS: usize = 1;
pub(super) const COUNT_WORDS: usize = PAGE + MOST_COUNTERS as usize;

/// The counters of an engine, in words of this process or in a mapping of another process's words.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountWords<'a> {
    words: &'a Words,
    first: usize,
}

impl<'a> CountWords<'a> {
    /// Returns the counters that begin at word `first`.
    pub(super) fn at(words: &'a Words, first: usize) -> Self {
        Self { words, first }
    }

    pub(super) fn word(self, id: u32) -> Option<&'a AtomicU64> {
        let id = usize::try_from(id).ok().filter(|_| id < MOST_COUNTERS)?;
        self.words.get(self.first + PAGE + id)
    }

    pub(super) fn half(self, at: usize) -> &'a AtomicU32 {
        self.words.half(self.first + at)
    }

    pub(super) fn add(self, id: u32, writes: u64) -> bool {
        let Some(word) = self.word(id) else {
            return false;
        };
        // Release: the count comes after the bytes. SeqCst: either this thread sees the sleeper, or the sleeper sees the new count.
        word.fetch_add(writes, Ordering::SeqCst);
        if self.half(SLEEPERS).load(Ordering::SeqCst) != 0 {
            self.ring();
        }
        true
    }

    pub(super) fn ring(self) {
        let bell = self.half(BELL);
        bell.fetch_add(1, Ordering::SeqCst);
        if let Err(errno) = futex::wake(bell, Flags::empty(), u32::MAX >> 1) {
            tracing::error!("threads that wait for a counter are not woken: {errno}");
        }
    }
}
