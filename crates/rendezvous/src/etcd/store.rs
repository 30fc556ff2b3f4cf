//! The store in an etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::address::Address;
use super::changes::Changes;
use super::client::{CallError, Client, NOT_FOUND};
use super::messages::{
    Committed, Granted, KeyValue, Nothing, Operated, Range, Streamed, Watched, encoded,
};
use super::tls;
use crate::check::{check_key, check_look, check_ttl, check_value};
use crate::limits::clamped;
use crate::watch::Lines;
use crate::{
    Changed, Count, Entry, KeyChange, KeyWatch, LeaseId, MAX_BOUND, Store, StoreError, repeat,
};

/// The key that holds the run that the prefix belongs to. No rank can write this key: names do not begin with a dot.
const RUN: &str = ".run";

/// The keys of an etcd below a prefix.
#[derive(Debug)]
pub struct EtcdStore {
    client: Arc<Client>,
    prefix: String,
    changes: Arc<Changes>,
    /// Longest time of a call.
    bound: Duration,
}

/// A key as a call has found it. None: the key is not set.
type Found = Option<KeyValue>;

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
        let store = Self {
            client,
            prefix,
            changes: Arc::new(changes),
            bound: MAX_BOUND,
        };
        store.claim(run_id)?;
        Ok(store)
    }

    /// Returns an error unless `url` names an etcd.
    pub(crate) fn check(url: &str) -> Result<(), StoreError> {
        Address::parse(url).map(drop)
    }

    fn claim(&self, run_id: &str) -> Result<(), StoreError> {
        let until = self.limit();
        let put = |found: &Found| {
            found
                .is_none()
                .then(|| self.putting(RUN, run_id.as_bytes()))
        };
        let found = repeat(until, || {
            match self.change(RUN, until, put) {
                // The value that is read next says whether this change was made or another rank was faster.
                Ok(_) | Err(StoreError::NoAnswer { .. }) => {}
                Err(error) => return Err(error),
            }
            match self.find(RUN, until)? {
                Some(found) => Ok(found.value),
                None => Err(StoreError::Unreachable {
                    store: self.client.name(),
                    waited: MAX_BOUND.saturating_sub(until - Instant::now()),
                    cause: "the run was not written".to_owned(),
                }),
            }
        })?;
        if found == run_id.as_bytes() {
            Ok(())
        } else {
            Err(StoreError::OtherRun {
                store: format!("{} of etcd {}", self.prefix, self.client.name()),
                found: String::from_utf8_lossy(&found).into_owned(),
                wanted: run_id.to_owned(),
            })
        }
    }

    /// Returns when a call that begins now must end.
    fn limit(&self) -> Instant {
        Instant::now() + self.bound
    }

    /// Returns the range of all keys below `key`: its first key, and the first key after it.
    fn below(&self, key: &str) -> (String, String) {
        // '0' is the character after '/'.
        (
            format!("{}/{key}/", self.prefix),
            format!("{}/{key}0", self.prefix),
        )
    }

    /// Sends a request that changes nothing.
    fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &Value,
        until: Instant,
    ) -> Result<T, StoreError> {
        self.changes.check()?;
        let answer = self.client.ask(path, request, until);
        answer.map_err(|error| self.client.error(error, 0))
    }

    fn key(&self, key: &str) -> String {
        encoded(format!("{}/{key}", self.prefix))
    }

    fn find(&self, key: &str, until: Instant) -> Result<Found, StoreError> {
        let range: Range = self.ask("kv/range", &json!({"key": self.key(key)}), until)?;
        Ok(range.kvs.into_iter().next())
    }

    /// Changes `key` by the request that `operation` makes. It begins again if another writer was faster. Returns `false` if `operation`
    /// returns None.
    fn change(
        &self,
        key: &str,
        until: Instant,
        operation: impl Fn(&Found) -> Option<Value>,
    ) -> Result<bool, StoreError> {
        loop {
            let found = self.find(key, until)?;
            let Some(operation) = operation(&found) else {
                return Ok(false);
            };
            let revision = revision(&found);
            let request = json!({
                "compare": [{"key": self.key(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()}],
                "success": [operation],
            });
            let committed: Result<Committed, CallError> =
                self.client.change("kv/txn", &request, until);
            if committed
                .map_err(|error| self.client.error(error, revision))?
                .succeeded
            {
                return Ok(true);
            }
        }
    }

    fn putting(&self, key: &str, value: &[u8]) -> Value {
        json!({"request_put": {"key": self.key(key), "value": encoded(value)}})
    }

    fn putting_leased(&self, key: &str, value: &[u8], id: u64) -> Value {
        let put = json!({"key": self.key(key), "value": encoded(value), "lease": id.to_string()});
        json!({"request_put": put})
    }

    /// Ends a lease, with the keys that are still attached to it.
    fn revoke(&self, id: u64, until: Instant) -> Result<(), StoreError> {
        let request = json!({"ID": id.to_string()});
        let revoked: Result<Nothing, CallError> = self.client.ask("lease/revoke", &request, until);
        match revoked {
            Ok(_)
            | Err(CallError::Refused {
                code: NOT_FOUND, ..
            }) => Ok(()),
            Err(error) => Err(self.client.error(error, 0)),
        }
    }
}

