//! A store for ranks of several machines: an etcd, version 3.4 or later.
//!
//! It is asked by HTTP with JSON ([etcd's gateway](https://etcd.io/docs/latest/dev-guide/api_grpc_gateway/)), not by gRPC: see
//! ARCHITECTURE.md. Reads are linearizable. Each change is a transaction that holds only at the revision of the key that was
//! looked at before, so that a request that is late, even behind a member that was stopped for a while, never replaces
//! something newer. Leases are etcd's own, whose clock is the leader's: times to live are whole seconds, and at least etcd's
//! own minimum (2 s as it comes); the holder gives up after the time that was asked for, which is never longer.

mod address;
mod changes;
mod client;
mod messages;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::address::Address;
use self::changes::Changes;
use self::client::{CallError, Client, NOT_FOUND, limit};
use self::messages::{Committed, Granted, KeyValue, Nothing, Range, Streamed, encoded};
use super::{LeaseId, Store, StoreError, check_key, check_ttl, check_value};

/// The key that holds the run that the prefix belongs to. No rank can write it: names do not begin with a dot.
const RUN: &str = ".run";

/// The keys of an etcd below a prefix.
#[derive(Debug)]
pub struct EtcdStore {
    client: Arc<Client>,
    prefix: String,
    changes: Changes,
}

/// A key as it was found; all zero and empty if it is not set.
type Found = Option<KeyValue>;

impl EtcdStore {
    /// Opens the keys that `url`, `etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT..]/PREFIX`, names for the run `run_id`. The
    /// first rank to come writes the run there.
    ///
    /// # Errors
    /// Another kind of URL; no member that answers within 5 s, or that refuses user or password; keys of another run.
    pub fn open(url: &str, run_id: &str) -> Result<Self, StoreError> {
        let Address {
            members,
            prefix,
            user,
        } = Address::parse(url)?;
        let client = Arc::new(Client::new(members, user));
        // '0' comes after '/'.
        let changes = Changes::new(&client, &format!("{prefix}/"), &format!("{prefix}0"));
        let store = Self {
            client,
            prefix,
            changes,
        };
        store.claim(run_id)?;
        Ok(store)
    }

    fn claim(&self, run_id: &str) -> Result<(), StoreError> {
        let until = limit();
        let mine = |found: &Found| {
            found
                .as_ref()
                .is_some_and(|kv| kv.value == run_id.as_bytes())
        };
        let put = |found: &Found| {
            found
                .is_none()
                .then(|| self.putting(RUN, run_id.as_bytes()))
        };
        self.change(RUN, until, put, mine)?;
        let found = self.find(RUN, until)?;
        match mine(&found) {
            true => Ok(()),
            false => Err(StoreError::OtherRun {
                store: format!("{} of etcd {}", self.prefix, self.client.name()),
                found: String::from_utf8_lossy(&found.unwrap_or_default().value).into_owned(),
                wanted: run_id.to_owned(),
            }),
        }
    }

    fn key(&self, key: &str) -> String {
        encoded(format!("{}/{key}", self.prefix))
    }

    fn find(&self, key: &str, until: Instant) -> Result<Found, StoreError> {
        self.changes.check()?;
        let request = json!({"key": self.key(key)});
        let range: Result<Range, CallError> = self.client.ask("kv/range", &request, until);
        let range = range.map_err(|error| self.client.error(error))?;
        Ok(range.kvs.into_iter().next())
    }

