//! The keys of a store, all below one prefix of an etcd, and the requests about them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::{CallError, Client, NOT_FOUND};
use super::messages::{Committed, KeyValue, Operated, Range, encoded};
use crate::watch::Lines;
use crate::{Changed, Count, Entry, LeaseId, MAX_BOUND, StoreError, repeat};

/// The key that holds the run that the prefix belongs to. No rank can write this key: names do not begin with a dot.
const RUN: &str = ".run";

/// A key as a call has found it. None: the key is not set.
pub(super) type Found = Option<KeyValue>;

/// The keys below one prefix.
#[derive(Debug)]
pub(super) struct Keys {
    client: Arc<Client>,
    prefix: String,
}

impl Keys {
    /// Returns the keys below `prefix`.
    pub(super) fn new(client: &Arc<Client>, prefix: String) -> Self {
        Self {
            client: Arc::clone(client),
            prefix,
        }
    }

    /// Returns the prefix and the members of the etcd, for reports.
    pub(super) fn name(&self) -> String {
        format!("{} of etcd {}", self.prefix, self.client.name())
    }

    /// Writes the run `run_id` below the prefix unless a run is written there. Tries again until `until`.
    ///
    /// # Errors
    /// The keys belong to another run; no member answers.
    pub(super) fn claim(&self, run_id: &str, until: Instant) -> Result<(), StoreError> {
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
                store: self.name(),
                found: String::from_utf8_lossy(&found).into_owned(),
                wanted: run_id.to_owned(),
            })
        }
    }

    /// Looks at `key`.
    pub(super) fn find(&self, key: &str, until: Instant) -> Result<Found, StoreError> {
        let range: Range = self.ask("kv/range", &json!({"key": self.key(key)}), until)?;
        Ok(range.kvs.into_iter().next())
    }

    /// Changes `key` by the request that `operation` makes. It begins again if another writer was faster. Returns `false` if `operation`
    /// returns None.
    pub(super) fn change(
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
            let committed = self.commit(key, revision, &operation, until);
            if committed.map_err(|error| self.client.error(error, revision))? {
                return Ok(true);
            }
        }
    }

    /// Sets `key` to `value` under lease `id`, whatever its value was. Returns `false` if the etcd has no such lease.
    pub(super) fn put_leased(
        &self,
        key: &str,
        value: &[u8],
        id: LeaseId,
        until: Instant,
    ) -> Result<bool, StoreError> {
        let put = self.putting_leased(key, value, id);
        loop {
            let revision = revision(&self.find(key, until)?);
            match self.commit(key, revision, &put, until) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(CallError::Refused {
                    code: NOT_FOUND, ..
                }) => return Ok(false),
                Err(error) => return Err(self.client.error(error, revision)),
            }
        }
    }

    /// Returns the operation that sets `key`.
    pub(super) fn putting(&self, key: &str, value: &[u8]) -> Value {
        json!({"request_put": {"key": self.key(key), "value": encoded(value)}})
    }

    /// Returns the operation that sets `key` under lease `id`.
    pub(super) fn putting_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Value {
        let put = json!({"key": self.key(key), "value": encoded(value), "lease": id.0.to_string()});
        json!({"request_put": put})
    }

    /// Returns the operation that removes `key`.
    pub(super) fn removing(&self, key: &str) -> Value {
        json!({"request_delete_range": {"key": self.key(key)}})
    }

    /// Makes `operation` if the newest change of `key` has this revision. Returns whether it was made.
    fn commit(
        &self,
        key: &str,
        revision: u64,
        operation: &Value,
        until: Instant,
    ) -> Result<bool, CallError> {
        let request = json!({
            "compare": [{"key": self.key(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()}],
            "success": [operation],
        });
        let committed: Committed = self.client.change("kv/txn", &request, until)?;
        Ok(committed.succeeded)
    }

    /// Removes all keys below `key` in one step. Returns how many were set.
    pub(super) fn remove_below(&self, key: &str, until: Instant) -> Result<u64, StoreError> {
        let (first, end) = self.below(key);
        let (first, end) = (encoded(first), encoded(end));
        loop {
            let request = json!({"key": first, "range_end": end, "count_only": true});
            let range: Range = self.ask("kv/range", &request, until)?;
            if range.count == 0 {
                return Ok(0);
            }
            // A late request removes nothing: a key below is newer then, or none is left.
            let after = (range.header.revision + 1).to_string();
            let request = json!({
                "compare": [{"key": first, "range_end": end, "target": "MOD", "result": "LESS", "mod_revision": after}],
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

    /// Returns what has changed after revision `since` of `keys` and of the keys below `below`.
    pub(super) fn changed(
        &self,
        keys: &[&str],
        below: Option<&str>,
        since: u64,
        until: Instant,
    ) -> Result<Changed, StoreError> {
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
        let committed: Committed = self.ask("kv/txn", &request, until)?;
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

    /// Counts the keys below `key`.
    pub(super) fn count(&self, key: &str, until: Instant) -> Result<Count, StoreError> {
        let (first, end) = self.below(key);
        let request = json!({
            "key": encoded(first), "range_end": encoded(end), "keys_only": true,
            "sort_target": "CREATE", "sort_order": "DESCEND", "limit": "1",
        });
        let range: Range = self.ask("kv/range", &request, until)?;
        Ok(Count {
            keys: range.count,
            newest_created: range.kvs.first().map_or(0, |kv| kv.create_revision),
            revision: range.header.revision,
        })
    }

    /// Returns the names directly below `key`, sorted.
    pub(super) fn names(&self, key: &str, until: Instant) -> Result<Vec<String>, StoreError> {
        let (below, end) = self.below(key);
        let request = json!({"key": encoded(&below), "range_end": encoded(end), "keys_only": true});
        let range: Range = self.ask("kv/range", &request, until)?;
        let name = |kv: KeyValue| {
            let rest = String::from_utf8(kv.key).ok()?;
            let rest = rest.strip_prefix(&below)?;
            rest.split('/').next().map(str::to_owned)
        };
        let names: BTreeSet<String> = range.kvs.into_iter().filter_map(name).collect();
        Ok(names.into_iter().collect())
    }

    /// Opens a watch of `key` from the revision after `since` on. Its lines come for as long as `timeout`.
    pub(super) fn watch(
        &self,
        key: &str,
        since: u64,
        timeout: Duration,
    ) -> Result<Lines, StoreError> {
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

    /// Sends a request that changes nothing.
    fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &Value,
        until: Instant,
    ) -> Result<T, StoreError> {
        let answer = self.client.ask(path, request, until);
        answer.map_err(|error| self.client.error(error, 0))
    }

    fn key(&self, key: &str) -> String {
        encoded(format!("{}/{key}", self.prefix))
    }

    /// Returns the range of all keys below `key`: its first key, and the first key after it.
    fn below(&self, key: &str) -> (String, String) {
        // '0' is the character after '/'.
        (
            format!("{}/{key}/", self.prefix),
            format!("{}/{key}0", self.prefix),
        )
    }
}

/// Returns the revision of the key's newest change. A key that is not set has revision 0, as in etcd.
fn revision(found: &Found) -> u64 {
    found.as_ref().map_or(0, |kv| kv.mod_revision)
}

/// Returns what the etcd has found of `key` as an entry of a look.
pub(super) fn entry(key: String, kv: KeyValue) -> Entry {
    Entry {
        key,
        value: kv.value,
        revision: kv.mod_revision,
        created: kv.create_revision,
    }
}
