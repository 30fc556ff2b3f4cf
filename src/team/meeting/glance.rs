//! Questions to the store by a rank that has missed another one. Its own call waits meanwhile, so the store answers at once or not
//! at all.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rendezvous::{Store, StoreError};

/// Longest call of the store of a rank that has missed another one, or a quarter of its deadline.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// And the shortest such bound.
const LEAST: Duration = Duration::from_millis(20);
/// After a call of the store without an answer, the rank asks nothing for so many times the bound.
const SILENCE: u32 = 16;

/// How long the store may take, and until when it is not asked.
#[derive(Debug)]
pub(super) struct Glance {
    /// Longest call.
    look: Duration,
    /// The store has not answered, and is not asked before then.
    silent_until: Mutex<Option<Instant>>,
}

impl Glance {
    /// Of a rank whose device calls wait for `deadline`.
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            look: (deadline / 4).clamp(LEAST, LOOK),
            silent_until: Mutex::default(),
        }
    }

    /// Returns whether the store has not answered a moment ago.
    pub(super) fn is_silent(&self) -> bool {
        let until = self.silent_until.lock();
        let until = *until.unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns what `ask` makes of the store, if it answers at once. A store that has not answered is not asked for a while, so that many
    /// questions take no longer than one.
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
