//! A store that counts its calls.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Changed, Count, KeyChange, KeyWatch, LeaseId, Store, StoreError};

/// What a store was asked, by kind of call, and how many bytes of keys and values it answered with.
#[derive(Debug, Default)]
pub struct Asked {
    calls: Mutex<BTreeMap<&'static str, u64>>,
    read: AtomicU64,
}

impl Asked {
    /// Calls of all kinds, by kind.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.calls).clone()
    }

    /// Calls that have renewed a lease.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        lock(&self.calls).get("renew").copied().unwrap_or(0)
    }

    /// Calls besides renewals.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let all: u64 = lock(&self.calls).values().sum();
        all - self.renewals()
    }

    /// Bytes of keys and values that were answered.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

/// What is done behind each call that has read.
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

    /// The same, which does `then` behind each call that has read and before its caller has the answer, with the kind of the call. A
    /// test so makes a look late, and changes the store while it lasts.
    #[must_use]
    pub fn behind_reads(self, then: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self {
            behind: Some(Behind(Arc::new(then))),
            ..self
        }
    }

    /// The counts of its calls so far, and from now on.
    #[must_use]
    pub fn asked(&self) -> Arc<Asked> {
        Arc::clone(&self.asked)
    }

    fn counted(&self, kind: &'static str) -> &dyn Store {
        *lock(&self.asked.calls).entry(kind).or_default() += 1;
        self.store.as_ref()
    }

    fn answered(&self, kind: &'static str, bytes: usize) {
        self.asked.read.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(Behind(then)) = &self.behind {
            then(kind);
        }
    }
}

impl Store for Counted {
    fn name(&self) -> String {
        self.store.name()
    }

    fn bounded(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            store: self.store.bounded(bound),
            asked: Arc::clone(&self.asked),
            behind: self.behind.clone(),
        })
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let kind = match key.split('/').nth(1) {
            Some("row") => "put row",
            Some("promise") => "put promise",
            _ => "put",
        };
        self.counted(kind).put(key, value)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.counted("get").try_get(key)?;
        self.answered("get", value.as_ref().map_or(0, Vec::len));
        Ok(value)
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        self.counted("compare and set")
            .compare_and_set(key, expected, value)
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        self.counted("remove").remove(key)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        let names = self.counted("list").list(key)?;
        self.answered("list", names.iter().map(String::len).sum());
        Ok(names)
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        self.counted("remove").remove_below(key)
    }

    fn changed_since(
        &self,
        keys: &[&str],
        below: Option<&str>,
        since: u64,
    ) -> Result<Changed, StoreError> {
        let kind = match below {
            Some("group") => "look at all",
            _ => "look",
        };
        let found = self.counted(kind).changed_since(keys, below, since)?;
        let bytes = found.entries.iter().map(|it| it.key.len() + it.value.len());
        self.answered(kind, bytes.sum());
        Ok(found)
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        self.counted("count").count(key)
    }

    fn take_lease(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<LeaseId>, StoreError> {
        self.counted("take").take_lease(key, value, ttl)
    }

    fn put_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Result<bool, StoreError> {
        self.counted("put").put_leased(key, value, id)
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        self.counted("renew").renew_lease(key, id)
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        self.counted("end").end_lease(key, id)
    }

    fn wait_for_change(&self, timeout: Duration) {
        self.store.wait_for_change(timeout);
    }

    fn next_change(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        let before = watch.requests();
        let found = self.store.next_change(watch, since, timeout);
        for _ in before..watch.requests() {
            self.counted("watch");
        }
        if let Ok(KeyChange::Set(entry)) = &found {
            self.answered("watch", entry.key.len() + entry.value.len());
        }
        found
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
