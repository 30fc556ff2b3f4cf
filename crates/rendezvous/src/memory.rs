//! A store for ranks that are threads of one process.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::check::{check_key, check_look, check_ttl, check_value};
use crate::{Changed, Count, Entry, KeyChange, KeyWatch, LeaseId, Store, StoreError};

/// Longest wait for any change: a change may have come between the caller's look and its wait, and a lease runs out without a wake.
const WAIT: Duration = Duration::from_millis(20);

/// A map in memory. The threads of ranks share it in an `Arc`. Its calls end at once, whatever their bound.
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
    /// The keys by the revisions at which they were set last. A look reads only the keys after its own revision.
    by_revision: BTreeMap<u64, String>,
    leases: BTreeMap<LeaseId, Held>,
    last_lease: u64,
    /// The number of changes. A key that goes with its lease counts as one change.
    revision: u64,
    /// The revision at which a key was last removed.
    removed: u64,
    /// The earliest time at which a lease may run out. None: the store has no lease.
    next_end: Option<Instant>,
    /// The keys for which threads wait.
    watched: BTreeMap<String, Watched>,
}

/// The threads that wait for one key. A change of another key wakes none of them.
#[derive(Debug, Default)]
struct Watched {
    threads: usize,
    changed: Arc<Condvar>,
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
    /// Returns an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the map without leases that have run out.
    ///
    /// The map is whole after every operation, so a panic of another thread under the lock has broken nothing.
    fn map(&self) -> MutexGuard<'_, Map> {
        let map = self.shared.map.lock();
        let mut map = map.unwrap_or_else(PoisonError::into_inner);
        map.end_leases(Instant::now());
        map
    }

    /// Applies `change` and wakes the callers that wait.
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
        if let Some(old) = self.values.insert(key.to_owned(), kept) {
            self.by_revision.remove(&old.revision);
        }
        self.by_revision.insert(revision, key.to_owned());
        if let Some(watched) = self.watched.get(key) {
            watched.changed.notify_all();
        }
    }

    /// Removes the keys for which `stays` returns false. Returns how many it removed.
    fn retain(&mut self, stays: impl Fn(&str, &Kept) -> bool) -> u64 {
        let before = self.values.len();
        let by_revision = &mut self.by_revision;
        self.values.retain(|key, kept| {
            let stays = stays(key, kept);
            if !stays {
                by_revision.remove(&kept.revision);
            }
            stays
        });
        let removed = before - self.values.len();
        if removed != 0 {
            self.revision += 1;
            self.removed = self.revision;
            let gone = |key: &String| !self.values.contains_key(key);
            for (_, watched) in self.watched.iter().filter(|it| gone(it.0)) {
                watched.changed.notify_all();
            }
        }
        removed as u64
    }

    /// Removes the leases that have run out, and their keys.
    fn end_leases(&mut self, now: Instant) {
        if self.next_end.is_none_or(|end| end > now) {
            return;
        }
        let mut ended = BTreeSet::new();
        self.leases.retain(|id, held| {
            let lives = held.until > now;
            if !lives {
                ended.insert(*id);
            }
            lives
        });
        self.next_end = self.leases.values().map(|held| held.until).min();
        if !ended.is_empty() {
            self.retain(|_, kept| kept.lease.is_none_or(|id| !ended.contains(&id)));
        }
    }

    /// Returns when the lease of `key` runs out if it is not renewed.
    fn key_ends(&self, key: &str) -> Option<Instant> {
        let lease = self.values.get(key)?.lease?;
        self.leases.get(&lease).map(|held| held.until)
    }

    /// Notes that one more thread waits for `key`. Returns the condition on which it waits.
    fn watch(&mut self, key: &str) -> Arc<Condvar> {
        let watched = self.watched.entry(key.to_owned()).or_default();
        watched.threads += 1;
        Arc::clone(&watched.changed)
    }

    /// Notes that a thread no longer waits for `key`.
    fn unwatch(&mut self, key: &str) {
        let Some(watched) = self.watched.get_mut(key) else {
            return;
        };
        watched.threads -= 1;
        if watched.threads == 0 {
            self.watched.remove(key);
        }
    }

    /// Returns the keys that were set last after `revision`.
    fn later(&self, revision: u64) -> impl Iterator<Item = &String> {
        let behind = (Bound::Excluded(revision), Bound::Unbounded);
        self.by_revision.range(behind).map(|(_, key)| key)
    }

    fn below(&self, prefix: &str) -> impl Iterator<Item = (&String, &Kept)> {
        let from = self.values.range(prefix.to_owned()..);
        from.take_while(move |(key, _)| key.starts_with(prefix))
    }
}

