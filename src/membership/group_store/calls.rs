//! The calls of one rank to its store: each within the bound that the pace of the store gives it, and how long each took.

use std::sync::Arc;
use std::time::Duration;

use membership_rules::clocks::Pace;
use rendezvous::{Store, StoreError, Timed};

/// The way of one generation to the store.
#[derive(Debug)]
pub(super) struct Calls {
    opened: Arc<dyn Store>,
    /// As `opened`, with the bound that calls have now.
    store: Arc<dyn Store>,
    bound: Duration,
    ttl: Duration,
    pace: Pace,
    /// The slowest call since the last look; the longest time of all if one has failed.
    slowest: Duration,
}

impl Calls {
    /// Calls of a rank whose lease lives for `ttl`.
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

    /// Returns the store, without a bound of its own.
    pub(super) fn opened(&self) -> &Arc<dyn Store> {
        &self.opened
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Makes one call within the bound that the pace of the store gives it.
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

    /// No clock against another rank counts the time up to now: it counts as that of a call that has failed.
    pub(super) fn fail(&mut self) {
        self.slowest = Duration::MAX;
    }

    /// Returns the slowest call since this was asked last; the longest time of all if one has failed.
    pub(super) fn take_slowest(&mut self) -> Duration {
        std::mem::take(&mut self.slowest)
    }
}