    /// Changes `key` by what `operation` makes of it, until nobody else was faster. `false` if it is to stay.
    ///
    /// When an answer was lost, `done` says whether what is found now is what was to be done.
    fn change(
        &self,
        key: &str,
        until: Instant,
        operation: impl Fn(&Found) -> Option<Value>,
        done: impl Fn(&Found) -> bool,
    ) -> Result<bool, StoreError> {
        let mut lost: Option<(u64, StoreError)> = None;
        loop {
            let found = match (self.find(key, until), lost.take()) {
                (Ok(found), None) => found,
                (Ok(found), Some(now)) if revision(&found) == now.0 => {
                    lost = Some(now);
                    found
                }
                (Ok(found), Some(_)) if done(&found) => return Ok(true),
                (Ok(_) | Err(_), Some((_, error))) | (Err(error), None) => return Err(error),
            };
            let Some(operation) = operation(&found) else {
                return Ok(false);
            };
            let revision = revision(&found);
            let request = json!({
                "compare": [{"key": self.key(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()}],
                "success": [operation],
            });
            match self.client.change("kv/txn", &request, until) {
                Ok(Committed { succeeded: true }) => return Ok(true),
                Ok(Committed { succeeded: false }) => {}
                Err(error @ CallError::NoAnswer { .. }) => {
                    lost = Some((revision, self.client.error(error)));
                }
                Err(error) => return Err(self.client.error(error)),
            }
        }
    }

    fn putting(&self, key: &str, value: &[u8]) -> Value {
        json!({"request_put": {"key": self.key(key), "value": encoded(value)}})
    }

    /// Ends a lease, with its key if that is still attached to it.
    fn revoke(&self, id: u64, until: Instant) -> Result<(), StoreError> {
        let request = json!({"ID": id.to_string()});
        let revoked: Result<Nothing, CallError> = self.client.ask("lease/revoke", &request, until);
        match revoked {
            Ok(_)
            | Err(CallError::Refused {
                code: NOT_FOUND, ..
            }) => Ok(()),
            Err(error) => Err(self.client.error(error)),
        }
    }
}

/// Of a key that is not set: 0, as etcd sees it.
fn revision(found: &Found) -> u64 {
    found.as_ref().map_or(0, |kv| kv.mod_revision)
}

fn value(found: &Found) -> Option<&[u8]> {
    found.as_ref().map(|kv| kv.value.as_slice())
}

impl Store for EtcdStore {
    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        let put = |_: &Found| Some(self.putting(key, value));
        self.change(key, limit(), put, |found| self::value(found) == Some(value))
            .map(drop)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        Ok(self.find(key, limit())?.map(|found| found.value))
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        let put =
            |found: &Found| (self::value(found) == expected).then(|| self.putting(key, value));
        // Somebody else may have set the same value.
        self.change(key, limit(), put, |_| false)
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        check_key(key)?;
        let remove = |found: &Found| {
            let found = found.is_some();
            found.then(|| json!({"request_delete_range": {"key": self.key(key)}}))
        };
        self.change(key, limit(), remove, Option::is_none)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        check_key(key)?;
        let (below, end) = (
            format!("{}/{key}/", self.prefix),
            format!("{}/{key}0", self.prefix),
        );
        let request = json!({"key": encoded(&below), "range_end": encoded(end), "keys_only": true});
        let range: Result<Range, CallError> = self.client.ask("kv/range", &request, limit());
        let range = range.map_err(|error| self.client.error(error))?;
        let name = |kv: KeyValue| {
            let rest = String::from_utf8(kv.key).ok()?;
            let rest = rest.strip_prefix(&below)?;
            rest.split('/').next().map(str::to_owned)
        };
        let names: BTreeSet<String> = range.kvs.into_iter().filter_map(name).collect();
        Ok(names.into_iter().collect())
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
        let until = limit();
        if self.find(key, until)?.is_some() {
            return Ok(None);
        }
        let seconds = ttl.as_millis().div_ceil(1000);
        // Asked twice, one of two leases that nobody uses runs out by itself.
        let request = json!({"TTL": seconds.to_string()});
        let granted: Result<Granted, CallError> = self.client.ask("lease/grant", &request, until);
        let id = granted.map_err(|error| self.client.error(error))?.id;
        let take = |found: &Found| {
            let put =
                json!({"key": self.key(key), "value": encoded(value), "lease": id.to_string()});
            found.is_none().then(|| json!({"request_put": put}))
        };
        let mine = |found: &Found| found.as_ref().is_some_and(|kv| kv.lease == id);
        let taken = self.change(key, until, take, mine);
        if matches!(taken, Ok(true)) {
            return Ok(Some(LeaseId(id)));
        }
        // A request that is still on its way finds no lease to attach the key to.
        let revoked = self.revoke(id, until);
        taken.and(revoked).map(|()| None)
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        let until = limit();
        let request = json!({"ID": id.0.to_string()});
        let kept: Result<Streamed<Granted>, CallError> =
            self.client.ask("lease/keepalive", &request, until);
        let kept = kept.map_err(|error| self.client.error(error))?;
        if let Some(refusal) = kept.error.filter(|refusal| refusal.code != NOT_FOUND) {
            self.client.forget_token();
            return Err(StoreError::Refused {
                store: self.client.name(),
                message: refusal.message,
            });
        }
        let alive = kept.result.is_some_and(|granted| granted.ttl != 0);
        let held = alive && self.find(key, until)?.is_some_and(|kv| kv.lease == id.0);
        if alive && !held {
            self.revoke(id.0, until)?;
        }
        Ok(held)
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        check_key(key)?;
        self.revoke(id.0, limit())
    }

    fn wait_for_change(&self, timeout: Duration) {
        self.changes.wait(timeout);
    }
}
