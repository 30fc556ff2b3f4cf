//! What an engine knows of another one, across all connections to it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::report::Remote;
use super::transfers::RemoteTable;

/// Another engine is gone: its last connection has ended, not by this side's wish, and this side's QPs to it are reset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerGone {
    /// Its name.
    pub name: String,
    /// Which life of it.
    pub incarnation: u64,
    /// Whether its QPs are reset too: else what this side has sent may land there until they are.
    pub remote: Remote,
    /// How the last connection has ended.
    pub reason: String,
}

/// One life of another engine.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) incarnation: u64,
    /// Its regions, as far as they were imported.
    pub(super) remote: Mutex<Arc<RemoteTable>>,
}

/// All engines that this one has met.
#[derive(Debug)]
pub(super) struct AllKnown {
    /// So many engines without a connection and without a handle are kept at most, and so many that are gone and were told to nobody.
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By name; the latest life of each, and its connections.
    engines: HashMap<String, (Arc<Known>, u32)>,
    /// Told to nobody yet.
    gone: VecDeque<PeerGone>,
}

impl AllKnown {
    /// Those of an engine that has `most` peers at most.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// One more connection to this life of `name`. What is known of an earlier life is forgotten.
    pub(super) fn enter(&self, name: &str, incarnation: u64) -> Arc<Known> {
        let mut state = self.state();
        if state.engines.len() >= self.most && !state.engines.contains_key(name) {
            let is_used =
                |(known, links): &(Arc<Known>, u32)| *links > 0 || Arc::strong_count(known) > 1;
            state.engines.retain(|_, engine| is_used(engine));
        }
        let new = || {
            let remote = Mutex::default();
            let known = Known {
                incarnation,
                remote,
            };
            (Arc::new(known), 0)
        };
        let engine = state.engines.entry(name.to_owned()).or_insert_with(new);
        if engine.0.incarnation != incarnation {
            *engine = new();
        }
        engine.1 += 1;
        Arc::clone(&engine.0)
    }

    /// A connection has ended; none for `gone`: by this side's wish. With the last of them it is told.
    pub(super) fn leave(&self, name: &str, incarnation: u64, gone: Option<PeerGone>) {
        let mut state = self.state();
        let is_last = match state.engines.get_mut(name) {
            Some((known, links)) if known.incarnation == incarnation => {
                *links -= 1;
                *links == 0
            }
            // A later life has taken its name.
            _ => true,
        };
        if let Some(gone) = gone.filter(|_| is_last) {
            if state.gone.len() >= self.most
                && let Some(oldest) = state.gone.pop_front()
            {
                tracing::warn!("nobody has asked which peers are gone: {oldest:?}");
            }
            state.gone.push_back(gone);
            self.changed.notify_all();
        }
    }

    /// The next that is gone. None: the time is over.
    pub(super) fn gone(&self, most: Duration) -> Option<PeerGone> {
        let end = Instant::now().checked_add(most);
        let mut state = self.state();
        loop {
            if let Some(gone) = state.gone.pop_front() {
                return Some(gone);
            }
            let left = end.map_or(most, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
