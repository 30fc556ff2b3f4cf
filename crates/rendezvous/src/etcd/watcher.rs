//! The watch of one key: an answer of the etcd that goes on from one wait to the next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::Client;
use super::keys::{Keys, entry};
use super::messages::{Streamed, Watched};
use crate::{KeyChange, KeyWatch, StoreError};

/// Opens watches of single keys and reads their lines.
#[derive(Debug)]
pub(super) struct Watcher {
    client: Arc<Client>,
    keys: Arc<Keys>,
}

impl Watcher {
    /// Returns a watcher of single ones of `keys`.
    pub(super) fn new(client: &Arc<Client>, keys: &Arc<Keys>) -> Self {
        Self {
            client: Arc::clone(client),
            keys: Arc::clone(keys),
        }
    }

    /// Does what [`Store::next_change`](crate::Store::next_change) does. It reads lines of one answer from one wait to the next. The
    /// answer lasts for the `timeout` of the wait that asked for it.
    pub(super) fn next_change(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        let start = Instant::now();
        let mut lines = match watch.take_lines() {
            Some(lines) => lines,
            None => {
                watch.asks();
                watch.set_stands(false);
                self.keys.watch(watch.key(), since, timeout)?
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
            let watched = self.parse(&line).map_err(broken)?;
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

    /// Returns what `line` says, or why it says nothing of the key.
    fn parse(&self, line: &str) -> Result<Watched, String> {
        let line: Streamed<Watched> =
            serde_json::from_str(line).map_err(|error| error.to_string())?;
        match line {
            Streamed {
                result: Some(watched),
                error: None,
            } => Ok(watched),
            refused => {
                // An invalid token is the likely cause. If the cause is another one, a new token does no harm.
                self.client.forget_token();
                Err(format!("{refused:?}"))
            }
        }
    }
}
