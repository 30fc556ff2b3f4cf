//! A store for ranks that are threads of one process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{
    Changed, Count, Entry, LeaseId, Store, StoreError, check_key, check_look, check_ttl,
    check_value,
};

/// Longest wait, since the change may have come between the caller's look and its wait, and a lease runs out silently.
const WAIT: Duration = Duration::from_millis(20);

/// A map in memory. Share it between the rank threads with an `Arc`. Its calls end at once, whatever their bound.
#[derive(Debug, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    map: Mutex<Map>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Map {
    values: BTreeMap<String, Kept>,
    leases: BTreeMap<LeaseId, Held>,
    last_lease: u64,
    /// Counts changes; a key that goes with its lease is one.
    revision: u64,
    /// When a key was last removed.
    removed: u64,
}

#[derive(Debug)]
struct Kept {
    value: Vec<u8>,
    lease: Option<LeaseId>,
    revision: u64,
    created: u64,
}

#[derive(Debug)]
struct Held {
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
        let map = self.shared.map.lock();
        let mut map = map.unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let before = map.leases.len();
        map.leases.retain(|_, held| held.until > now);
        if map.leases.len() != before {
            let Map { values, leases, .. } = &mut *map;
            let keys = values.len();
            values.retain(|_, kept| kept.lease.is_none_or(|id| leases.contains_key(&id)));
            if values.len() != keys {
                map.has_removed();
            }
        }
        map
    }

    /// What `change` changes, told to those who wait.
    fn change<T>(&self, change: impl FnOnce(&mut Map) -> T) -> T {
        let result = change(&mut self.map());
        self.shared.changed.notify_all();
        result
    }
}

impl Map {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(|kept| kept.value.as_slice())
    }

    fn set(&mut self, key: &str, value: &[u8], lease: Option<LeaseId>) {
        self.revision += 1;
        let revision = self.revision;
        let kept = Kept {
            value: value.to_vec(),
            lease,
            revision,
            created: self.values.get(key).map_or(revision, |kept| kept.created),
        };
        self.values.insert(key.to_owned(), kept);
    }

    fn has_removed(&mut self) {
        self.revision += 1;
        self.removed = self.revision;
    }

    /// Keeps the keys of which `stays` says so; how many it does not keep.
    fn retain(&mut self, stays: impl Fn(&str, &Kept) -> bool) -> u64 {
        let before = self.values.len();
        self.values.retain(|key, kept| stays(key, kept));
        let removed = before - self.values.len();
        if removed != 0 {
            self.has_removed();
        }
        removed as u64
    }

    fn below(&self, prefix: &str) -> impl Iterator<Item = (&String, &Kept)> {
        let from = self.values.range(prefix.to_owned()..);
        from.take_while(move |(key, _)| key.starts_with(prefix))
    }
}

fn entry((key, kept): (&String, &Kept)) -> Entry {
    Entry {
        key: key.clone(),
        value: kept.value.clone(),
        revision: kept.revision,
        created: kept.created,
    }
}

impl Store for MemoryStore {
    fn bounded(&self, _bound: Duration) -> Arc<dyn Store> {
        let shared = Arc::clone(&self.shared);
        Arc::new(Self { shared })
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        self.change(|map| map.set(key, value, None));
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
        Ok(self.change(|map| {
            let as_expected = map.get(key) == expected;
            if as_expected {
                map.set(key, value, None);
            }
            as_expected
        }))
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        check_key(key)?;
        Ok(self.change(|map| map.retain(|name, _| name != key)) != 0)
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        check_key(key)?;
        let prefix = format!("{key}/");
        Ok(self.change(|map| map.retain(|name, _| !name.starts_with(&prefix))))
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        check_key(key)?;
        let prefix = format!("{key}/");
        let map = self.map();
        let below = map
            .below(&prefix)
            .filter_map(|(key, _)| key.strip_prefix(&prefix));
        let names: BTreeSet<&str> = below.filter_map(|key| key.split('/').next()).collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    fn changed_since(
        &self,
        keys: &[&str],
        below: Option<&str>,
        since: u64,
    ) -> Result<Changed, StoreError> {
        check_look(keys, below)?;
        let map = self.map();
        let named = keys
            .iter()
            .filter_map(|&key| map.values.get_key_value(key))
            .map(entry);
        let prefix = below.map(|key| format!("{key}/"));
        let prefixed = prefix
            .iter()
            .flat_map(|prefix| map.below(prefix))
            .filter(|(_, kept)| kept.revision > since)
            .map(entry);
        let found: BTreeMap<String, Entry> = named
            .filter(|entry| entry.revision > since)
            .chain(prefixed)
            .map(|entry| (entry.key.clone(), entry))
            .collect();
        Ok(Changed {
            entries: found.into_values().collect(),
            unreadable: Vec::new(),
            revision: map.revision,
        })
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        check_key(key)?;
        let map = self.map();
        let prefix = format!("{key}/");
        let created = map.below(&prefix).map(|(_, kept)| kept.created);
        let (keys, newest_created) = created.fold((0, 0), |(keys, newest), created| {
            (keys + 1, created.max(newest))
        });
        Ok(Count {
            keys,
            newest_created,
            revision: map.revision,
        })
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
        Ok(self.change(|map| {
            if map.get(key).is_some() {
                return None;
            }
            map.last_lease += 1;
            let id = LeaseId(map.last_lease);
            let until = Instant::now() + ttl;
            map.leases.insert(id, Held { ttl, until });
            map.set(key, value, Some(id));
            Some(id)
        }))
    }

    fn put_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        Ok(self.change(|map| {
            let lives = map.leases.contains_key(&id);
            if lives {
                map.set(key, value, Some(id));
            }
            lives
        }))
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        let mut map = self.map();
        let Map { values, leases, .. } = &mut *map;
        let Some(held) = leases.get_mut(&id) else {
            return Ok(false);
        };
        held.until = Instant::now() + held.ttl;
        Ok(values.get(key).is_some_and(|kept| kept.lease == Some(id)))
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        check_key(key)?;
        self.change(|map| {
            map.leases.remove(&id);
            map.retain(|_, kept| kept.lease != Some(id))
        });
        Ok(())
    }

    /// At most 20 ms.
    fn wait_for_change(&self, timeout: Duration) {
        let woken = self
            .shared
            .changed
            .wait_timeout(self.map(), timeout.min(WAIT));
        drop(woken);
    }

    fn wait_for_key(&self, key: &str, since: u64, timeout: Duration) -> Result<bool, StoreError> {
        check_key(key)?;
        let start = Instant::now();
        loop {
            let map = self.map();
            let newest = map
                .values
                .get(key)
                .map_or(map.removed, |kept| kept.revision);
            let left = timeout.saturating_sub(start.elapsed());
            if newest > since || left.is_zero() {
                return Ok(newest > since);
            }
            drop(self.shared.changed.wait_timeout(map, left.min(WAIT)));
        }
    }
}
