//! What ranks tell each other through the store, and how a failure at one ends the wait at all.
//!
//! A rank writes `topic/rank` and reads the same of every other rank. A rank that gives up writes its error to
//! `failed/rank-id`; every wait looks there, so the others end soon after with that error and not at their timeout. The id
//! is of the process or thread: one that took a rank which is not its own is another's failure for the real one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TeamError;
use super::store::Store;

/// The way of one rank to the others.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    store: Arc<dyn Store>,
    rank: u32,
    ranks: u32,
    timeout: Duration,
    /// Name of this rank's failure.
    failed: String,
}

impl Exchange {
    pub(super) fn new(store: Arc<dyn Store>, rank: u32, ranks: u32, timeout: Duration) -> Self {
        Self {
            store,
            rank,
            ranks,
            timeout,
            failed: format!("{rank}-{:08x}", fastrand::u32(..)),
        }
    }

    /// Takes this rank's place in the store, once per run.
    pub(super) fn enter(&self) -> Result<(), TeamError> {
        let key = format!("rank/{}", self.rank);
        let id = std::process::id().to_string();
        match self.store.compare_and_set(&key, None, id.as_bytes())? {
            true => Ok(()),
            false => Err(TeamError::RankTaken { rank: self.rank }),
        }
    }

    /// Tells the others why this rank gives up. A store that cannot be written has to leave them to their timeout.
    pub(super) fn fail_with(&self, message: &str) {
        let key = format!("failed/{}", self.failed);
        if let Err(unwritten) = self.store.put(&key, message.as_bytes()) {
            tracing::error!("rank {} cannot tell its failure: {unwritten}", self.rank);
        }
    }

    /// The failure of another rank, if one has told any.
    pub(super) fn failure(&self) -> Result<(), TeamError> {
        self.failure_among(|_| true)
    }

    fn failure_among(&self, of: impl Fn(u32) -> bool) -> Result<(), TeamError> {
        for name in self.store.list("failed")? {
            let Ok(rank) = name.split('-').next().unwrap_or("").parse::<u32>() else {
                continue;
            };
            if name != self.failed
                && of(rank)
                && let Some(message) = self.store.try_get(&format!("failed/{name}"))?
            {
                let message = String::from_utf8_lossy(&message).into_owned();
                return Err(TeamError::PeerFailed { rank, message });
            }
        }
        Ok(())
    }

    /// Writes this rank's `value` under `topic` and waits for everybody's: by rank, its own included.
    pub(super) fn all<T>(&self, topic: &str, value: &T) -> Result<Vec<T>, TeamError>
    where
        T: Serialize + DeserializeOwned,
    {
        self.all_checked(topic, value, |_, _| Ok(()))
    }