impl Kept {
    /// Returns this value of `key` as an entry of a look.
    fn entry(&self, key: &str) -> Entry {
        Entry {
            key: key.to_owned(),
            value: self.value.clone(),
            revision: self.revision,
            created: self.created,
        }
    }
}

impl Store for MemoryStore {
    fn name(&self) -> String {
        "a store in memory".to_owned()
    }

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
            .filter(|(_, kept)| kept.revision > since)
            .map(|(key, kept)| kept.entry(key));
        let prefix = below.map(|key| format!("{key}/"));
        let prefixed = prefix
            .iter()
            .flat_map(|prefix| map.later(since).filter(move |key| key.starts_with(prefix)))
            .filter_map(|key| map.values.get_key_value(key))
            .map(|(key, kept)| kept.entry(key));
        let mut entries: Vec<Entry> = named.chain(prefixed).collect();
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        entries.dedup_by(|a, b| a.key == b.key);
        Ok(Changed {
            entries,
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
            map.next_end = Some(map.next_end.map_or(until, |end| end.min(until)));
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

    /// Waits for at most 20 ms.
    fn wait_for_change(&self, timeout: Duration) {
        let woken = self
            .shared
            .changed
            .wait_timeout(self.map(), timeout.min(WAIT));
        drop(woken);
    }

    /// Waits on the condition of the key. It counts the requests that an etcd would get.
    fn next_change(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        check_key(watch.key())?;
        if !watch.stands() {
            watch.asks();
        }
        let key = watch.key();
        let start = Instant::now();
        let mut map = self.map();
        let changed = map.watch(key);
        let found = loop {
            map.end_leases(Instant::now());
            let newest = map.values.get(key);
            let left = timeout.saturating_sub(start.elapsed());
            match newest {
                Some(newest) if newest.revision > since => break KeyChange::Set(newest.entry(key)),
                None if map.removed > since => break KeyChange::Unknown,
                _ if left.is_zero() => break KeyChange::Nothing,
                _ => {}
            }
            let ends = map.key_ends(key);
            let ends = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
            let time = ends.map_or(left, |ends| left.min(ends));
            let waited = changed.wait_timeout(map, time);
            map = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        map.unwatch(key);
        drop(map);
        watch.set_stands(found != KeyChange::Nothing);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(100);

    /// Waits until `threads` threads wait for `key`.
    fn until_watched(store: &MemoryStore, key: &str, threads: usize) {
        let start = Instant::now();
        let watched = || store.map().watched.get(key).map_or(0, |it| it.threads);
        while watched() != threads {
            let number = watched();
            assert!(start.elapsed() < LONG, "{key}: {number} threads wait");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_that_waits_for_a_key_is_woken_by_that_key_alone() {
        let store = Arc::new(MemoryStore::new());
        let waits = |key: &'static str| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || store.wait_for_key(key, 0, LONG).unwrap())
        };
        let threads = [waits("a"), waits("a"), waits("b")];
        until_watched(&store, "a", 2);
        until_watched(&store, "b", 1);
        store.put("b", b"1").unwrap();
        until_watched(&store, "b", 0);
        assert_eq!(store.map().watched["a"].threads, 2);
        store.put("c", b"1").unwrap();
        assert_eq!(store.map().watched["a"].threads, 2);
        store.put("a", b"1").unwrap();
        for thread in threads {
            assert!(thread.join().unwrap());
        }
        assert!(store.map().watched.is_empty(), "nothing is kept of them");
    }

    #[test]
    fn a_thread_that_waits_for_a_key_wakes_when_the_lease_of_the_key_ends() {
        let store = Arc::new(MemoryStore::new());
        let ttl = Duration::from_millis(60);
        store.take_lease("other", b"", LONG).unwrap();
        store.take_lease("a", b"", ttl).unwrap().unwrap();
        let since = store.count("a").unwrap().revision;
        assert!(store.wait_for_key("a", since, LONG).unwrap());
        assert_eq!(store.try_get("a").unwrap(), None);
        assert!(store.try_get("other").unwrap().is_some());
        let map = store.map();
        assert_eq!(map.next_end, map.key_ends("other"));
    }
}
