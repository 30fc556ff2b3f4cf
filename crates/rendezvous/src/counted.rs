//! A store that counts its calls.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{
    AroundStore, KeyChange, KeyWatch, Store, StoreAnswer, StoreCall, StoreCallKind, StoreError,
};

/// The calls that a store got, by kind, and the bytes of keys and values in its answers.
#[derive(Debug, Default)]
pub struct Asked {
    calls: Mutex<BTreeMap<&'static str, u64>>,
    read: AtomicU64,
}

impl Asked {
    /// Returns the number of calls of each kind.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.calls).clone()
    }

    /// Returns the number of calls that have renewed a lease.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        lock(&self.calls).get("renew").copied().unwrap_or(0)
    }

    /// Returns the number of all calls but renewals.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let all: u64 = lock(&self.calls).values().sum();
        all - self.renewals()
    }

    /// Returns the number of bytes of keys and values in all answers.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

/// A function that is called after each call that has read.
#[derive(Clone)]
struct Behind(Arc<dyn Fn(&'static str) + Send + Sync>);

impl fmt::Debug for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Behind")
    }
}

/// A store that counts its calls.
#[derive(Debug)]
pub struct Counted {
    store: Arc<dyn Store>,
    asked: Arc<Asked>,
    behind: Option<Behind>,
}

impl Counted {
    /// Counts the calls of `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            asked: Arc::default(),
            behind: None,
        }
    }

    /// Calls `then` with the kind of the call after each call that has read, before the caller gets the answer. So a test makes a look
    /// late, and changes the store during the look.
    #[must_use]
    pub fn behind_reads(self, then: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self {
            behind: Some(Behind(Arc::new(then))),
            ..self
        }
    }

    /// Returns the counts of the store's calls, which go on counting.
    #[must_use]
    pub fn asked(&self) -> Arc<Asked> {
        Arc::clone(&self.asked)
    }

    fn count(&self, kind: &'static str) {
        *lock(&self.asked.calls).entry(kind).or_default() += 1;
    }

    fn answered(&self, kind: &'static str, bytes: usize) {
        self.asked.read.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(Behind(then)) = &self.behind {
            then(kind);
        }
    }
}

impl AroundStore for Counted {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn with_bound(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            store: self.store.bounded(bound),
            asked: Arc::clone(&self.asked),
            behind: self.behind.clone(),
        })
    }

    fn around(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        let kind = kind_of(call);
        self.count(kind);
        let answer = call.make(self.store.as_ref())?;
        if call.reads() && call.kind != StoreCallKind::Count {
            self.answered(kind, answer.bytes());
        }
        Ok(answer)
    }

    fn next_around(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        let before = watch.requests();
        let found = self.store.next_change(watch, since, timeout);
        for _ in before..watch.requests() {
            self.count("watch");
        }
        if let Ok(KeyChange::Set(entry)) = &found {
            self.answered("watch", entry.key.len() + entry.value.len());
        }
        found
    }
}

fn kind_of(call: &StoreCall<'_>) -> &'static str {
    match call.kind {
        StoreCallKind::Put => match call.key.split('/').nth(1) {
            Some("row") => "put row",
            Some("promise") => "put promise",
            _ => "put",
        },
        StoreCallKind::PutLeased { .. } => "put",
        StoreCallKind::TryGet => "get",
        StoreCallKind::CompareAndSet => "compare and set",
        StoreCallKind::Remove | StoreCallKind::RemoveBelow => "remove",
        StoreCallKind::List => "list",
        StoreCallKind::ChangedSince { .. } => match call.below.as_deref() {
            Some("group") => "look at all",
            _ => "look",
        },
        StoreCallKind::Count => "count",
        StoreCallKind::TakeLease { .. } => "take",
        StoreCallKind::RenewLease { .. } => "renew",
        StoreCallKind::EndLease { .. } => "end",
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
