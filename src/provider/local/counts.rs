//! Counters of an engine: words that its workers, kernels and peers of this machine reach.
//!
//! The counters lie in the file of the engine's board, after all other words, from the beginning of a page on. Peers of this
//! machine count in them after their copies, as the engine's workers do after WRITEs of the NIC. A thread that waits sleeps on a
//! word beside them, the bell. Another thread rings it only if one sleeps: a waiter marks that before its last look at the counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::thread::futex::{self, Flags};

use super::board::{Board, FIRST_COUNT};
use super::words::Words;
use crate::deadline::Looks;
use crate::gpu::SharedFile;
use crate::provider::ProviderError;

/// Counters of an engine.
pub(crate) const MOST_COUNTERS: u32 = 4096;
/// Words of a page.
pub(super) const PAGE: usize = 512;
/// Of the first page: the bell, and how many sleep.
const BELL: usize = 0;
const SLEEPERS: usize = 1;
pub(super) const COUNT_WORDS: usize = PAGE + MOST_COUNTERS as usize;
/// Longest sleep without a look. Another process of this user may have written anything to the words.
const NAP: Duration = Duration::from_secs(1);

/// The counters of an engine.
#[derive(Debug)]
pub(crate) struct Counts(Place);

#[derive(Debug)]
enum Place {
    /// Peers of this machine count too.
    Board(Arc<Board>),
    /// Only the engine itself counts.
    Own(Words),
}

/// Where the counters of an engine lie, in this process or in a mapping of another one's.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountWords<'a> {
    words: &'a Words,
    first: usize,
}

impl Counts {
    /// Those of the engine that has this board, if it has one. All are zero.
    ///
    /// # Errors
    /// The system has no memory for them.
    pub(crate) fn new(board: Option<&Arc<Board>>) -> Result<Self, ProviderError> {
        if let Some(board) = board {
            return Ok(Self(Place::Board(Arc::clone(board))));
        }
        let words = SharedFile::new(COUNT_WORDS * 8)
            .and_then(|file| Words::shared(&file, COUNT_WORDS))
            .map_err(|source| ProviderError::system("memfd_create", source))?;
        Ok(Self(Place::Own(words)))
    }

    fn words(&self) -> CountWords<'_> {
        match &self.0 {
            Place::Board(board) => board.counts(),
            Place::Own(words) => CountWords { words, first: 0 },
        }
    }

    /// The word of a counter; none if no counter has this number.
    pub(crate) fn word(&self, id: u32) -> Option<&AtomicU64> {
        self.words().word(id)
    }

    /// Adds one, after the bytes. Returns whether the counter exists.
    pub(crate) fn add(&self, id: u32) -> bool {
        self.words().add(id)
    }

    /// Wakes all waiters, which look again.
    pub(crate) fn ring(&self) {
        self.words().ring();
    }

    /// Waits until `look` has found something, or the time is over.
    pub(crate) fn until<T>(&self, most: Duration, look: impl Fn() -> Option<T>) -> Option<T> {
        let words = self.words();
        for left in Looks::within(most) {
            let bell = words.half(BELL).load(Ordering::SeqCst);
            let sleepers = words.half(SLEEPERS);
            sleepers.fetch_add(1, Ordering::SeqCst);
            let found = look();
            if found.is_none()
                && !left.is_zero()
                && let Ok(left) = Timespec::try_from(left.min(NAP))
            {
                // Woken, rung for before, interrupted, or late: it looks again in each case.
                let _ = futex::wait(words.half(BELL), Flags::empty(), bell, Some(&left));
            }
            sleepers.fetch_sub(1, Ordering::SeqCst);
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

impl<'a> CountWords<'a> {
    /// Those in the words of a board.
    pub(super) fn of_board(words: &'a Words) -> Self {
        let first = FIRST_COUNT;
        Self { words, first }
    }

    fn word(self, id: u32) -> Option<&'a AtomicU64> {
        let id = usize::try_from(id).ok().filter(|_| id < MOST_COUNTERS)?;
        self.words.get(self.first + PAGE + id)
    }

    fn half(self, at: usize) -> &'a AtomicU32 {
        self.words.half(self.first + at)
    }

    pub(super) fn add(self, id: u32) -> bool {
        let Some(word) = self.word(id) else {
            return false;
        };
        // Release: after the bytes. SeqCst: either this thread sees the sleeper, or the sleeper sees the new count.
        word.fetch_add(1, Ordering::SeqCst);
        if self.half(SLEEPERS).load(Ordering::SeqCst) != 0 {
            self.ring();
        }
        true
    }

    fn ring(self) {
        let bell = self.half(BELL);
        bell.fetch_add(1, Ordering::SeqCst);
        if let Err(errno) = futex::wake(bell, Flags::empty(), u32::MAX >> 1) {
            tracing::error!("threads that wait for a counter are not woken: {errno}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_while_the_last_look_lasts_is_found_by_one_more() {
        let counts = Counts::new(None).unwrap();
        let count = || counts.word(7).unwrap().load(Ordering::SeqCst);
        let most = Duration::from_millis(1);
        let look = || {
            let found = (count() > 0).then(count);
            std::thread::sleep(2 * most);
            assert!(counts.add(7));
            found
        };
        assert_eq!(counts.until(most, look), Some(1));
        // No time is one look.
        assert_eq!(counts.until(Duration::ZERO, look), Some(2));
        assert_eq!(counts.until(Duration::ZERO, || None::<u64>), None);
    }
}
