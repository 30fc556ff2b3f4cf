//! The counters of an engine: words that its workers, kernels, and peers of this machine add to.
//!
//! The counters lie in the file of the engine's board, after the words of seats and regions, and begin at a page. Peers of this machine add
//! to them after their copies, as the engine's workers do after WRITEs of the NIC. A thread that waits sleeps on a word beside them, the
//! bell. The thread that adds rings the bell only if a thread sleeps: a waiter notes that it sleeps before its last look at the counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::thread::futex::{self, Flags};

use super::board::Board;
use super::count_words::{BELL, COUNT_WORDS, CountWords, SLEEPERS};
use super::words::Words;
use crate::deadline::Looks;
use crate::gpu::SharedFile;
use crate::provider::ProviderError;

/// Longest sleep without a look: another process of this user may have written anything to the words.
const NAP: Duration = Duration::from_secs(1);

/// The counters of an engine.
#[derive(Debug)]
pub(crate) struct Counts(Place);

#[derive(Debug)]
enum Place {
    /// Counters in the words of a board: peers of this machine count too.
    Board(Arc<Board>),
    /// Counters in words of their own: only the engine itself counts.
    Own(Words),
}

impl Counts {
    /// Returns the counters of an engine, all zero: on its board, if it has a board.
    ///
    /// # Errors
    /// The system has no memory for the counters.
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
            Place::Own(words) => CountWords::at(words, 0),
        }
    }

    /// Returns the word of a counter. Returns None if no counter has this number.
    pub(crate) fn word(&self, id: u32) -> Option<&AtomicU64> {
        self.words().word(id)
    }

    /// Adds so many WRITEs to a counter, after their bytes. Returns whether the counter exists.
    pub(crate) fn add(&self, id: u32, writes: u64) -> bool {
        self.words().add(id, writes)
    }

    /// Wakes all waiters, so that they look again.
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
                // The bell was rung, now or before; or a signal came; or the time is over. The thread looks again in each case.
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
            assert!(counts.add(7, 1));
            found
        };
        assert_eq!(counts.until(most, look), Some(1));
        // A wait of no time is one look.
        assert_eq!(counts.until(Duration::ZERO, look), Some(2));
        assert_eq!(counts.until(Duration::ZERO, || None::<u64>), None);
    }
}