/// Returns the revision of the key's newest change. A key that is not set has revision 0, as in etcd.
fn revision(found: &Found) -> u64 {
    found.as_ref().map_or(0, |kv| kv.mod_revision)
}

fn value(found: &Found) -> Option<&[u8]> {
    found.as_ref().map(|kv| kv.value.as_slice())
}

impl Store for EtcdStore {
    fn name(&self) -> String {
        format!("{} of etcd {}", self.prefix, self.client.name())
    }

    fn bounded(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            client: Arc::clone(&self.client),
            prefix: self.prefix.clone(),
            changes: Arc::clone(&self.changes),
            bound: clamped(bound),
        })
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        let put = |_: &Found| Some(self.putting(key, value));
        self.change(key, self.limit(), put).map(drop)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        Ok(self.find(key, self.limit())?.map(|found| found.value))
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
        self.change(key, self.limit(), put)
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        check_key(key)?;
        let remove = |found: &Found| {
            let found = found.is_some();
            found.then(|| json!({"request_delete_range": {"key": self.key(key)}}))
        };
        self.change(key, self.limit(), remove)
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        check_key(key)?;
        let until = self.limit();
        let (first, end) = self.below(key);
        let (first, end) = (encoded(first), encoded(end));
        loop {
            let request = json!({"key": first, "range_end": end, "count_only": true});
            let range: Range = self.ask("kv/range", &request, until)?;
            if range.count == 0 {
                return Ok(0);
            }
            // A late request removes nothing: a key below is newer then, or none is left.
            let behind = (range.header.revision + 1).to_string();
            let request = json!({
                "compare": [{"key": first, "range_end": end, "target": "MOD", "result": "LESS", "mod_revision": behind}],
                "success": [{"request_delete_range": {"key": first, "range_end": end}}],
            });
            let committed: Result<Committed, CallError> =
                self.client.change("kv/txn", &request, until);
            let committed =
                committed.map_err(|error| self.client.error(error, range.header.revision))?;
            if committed.succeeded {
                let of = |done: &Operated| done.response_delete_range.deleted;
                return Ok(committed.responses.iter().map(of).sum());
            }
        }
    }

    fn changed_since(
        &self,
        keys: &[&str],
        below: Option<&str>,
        since: u64,
    ) -> Result<Changed, StoreError> {
        check_look(keys, below)?;
        let from = since.saturating_add(1).to_string();
        let mut ranges: Vec<Value> = keys
            .iter()
            .map(|key| json!({"request_range": {"key": self.key(key), "min_mod_revision": from}}))
            .collect();
        if let Some((first, end)) = below.map(|key| self.below(key)) {
            ranges.push(json!({"request_range":
                {"key": encoded(first), "range_end": encoded(end), "min_mod_revision": from}}));
        }
        let request = json!({"success": ranges});
        let committed: Committed = self.ask("kv/txn", &request, self.limit())?;
        let prefix = format!("{}/", self.prefix);
        let found = committed
            .responses
            .into_iter()
            .flat_map(|operated| operated.response_range.kvs);
        let entries: BTreeMap<String, Entry> = found
            .filter_map(|mut kv| {
                let name = String::from_utf8(std::mem::take(&mut kv.key)).ok()?;
                let key = name.strip_prefix(&prefix)?.to_owned();
                Some((key.clone(), entry(key, kv)))
            })
            .collect();
        Ok(Changed {
            entries: entries.into_values().collect(),
            unreadable: Vec::new(),
            revision: committed.header.revision,
        })
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        check_key(key)?;
        let (first, end) = self.below(key);
        let request = json!({
            "key": encoded(first), "range_end": encoded(end), "keys_only": true,
            "sort_target": "CREATE", "sort_order": "DESCEND", "limit": "1",
        });
        let range: Range = self.ask("kv/range", &request, self.limit())?;
        Ok(Count {
            keys: range.count,
            newest_created: range.kvs.first().map_or(0, |kv| kv.create_revision),
            revision: range.header.revision,
        })
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        check_key(key)?;
        let (below, end) = self.below(key);
        let request = json!({"key": encoded(&below), "range_end": encoded(end), "keys_only": true});
        let range: Range = self.ask("kv/range", &request, self.limit())?;
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
        let until = self.limit();
        if self.find(key, until)?.is_some() {
            return Ok(None);
        }
        let seconds = ttl.as_millis().div_ceil(1000);
        // If the answer is lost, the lease runs out by itself, since no rank uses it.
        let request = json!({"TTL": seconds.to_string()});
        let granted: Granted = self.ask("lease/grant", &request, until)?;
        let id = granted.id;
        let take = |found: &Found| found.is_none().then(|| self.putting_leased(key, value, id));
        let taken = self.change(key, until, take);
        if matches!(taken, Ok(true)) {
            return Ok(Some(LeaseId(id)));
        }
        // After this a late request finds no lease to attach the key to.
        let revoked = self.revoke(id, until);
        match taken {
            // The key may have been set. If so, it goes with the lease.
            Err(error) => Err(error),
            Ok(_) => revoked.map(|()| None),
        }
    }

    fn put_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        let until = self.limit();
        loop {
            let revision = revision(&self.find(key, until)?);
            let request = json!({
                "compare": [{"key": self.key(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()}],
                "success": [self.putting_leased(key, value, id.0)],
            });
            let committed: Result<Committed, CallError> =
                self.client.change("kv/txn", &request, until);
            match committed {
                Ok(committed) if committed.succeeded => return Ok(true),
                Ok(_) => {}
                // The etcd has no such lease.
                Err(CallError::Refused {
                    code: NOT_FOUND, ..
                }) => return Ok(false),
                Err(error) => return Err(self.client.error(error, revision)),
            }
        }
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        let until = self.limit();
        let request = json!({"ID": id.0.to_string()});
        let kept: Streamed<Granted> = self.ask("lease/keepalive", &request, until)?;
        if let Some(refusal) = kept.error.filter(|refusal| refusal.code != NOT_FOUND) {
            self.client.forget_token();
            return Err(StoreError::Refused {
                store: self.client.name(),
                message: refusal.message,
            });
        }
        let alive = kept.result.is_some_and(|granted| granted.ttl != 0);
        Ok(alive && self.find(key, until)?.is_some_and(|kv| kv.lease == id.0))
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        check_key(key)?;
        self.revoke(id.0, self.limit())
    }

    fn wait_for_change(&self, timeout: Duration) {
        self.changes.wait(timeout);
    }

    /// Reads lines of one answer from one wait to the next. The answer lasts for the `timeout` of the wait that asked for it.
    fn next_change(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        check_key(watch.key())?;
        self.changes.check()?;
        let start = Instant::now();
        let mut lines = match watch.take_lines() {
            Some(lines) => lines,
            None => {
                watch.asks();
                watch.set_stands(false);
                self.open_watch(watch.key(), since, timeout)?
            }
        };
        let broken = |cause: String| StoreError::Unreachable {
            store: self.client.name(),
            waited: start.elapsed(),
            cause,
        };
        for line in &mut lines {
            let line = match line {
                Ok(line) => line,
                // A standing watch ends after its time, or because a member is gone. The next request shows which.
                Err(_) if watch.stands() => return Ok(KeyChange::Nothing),
                Err(error) => return Err(broken(error.to_string())),
            };
            let line: Streamed<Watched> =
                serde_json::from_str(&line).map_err(|error| broken(error.to_string()))?;
            let Streamed {
                result: Some(watched),
                error: None,
            } = line
            else {
                self.client.forget_token();
                return Err(broken(format!("{line:?}")));
            };
            // A change has happened that was compacted, so the etcd does not report it any more.
            if watched.compact_revision != 0 {
                return Ok(KeyChange::Unknown);
            }
            if watched.canceled {
                self.client.forget_token();
                return Err(broken(watched.cancel_reason));
            }
            if watched.created {
                watch.set_stands(true);
            }
            let newest = watched.events.into_iter().next_back();
            if let Some(event) = newest.filter(|event| event.kv.mod_revision > since) {
                watch.keep_lines(lines);
                let key = watch.key().to_owned();
                return Ok(match event.kind.as_str() {
                    "" | "PUT" => KeyChange::Set(entry(key, event.kv)),
                    _ => KeyChange::Unknown,
                });
            }
        }
        Err(broken("the watch has ended".to_owned()))
    }
}

impl EtcdStore {
    /// Returns the lines of a watch of `key` from the revision after `since` on, for as long as `timeout`.
    fn open_watch(&self, key: &str, since: u64, timeout: Duration) -> Result<Lines, StoreError> {
        let from = since.saturating_add(1).to_string();
        let request = json!({"create_request": {"key": self.key(key), "start_revision": from}});
        let opened = self
            .client
            .stream(self.client.agent(), "watch", &request, timeout);
        let response = opened.map_err(|error| self.client.error(error, 0))?;
        Ok(Box::new(
            BufReader::new(response.into_body().into_reader()).lines(),
        ))
    }
}

fn entry(key: String, kv: KeyValue) -> Entry {
    Entry {
        key,
        value: kv.value,
        revision: kv.mod_revision,
        created: kv.create_revision,
    }
}
