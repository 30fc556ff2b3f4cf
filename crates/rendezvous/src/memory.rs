//! A store for ranks that are threads of one process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{LeaseId, Store, StoreError, check_key, check_ttl, check_value};

/// A map in memory. Share it between the rank threads with an `Arc`.
#[derive(Debug, Default)]
pub struct MemoryStore {
    map: Mutex<Map>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Map {
    values: BTreeMap<String, Entry>,
    last_lease: u64,
}

#[derive(Debug)]
struct Entry {
    value: Vec<u8>,
    lease: Option<Held>,
}

#[derive(Debug)]
struct Held {
    id: LeaseId,
    ttl: Duration,
    until: Instant,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The map without leases that have run out.
    ///
    /// It is whole after every operation, so a panic elsewhere under the lock has broken nothing.
    fn map(&self) -> MutexGuard<'_, Map> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        map.values
            .retain(|_, entry| entry.lease.as_ref().is_none_or(|held| held.until > now));
        map
    }
}

impl Map {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(|entry| entry.value.as_slice())
    }

    fn set(&mut self, key: &str, value: &[u8], lease: Option<Held>) {
        let value = value.to_vec();
        self.values.insert(key.to_owned(), Entry { value, lease });
    }

    fn held(&mut self, key: &str, id: LeaseId) -> Option<&mut Held> {
        let held = self.values.get_mut(key)?.lease.as_mut()?;
        (held.id == id).then_some(held)
    }
}

impl Store for MemoryStore {
    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        self.map().set(key, value, None);
        self.changed.notify_all();
        Ok(())
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        Ok(self.map().get(key).map(<[u8]>::to_vec))
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        let mut map = self.map();
        if map.get(key) != expected {
            return Ok(false);
        }
        map.set(key, value, None);
        self.changed.notify_all();
        Ok(true)
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        check_key(key)?;
        let removed = self.map().values.remove(key).is_some();
        self.changed.notify_all();
        Ok(removed)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        check_key(key)?;
        let prefix = format!("{key}/");
        let map = self.map();
        let below = map
            .values
            .keys()
            .filter_map(|key| key.strip_prefix(&prefix));
        let names: BTreeSet<&str> = below.filter_map(|key| key.split('/').next()).collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    fn take_lease(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<LeaseId>, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        check_ttl(key, ttl)?;
        let mut map = self.map();
        if map.get(key).is_some() {
            return Ok(None);
        }
        map.last_lease += 1;
        let id = LeaseId(map.last_lease);
        let until = Instant::now() + ttl;
        map.set(key, value, Some(Held { id, ttl, until }));
        self.changed.notify_all();
        Ok(Some(id))
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        let mut map = self.map();
        let Some(held) = map.held(key, id) else {
            return Ok(false);
        };
        held.until = Instant::now() + held.ttl;
        Ok(true)
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        check_key(key)?;
        let mut map = self.map();
        if map.held(key, id).is_some() {
            map.values.remove(key);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// At most 20 ms, since the change may have come between the caller's look and this call, and a lease runs out silently.
    fn wait_for_change(&self, timeout: Duration) {
        let timeout = timeout.min(Duration::from_millis(20));
        let woken = self.changed.wait_timeout(self.map(), timeout);
        drop(woken);
    }
}
