//! The store in an etcd: what each call of [`Store`] asks, and until when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address::Address;
use super::changes::Changes;
use super::client::Client;
use super::keys::{Found, Keys};
use super::leases::Leases;
use super::tls;
use super::watcher::Watcher;
use crate::check::{check_key, check_look, check_ttl, check_value};
use crate::limits::clamped;
use crate::{Changed, Count, KeyChange, KeyWatch, LeaseId, MAX_BOUND, Store, StoreError};

/// The keys of an etcd below a prefix.
#[derive(Debug)]
pub struct EtcdStore {
    place: Arc<Place>,
    /// Longest time of a call.
    bound: Duration,
}

/// What all handles share that are made from one handle by `bounded`.
#[derive(Debug)]
struct Place {
    keys: Arc<Keys>,
    leases: Leases,
    watcher: Watcher,
    changes: Changes,
}

impl EtcdStore {
    /// Opens the keys that `url` names for the run `run_id`: `etcd://` or `etcds://`, as [`open_store`](crate::open_store) says. The first
    /// rank to open them writes the run below the prefix.
    ///
    /// # Errors
    /// Another kind of URL; a password in plain text; a certificate or key that cannot be used. No member that answers within
    /// [`MAX_BOUND`], for which this function tries again. A member that refuses user or password; keys of another run.
    pub fn open(url: &str, run_id: &str) -> Result<Self, StoreError> {
        let Address {
            members,
            prefix,
            user,
            tls,
        } = Address::parse(url)?;
        let tls = tls.as_ref().map(tls::config).transpose()?;
        let client = Arc::new(Client::new(members, user, tls));
        // '0' is the character after '/'.
        let changes = Changes::new(&client, &format!("{prefix}/"), &format!("{prefix}0"));
        let keys = Arc::new(Keys::new(&client, prefix));
        keys.claim(run_id, Instant::now() + MAX_BOUND)?;
        let place = Place {
            leases: Leases::new(&client),
            watcher: Watcher::new(&client, &keys),
            keys,
            changes,
        };
        Ok(Self {
            place: Arc::new(place),
            bound: MAX_BOUND,
        })
    }

    /// Returns an error unless `url` names an etcd.
    pub(crate) fn check(url: &str) -> Result<(), StoreError> {
        Address::parse(url).map(drop)
    }

    /// Returns when a call that begins now must end.
    ///
    /// # Errors
    /// The thread that watches has panicked.
    fn begin(&self) -> Result<Instant, StoreError> {
        self.place.changes.check()?;
        Ok(self.limit())
    }

    fn limit(&self) -> Instant {
        Instant::now() + self.bound
    }

    fn keys(&self) -> &Keys {
        &self.place.keys
    }
}

impl Store for EtcdStore {
    fn name(&self) -> String {
        self.keys().name()
    }

    fn bounded(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            place: Arc::clone(&self.place),
            bound: clamped(bound),
        })
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        let put = |_: &Found| Some(self.keys().putting(key, value));
        self.keys().change(key, self.begin()?, put).map(drop)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        let found = self.keys().find(key, self.begin()?)?;
        Ok(found.map(|found| found.value))
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        let put = |found: &Found| {
            let now = found.as_ref().map(|found| found.value.as_slice());
            (now == expected).then(|| self.keys().putting(key, value))
        };
        self.keys().change(key, self.begin()?, put)
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        check_key(key)?;
        let remove = |found: &Found| found.is_some().then(|| self.keys().removing(key));
        self.keys().change(key, self.begin()?, remove)
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        check_key(key)?;
        self.keys().remove_below(key, self.begin()?)
    }

    fn changed_since(
        &self,
        keys: &[&str],
        below: Option<&str>,
        since: u64,
    ) -> Result<Changed, StoreError> {
        check_look(keys, below)?;
        self.keys().changed(keys, below, since, self.begin()?)
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        check_key(key)?;
        self.keys().count(key, self.begin()?)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        check_key(key)?;
        self.keys().names(key, self.begin()?)
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
        let until = self.begin()?;
        let (keys, leases) = (self.keys(), &self.place.leases);
        if keys.find(key, until)?.is_some() {
            return Ok(None);
        }
        let id = leases.grant(ttl, until)?;
        let take = |found: &Found| {
            let free = found.is_none();
            free.then(|| keys.putting_leased(key, value, id))
        };
        let taken = keys.change(key, until, take);
        if matches!(taken, Ok(true)) {
            return Ok(Some(id));
        }
        // After this a late request finds no lease to attach the key to.
        let revoked = leases.revoke(id, until);
        match taken {
            // The key may have been set. If so, it goes with the lease.
            Err(error) => Err(error),
            Ok(_) => revoked.map(|()| None),
        }
    }

    fn put_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        self.keys().put_leased(key, value, id, self.begin()?)
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        let until = self.begin()?;
        let is_mine = |found: Found| found.is_some_and(|found| found.lease == id.0);
        Ok(self.place.leases.keep(id, until)? && is_mine(self.keys().find(key, until)?))
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        check_key(key)?;
        self.place.leases.revoke(id, self.limit())
    }

    fn wait_for_change(&self, timeout: Duration) {
        self.place.changes.wait(timeout);
    }

    fn next_change(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        check_key(watch.key())?;
        self.place.changes.check()?;
        self.place.watcher.next_change(watch, since, timeout)
    }
}
