//! Questions to the store by a rank that has missed another rank. The rank's own call waits meanwhile, so the store answers at once
//! or the rank goes on without an answer.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rendezvous::{Store, StoreError};

/// Longest time that such a question may take, if a quarter of the rank's deadline is not less.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// Shortest bound of the time that such a question may take.
const LEAST: Duration = Duration::from_millis(20);
/// Number of bounds for which a rank asks nothing after a question without an answer.
const SILENCE: u32 = 16;

/// The bound for questions to the store, and how long the store is not asked.
#[derive(Debug)]
pub(super) struct Glance {
    /// The longest time that a question may take.
    look: Duration,
    /// The time until which the store is not asked, since it has not answered a question.
    silent_until: Mutex<Option<Instant>>,
}

impl Glance {
    /// Makes the bound of a rank whose device calls wait for `deadline`.
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            look: (deadline / 4).clamp(LEAST, LOOK),
            silent_until: Mutex::default(),
        }
    }

    /// Returns whether the store has just left a question unanswered, so that it is not asked now.
    pub(super) fn is_silent(&self) -> bool {
        let until = self.silent_until.lock();
        let until = *until.unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns what `ask` reads from the store, if the store answers within the bound. A store that has not answered is not asked
    /// for a while, so that many questions take no longer than one.
    pub(super) fn ask<T>(
        &self,
        store: &dyn Store,
        key: &str,
        ask: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Option<T> {
        if self.is_silent() {
            return None;
        }
        let error = match ask(&*store.bounded(self.look)) {
            Ok(answer) => return Some(answer),
            Err(error) => error,
        };
        tracing::debug!("the store does not answer about '{key}' now: {error}");
        if error.is_unanswered() {
            let until = self.silent_until.lock();
            *until.unwrap_or_else(PoisonError::into_inner) =
                Instant::now().checked_add(self.look * SILENCE);
        }
        None
    }
}
