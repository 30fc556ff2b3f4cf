//! Makes the calls of one rank to its store, each within the bound that the pace of the store gives, and measures how long each takes.

use std::sync::Arc;
use std::time::Duration;

use membership_rules::clocks::Pace;
use rendezvous::{Store, StoreError, Timed};

/// The calls of one generation to its store.
#[derive(Debug)]
pub(super) struct Calls {
    opened: Arc<dyn Store>,
    /// The store `opened`, with the bound that calls have now.
    store: Arc<dyn Store>,
    bound: Duration,
    ttl: Duration,
    pace: Pace,
    /// The time of the slowest call since the last look. [`Duration::MAX`] if a call has failed.
    slowest: Duration,
}

impl Calls {
    /// Returns the calls of a rank whose lease lives for `ttl`.
    pub(super) fn new(store: Arc<dyn Store>, ttl: Duration) -> Self {
        Self {
            store: Arc::clone(&store),
            opened: store,
            bound: Duration::MAX,
            ttl,
            pace: Pace::default(),
            slowest: Duration::ZERO,
        }
    }

    /// Returns the store as it was opened: without the bound of these calls.
    pub(super) fn opened(&self) -> &Arc<dyn Store> {
        &self.opened
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Makes one call within the bound that the pace of the store gives.
    pub(super) fn call<T>(
        &mut self,
        call: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let bound = self.pace.call_ends(self.ttl);
        if bound != self.bound {
            self.store = self.opened.bounded(bound);
            self.bound = bound;
        }
        let timed = Timed::of(|| call(self.store.as_ref()));
        self.pace.took(timed.took);
        self.slowest = match &timed.result {
            Err(error) if !error.is_unreadable() => Duration::MAX,
            _ => self.slowest.max(timed.took),
        };
        timed.result
    }

    /// Counts the time up to now like that of a failed call: no clock against another rank counts it.
    pub(super) fn fail(&mut self) {
        self.slowest = Duration::MAX;
    }

    /// Returns the time of the slowest call since the last time that this was asked. [`Duration::MAX`] if a call has failed.
    pub(super) fn take_slowest(&mut self) -> Duration {
        std::mem::take(&mut self.slowest)
    }
}
