//! What an engine knows of another one, across all connections to it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::link::Link;
use super::notices::{Behind, Inbox, Notice, NoticeError, Outbox, Record};
use super::report::Remote;
use super::transfers::RemoteTable;

/// So many times the peers that an engine may have it remembers with whom it has exchanged notices, so that a connection goes on.
const REMEMBERED: usize = 16;

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
    name: String,
    /// Its regions, as far as they were imported.
    pub(super) remote: Mutex<Arc<RemoteTable>>,
    outbox: Mutex<Outbox>,
    inbox: Mutex<Inbox>,
    /// Its connections.
    links: Mutex<Vec<Arc<Link>>>,
}

impl Known {
    /// What goes to it.
    pub(super) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        lock(&self.outbox)
    }

    /// What has come from it.
    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    /// Sends a notice, for which room was reserved.
    pub(super) fn send(&self, transfer: Option<Behind>, bytes: Box<[u8]>) {
        self.outbox().push(transfer, bytes);
        self.wake();
    }

    /// Lets the threads of its connections look.
    fn wake(&self) {
        for wake in lock(&self.links).iter().filter_map(|link| link.wake()) {
            wake.wake();
        }
    }

    fn has_had_notices(&self) -> bool {
        self.inbox().accepted() > 0 || self.outbox().has_sent()
    }
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
    /// Taken by nobody yet; those of one engine in its order.
    notices: VecDeque<(Arc<Known>, Record)>,
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

    /// One more connection to this life of `name`, with the rooms of its inbox and of this engine's for it. What is known of an earlier
    /// life is forgotten.
    pub(super) fn enter(
        &self,
        (name, incarnation): (&str, u64),
        [theirs, own]: [u64; 2],
        link: &Arc<Link>,
    ) -> Arc<Known> {
        let mut state = self.state();
        if state.engines.len() >= self.most && !state.engines.contains_key(name) {
            let is_many = state.engines.len() >= self.most.saturating_mul(REMEMBERED);
            let is_used = |(known, links): &(Arc<Known>, u32)| {
                *links > 0 || Arc::strong_count(known) > 1 || !is_many && known.has_had_notices()
            };
            state.engines.retain(|_, engine| is_used(engine));
        }
        let new = || {
            let known = Known {
                incarnation,
                name: name.to_owned(),
                remote: Mutex::default(),
                outbox: Mutex::new(Outbox::new(theirs)),
                inbox: Mutex::new(Inbox::new(own)),
                links: Mutex::default(),
            };
            (Arc::new(known), 0)
        };
        let engine = state.engines.entry(name.to_owned()).or_insert_with(new);
        if engine.0.incarnation != incarnation {
            *engine = new();
        }
        engine.1 += 1;
        lock(&engine.0.links).push(Arc::clone(link));
        Arc::clone(&engine.0)
    }

    /// A connection has ended; none for `gone`: by this side's wish. With the last of them it is told.
    pub(super) fn leave(&self, known: &Known, link: &Link, gone: Option<PeerGone>) {
        let Known {
            name, incarnation, ..
        } = known;
        lock(&known.links).retain(|it| it.number != link.number);
        if known.outbox().leave(link.number) {
            known.wake();
        }
        let mut state = self.state();
        let is_last = match state.engines.get_mut(name) {
            Some((known, links)) if known.incarnation == *incarnation => {
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
        self.next(most, |state| state.gone.pop_front())
    }

    fn next<T>(&self, most: Duration, mut look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let end = Instant::now().checked_add(most);
        let mut state = self.state();
        loop {
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            let left = end.map_or(most, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A notice of `known` has come.
    pub(super) fn accept(&self, known: &Arc<Known>, record: Record) -> Result<(), NoticeError> {
        // Under the lock: what two connections bring stands in the order of numbers.
        let mut state = self.state();
        if known.inbox().accept(record.number, record.bytes.len())? {
            state.notices.push_back((Arc::clone(known), record));
            self.changed.notify_all();
        }
        Ok(())
    }

    /// The next notice, of any engine. None: the time is over.
    pub(super) fn notice(&self, most: Duration) -> Option<Notice> {
        let (known, record) = self.next(most, |state| state.notices.pop_front())?;
        known.inbox().take(record.bytes.len());
        known.wake();
        Some(Notice {
            peer: known.name.clone(),
            incarnation: known.incarnation,
            bytes: record.bytes,
            transfer: record.transfer,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
