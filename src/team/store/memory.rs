//! A store for ranks that are threads of one process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Store, StoreError, check_key};

/// A map in memory. Share it between the rank threads with an `Arc`.
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: Mutex<BTreeMap<String, Vec<u8>>>,
    changed: Condvar,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The map is whole after every operation, so a panic elsewhere under the lock has broken nothing.
    fn values(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        self.values().insert(key.to_owned(), value.to_vec());
        self.changed.notify_all();
        Ok(())
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        Ok(self.values().get(key).cloned())
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        check_key(key)?;
        let mut values = self.values();
        if values.get(key).map(Vec::as_slice) != expected {
            return Ok(false);
        }
        values.insert(key.to_owned(), value.to_vec());
        self.changed.notify_all();
        Ok(true)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        check_key(key)?;
        let prefix = format!("{key}/");
        let values = self.values();
        let below = values.keys().filter_map(|key| key.strip_prefix(&prefix));
        let names: BTreeSet<&str> = below.filter_map(|key| key.split('/').next()).collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    /// At most 20 ms, since the change may have come between the caller's look and this call.
    fn wait_for_change(&self, timeout: Duration) {
        let timeout = timeout.min(Duration::from_millis(20));
        let woken = self.changed.wait_timeout(self.values(), timeout);
        drop(woken);
    }
}
