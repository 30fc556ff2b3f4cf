//! A store of the library's, whose waits end with a signal where Python waits for them.

use std::sync::Arc;
use std::time::Duration;

use warpverbs::config::Config;
use warpverbs::team::{Changed, Count, KeyChange, KeyWatch, LeaseId, Store, StoreError, Team};

use crate::interrupt::{self, SIGNALS};

/// Longest call of the store behind a signal: it tells other ranks that this one gives up.
const LAST: Duration = Duration::from_millis(500);

/// Calls of a thread that has come from Python end with a signal. Those of the library's own threads are those of `store`.
#[derive(Debug)]
struct Interruptible {
    store: Arc<dyn Store>,
}

/// The store that `config` names.
pub(crate) fn open(config: &Config) -> Result<Arc<dyn Store>, StoreError> {
    let config = config.clone();
    let store = interrupt::ask(move || Team::open_store(&config))?;
    Ok(Arc::new(Interruptible { store }))
}

impl Interruptible {
    fn ask<T: Send + 'static>(
        &self,
        call: impl Send + 'static + FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if !interrupt::is_lent() {
            return call(self.store.as_ref());
        }
        if interrupt::is_over() {
            // An error that is not repeated.
            return call(self.store.bounded(LAST).as_ref()).map_err(|error| {
                StoreError::Interrupted {
                    cause: error.to_string(),
                }
            });
        }
        let store = Arc::clone(&self.store);
        interrupt::ask(move || call(store.as_ref()))
    }
}

impl Store for Interruptible {
    fn bounded(&self, bound: Duration) -> Arc<dyn Store> {
        let store = self.store.bounded(bound);
        Arc::new(Self { store })
    }

    fn without_leases(&self) -> Option<String> {
        self.store.without_leases()
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let (key, value) = (key.to_owned(), value.to_owned());
        self.ask(move |store| store.put(&key, &value))
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = key.to_owned();
        self.ask(move |store| store.try_get(&key))
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let (key, value) = (key.to_owned(), value.to_owned());
        let expected = expected.map(<[u8]>::to_owned);
        self.ask(move |store| store.compare_and_set(&key, expected.as_deref(), &value))
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        let key = key.to_owned();
        self.ask(move |store| store.remove(&key))
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        let key = key.to_owned();
        self.ask(move |store| store.list(&key))
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        let key = key.to_owned();
        self.ask(move |store| store.remove_below(&key))
    }

    fn changed_since(
        &self,
        keys: &[&str],
        below: Option<&str>,
        since: u64,
    ) -> Result<Changed, StoreError> {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        let below = below.map(str::to_owned);
        self.ask(move |store| {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            store.changed_since(&keys, below.as_deref(), since)
        })
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        let key = key.to_owned();
        self.ask(move |store| store.count(&key))
    }

    /// Leases are kept by threads of the library.
    fn take_lease(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<LeaseId>, StoreError> {
        self.store.take_lease(key, value, ttl)
    }

    fn put_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Result<bool, StoreError> {
        self.store.put_leased(key, value, id)
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        self.store.renew_lease(key, id)
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        self.store.end_lease(key, id)
    }

    /// The call behind it fails if a signal has come.
    fn wait_for_change(&self, timeout: Duration) {
        match interrupt::is_lent() {
            true => {
                self.store.wait_for_change(timeout.min(SIGNALS));
                interrupt::look();
            }
            false => self.store.wait_for_change(timeout),
        }
    }

    fn next_change(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        self.store.next_change(watch, since, timeout)
    }
}