    /// The same; `check` sees each rank's value as soon as it is there, and ends the wait with its error.
    pub(super) fn all_checked<T>(
        &self,
        topic: &str,
        value: &T,
        check: impl Fn(u32, &T) -> Result<(), TeamError>,
    ) -> Result<Vec<T>, TeamError>
    where
        T: Serialize + DeserializeOwned,
    {
        let text =
            serde_json::to_vec(value).map_err(|error| self.record(self.rank, topic, &error))?;
        self.store.put(&format!("{topic}/{}", self.rank), &text)?;
        let start = Instant::now();
        let mut values: Vec<Option<T>> = (0..self.ranks).map(|_| None).collect();
        loop {
            for (rank, place) in (0u32..).zip(&mut values) {
                if place.is_none()
                    && let Some(text) = self.store.try_get(&format!("{topic}/{rank}"))?
                {
                    let value = serde_json::from_slice(&text)
                        .map_err(|error| self.record(rank, topic, &error))?;
                    check(rank, &value)?;
                    *place = Some(value);
                }
            }
            let missing: Vec<u32> = (0u32..)
                .zip(&values)
                .filter_map(|(rank, value)| value.is_none().then_some(rank))
                .collect();
            if missing.is_empty() {
                return Ok(values.into_iter().flatten().collect());
            }
            self.failure()?;
            let left = self.timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(TeamError::Absent {
                    missing,
                    topic: topic.to_owned(),
                    waited: start.elapsed(),
                });
            }
            self.store.wait_for_change(left);
        }
    }

    /// Writes this rank's `value` under `topic` and waits for that of `peer`, at most until `deadline`. May be called again
    /// with the same value after a timeout. A rank that gave up ends the wait only if it is `peer`.
    pub(super) fn with<T>(
        &self,
        peer: u32,
        topic: &str,
        value: &T,
        deadline: Instant,
    ) -> Result<T, TeamError>
    where
        T: Serialize + DeserializeOwned,
    {
        let text =
            serde_json::to_vec(value).map_err(|error| self.record(self.rank, topic, &error))?;
        self.store.put(&format!("{topic}/{}", self.rank), &text)?;
        let start = Instant::now();
        loop {
            if let Some(text) = self.store.try_get(&format!("{topic}/{peer}"))? {
                return serde_json::from_slice(&text)
                    .map_err(|error| self.record(peer, topic, &error));
            }
            self.failure_among(|rank| rank == peer)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TeamError::Absent {
                    missing: vec![peer],
                    topic: topic.to_owned(),
                    waited: start.elapsed(),
                });
            }
            self.store.wait_for_change(left);
        }
    }

    /// Compares `pairs` of name and value between all ranks; the first difference is an error that names both ranks.
    pub(super) fn agree(&self, topic: &str, pairs: &[(String, String)]) -> Result<(), TeamError> {
        self.all_checked(topic, &pairs.to_vec(), |rank, theirs| {
            let value = |pairs: &[(String, String)], name: &str| {
                let pair = pairs.iter().find(|(key, _)| key == name);
                pair.map_or_else(|| "not set".to_owned(), |(_, value)| value.clone())
            };
            for (name, _) in pairs.iter().chain(theirs) {
                let (mine, other) = (value(pairs, name), value(theirs, name));
                if mine != other {
                    return Err(self.mismatch(name, mine, rank, other));
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Waits until every rank has come to the same place.
    pub(super) fn barrier(&self, name: &str) -> Result<(), TeamError> {
        self.all(&format!("barrier/{name}"), &()).map(drop)
    }

    pub(super) fn record(&self, rank: u32, topic: &str, reason: &dyn ToString) -> TeamError {
        TeamError::Record {
            rank,
            topic: topic.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// Named by the lower rank first, so that both say the same.
    pub(super) fn mismatch(
        &self,
        what: &str,
        mine: String,
        rank: u32,
        theirs: String,
    ) -> TeamError {
        let (first, second) = match self.rank < rank {
            true => ((self.rank, mine), (rank, theirs)),
            false => ((rank, theirs), (self.rank, mine)),
        };
        TeamError::Mismatch {
            what: what.to_owned(),
            first_rank: first.0,
            first: first.1,
            second_rank: second.0,
            second: second.1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::MemoryStore;
    use std::thread;

    fn exchanges(ranks: u32, timeout: Duration) -> Vec<Exchange> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let one = |rank| Exchange::new(Arc::clone(&store), rank, ranks, timeout);
        (0..ranks).map(one).collect()
    }

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn every_rank_gets_the_values_of_all_in_the_order_of_the_ranks() {
        let exchanges = exchanges(4, LONG);
        thread::scope(|scope| {
            let threads: Vec<_> = exchanges
                .iter()
                .map(|exchange| {
                    scope.spawn(|| exchange.all("square", &(exchange.rank * exchange.rank)))
                })
                .collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap().unwrap(), [0, 1, 4, 9]);
            }
        });
    }

    #[test]
    fn a_difference_is_reported_alike_by_both_ranks_with_both_values() {
        let exchanges = exchanges(2, LONG);
        let pairs = |hidden: u32| vec![("hidden".to_owned(), hidden.to_string())];
        let messages: Vec<String> = thread::scope(|scope| {
            let one = scope.spawn(|| exchanges[0].agree("shape", &pairs(128)));
            let two = scope.spawn(|| exchanges[1].agree("shape", &pairs(256)));
            [one, two]
                .map(|thread| thread.join().unwrap().unwrap_err().to_string())
                .into()
        });
        assert_eq!(messages[0], "hidden is 128 at rank 0 but 256 at rank 1");
        assert_eq!(messages[0], messages[1]);
    }

    #[test]
    fn a_failure_at_one_rank_ends_the_wait_of_the_others_at_once() {
        let exchanges = exchanges(3, LONG);
        let start = Instant::now();
        let messages: Vec<String> = thread::scope(|scope| {
            let waiting = [0, 1].map(|rank| {
                let exchange = &exchanges[rank];
                scope.spawn(|| exchange.all("window", &1u32).unwrap_err().to_string())
            });
            exchanges[2].fail_with("window is 9; it must be at most 8");
            waiting.map(|thread| thread.join().unwrap()).into()
        });
        assert_eq!(
            messages[0],
            "rank 2 failed: window is 9; it must be at most 8"
        );
        assert_eq!(messages[0], messages[1]);
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn ranks_that_do_not_come_are_named() {
        let exchanges = exchanges(4, Duration::from_millis(50));
        exchanges[2].store.put("hello/2", b"1").unwrap();
        let error = exchanges[0].all("hello", &1u32).unwrap_err().to_string();
        assert!(
            error.starts_with("ranks 1, 3 have not come within"),
            "{error}"
        );
        assert!(error.ends_with("(hello)"), "{error}");
    }

    #[test]
    fn a_record_that_is_not_what_ranks_write_is_refused() {
        let exchanges = exchanges(2, LONG);
        exchanges[1].store.put("hello/1", b"{").unwrap();
        let error = exchanges[0].all("hello", &1u32).unwrap_err().to_string();
        assert!(
            error.starts_with("what rank 1 told as hello cannot be: "),
            "{error}"
        );
    }

    #[test]
    fn a_rank_enters_a_store_once() {
        let exchanges = exchanges(2, LONG);
        exchanges[0].enter().unwrap();
        exchanges[1].enter().unwrap();
        let error = exchanges[0].enter().unwrap_err().to_string();
        assert!(error.starts_with("rank 0 has joined already"), "{error}");
    }
}
