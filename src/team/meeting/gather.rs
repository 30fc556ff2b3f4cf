//! Waits for what other ranks publish. Every wait looks at failures and processes, so that a rank which has gone ends the wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rendezvous::{MAX_LOOK, Store, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::arguments::{check_wanted, withdraw};
use super::exchange::Exchange;
use crate::deadline::Looks;
use crate::team::error::TeamError;
use crate::team::limits::{PEACE, PROCESSES};
use crate::team::ranks::RankSet;

/// The part of the time already waited for which a rank that waits for all others pauses before it looks again, even if something
/// has changed. If a thousand ranks come one after the other, each of them changes something.
const PAUSE_PART: u32 = 4;
/// The shortest and the longest of these pauses.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// The values that ranks have published for one topic.
pub(in crate::team) struct Gathered<T> {
    /// The value of each rank; none for a rank that has published nothing yet.
    values: BTreeMap<u32, Option<T>>,
    /// Ranks whose records cannot be read, each with the error.
    lost: BTreeMap<u32, TeamError>,
}

impl<T> Gathered<T> {
    pub(in crate::team) fn new(ranks: &RankSet) -> Self {
        Self {
            values: ranks.iter().map(|rank| (rank, None)).collect(),
            lost: BTreeMap::new(),
        }
    }

    pub(in crate::team) fn missing(&self) -> Vec<u32> {
        let values = self.values.iter();
        let missing = values
            .filter(|(rank, value)| value.is_none() && !self.lost.contains_key(rank))
            .map(|(rank, _)| *rank);
        missing.collect()
    }
}

impl Exchange {
    /// Writes this rank's `value` under `topic`, and waits for the values of all ranks. Returns them in the order of the ranks,
    /// with this rank's own.
    pub(in crate::team) fn all<T>(&self, topic: &str, value: &T) -> Result<Vec<(u32, T)>, TeamError>
    where
        T: Serialize + DeserializeOwned,
    {
        let key = |rank: u32| format!("{topic}/{rank}");
        self.all_checked(topic, key, value, |_, _| Ok(()))
    }

    /// As [`Exchange::all`], with the `key` of each rank. `check` sees each rank's value as soon as it arrives, and its error ends
    /// the wait.
    pub(in crate::team) fn all_checked<T>(
        &self,
        topic: &str,
        key: impl Fn(u32) -> String,
        value: &T,
        check: impl Fn(u32, &T) -> Result<(), TeamError>,
    ) -> Result<Vec<(u32, T)>, TeamError>
    where
        T: Serialize + DeserializeOwned,
    {
        self.put(&key(self.rank()), value)?;
        let start = Instant::now();
        let mut gathered = Gathered::new(&self.founders());
        let mut next_look = start + PROCESSES;
        let mut missing = Vec::new();
        for left in Looks::by(Instant::now, start.checked_add(self.timeout())) {
            // The ended ranks are read before the values. So a value that a rank published before its end is read after this.
            let mut gone = BTreeMap::new();
            if left.is_zero() || Instant::now() >= next_look {
                gone = self.gone()?;
                if start.elapsed() >= PEACE {
                    check_wanted(self).inspect_err(|_| withdraw(self, &key(self.rank())))?;
                }
                next_look = Instant::now() + PROCESSES;
            }
            self.gather(topic, &key, &check, &mut gathered)?;
            missing = gathered.missing();
            if missing.is_empty() {
                return self.gathered(gathered);
            }
            self.failure()?;
            if let Some(error) = missing.iter().find_map(|rank| gone.remove(rank)) {
                return Err(error);
            }
            pause(self.store().as_ref(), start, left);
        }
        Err(TeamError::Absent {
            missing,
            topic: topic.to_owned(),
            waited: start.elapsed(),
        })
    }

    /// Returns the values that `ranks` have published under the `key` of each, without waiting. A value that cannot be read counts
    /// as missing if this rank joins later.
    pub(in crate::team) fn told_by<T: DeserializeOwned>(
        &self,
        ranks: &RankSet,
        topic: &str,
        key: impl Fn(u32) -> String,
        check: impl Fn(u32, &T) -> Result<(), TeamError>,
    ) -> Result<Vec<(u32, T)>, TeamError> {
        let mut gathered = Gathered::new(ranks);
        self.gather(topic, &key, &check, &mut gathered)?;
        let values = gathered.values.into_iter();
        Ok(values
            .filter_map(|(rank, value)| Some((rank, value?)))
            .collect())
    }

    /// Reads the records that have come since the last call. A rank that joins skips a member's record that it cannot read: all
    /// members have published the same settings, so one readable record suffices.
    pub(in crate::team) fn gather<T: DeserializeOwned>(
        &self,
        topic: &str,
        key: &impl Fn(u32) -> String,
        check: &impl Fn(u32, &T) -> Result<(), TeamError>,
        gathered: &mut Gathered<T>,
    ) -> Result<(), TeamError> {
        let told = self.told(key)?;
        let mut new = gathered.missing();
        new.retain(|rank| told.contains(&key(*rank)));
        // The records are read in parts, so that each answer stays small.
        for some in new.chunks(MAX_LOOK) {
            let names: Vec<String> = some.iter().map(|rank| key(*rank)).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut found = self.store().changed_since(&names, None, 0)?;
            for (rank, name) in some.iter().zip(&names) {
                let entry = found.entries.iter().find(|entry| entry.key == *name);
                let read = match (entry, take_unreadable(&mut found.unreadable, name)) {
                    (Some(entry), _) => self.parse(*rank, topic, name, &entry.value),
                    (None, Some(error)) => Err(error.into()),
                    (None, None) => continue,
                };
                let checked = read.and_then(|value| check(*rank, &value).map(|()| value));
                match checked {
                    Err(error) if self.joins() && error.counts_as_missing() => {
                        self.count_as_missing(name, &error);
                        gathered.lost.insert(*rank, error);
                    }
                    checked => drop(gathered.values.insert(*rank, Some(checked?))),
                }
            }
        }
        Ok(())
    }

    /// Returns the values that were gathered, unless every other rank's record was unreadable.
    pub(in crate::team) fn gathered<T>(
        &self,
        mut gathered: Gathered<T>,
    ) -> Result<Vec<(u32, T)>, TeamError> {
        let whole = |(rank, value): (u32, Option<T>)| value.map(|value| (rank, value));
        let all: Vec<(u32, T)> = gathered.values.into_iter().filter_map(whole).collect();
        match gathered.lost.pop_first() {
            Some((_, error)) if all.iter().all(|(rank, _)| *rank == self.rank()) => Err(error),
            _ => Ok(all),
        }
    }

    /// Returns the keys that are set in the same folder as this rank's own key, which `key` names.
    fn told(&self, key: &impl Fn(u32) -> String) -> Result<BTreeSet<String>, TeamError> {
        let own = key(self.rank());
        let below = own.rsplit_once('/').map_or("", |(below, _)| below);
        let names = self.store().list(below)?;
        Ok(names.iter().map(|name| format!("{below}/{name}")).collect())
    }

    /// Waits until `look` finds the record that `peer` publishes for `topic`, at most until `deadline`. It looks at least once. An
    /// error of `look` ends the wait.
    pub(in crate::team) fn until<T>(
        &self,
        peer: u32,
        topic: &str,
        deadline: Instant,
        look: impl Fn() -> Result<Option<T>, TeamError>,
    ) -> Result<T, TeamError> {
        let start = Instant::now();
        for left in Looks::until(deadline) {
            if let Some(value) = look()? {
                return Ok(value);
            }
            if !left.is_zero() {
                self.store().wait_for_change(left);
            }
        }
        Err(TeamError::Absent {
            missing: vec![peer],
            topic: topic.to_owned(),
            waited: start.elapsed(),
        })
    }

    /// Compares `pairs` of name and value between all ranks. The first difference is an error that names both ranks.
    pub(in crate::team) fn agree(
        &self,
        topic: &str,
        pairs: &[(String, String)],
    ) -> Result<(), TeamError> {
        let key = |rank: u32| format!("{topic}/{rank}");
        self.all_checked(topic, key, &pairs.to_vec(), |rank, theirs| {
            self.same(pairs, rank, theirs)
        })?;
        Ok(())
    }

    /// Waits until every rank has called `barrier` with this `name`.
    pub(in crate::team) fn barrier(&self, name: &str) -> Result<(), TeamError> {
        self.only_founders("a barrier")?;
        self.all(&format!("barrier/{name}"), &()).map(drop)
    }
}

/// Waits for a change of `store`, at most for `left` of a wait that began at `start`. Then sleeps for the rest of the pause.
pub(in crate::team) fn pause(store: &dyn Store, start: Instant, left: Duration) {
    if left.is_zero() {
        return;
    }
    let look = Instant::now();
    store.wait_for_change(left.min(PROCESSES));
    let pause = (start.elapsed() / PAUSE_PART).clamp(PAUSES[0], PAUSES[1]);
    std::thread::sleep(pause.min(left).saturating_sub(look.elapsed()));
}

/// Returns the error that says why the value of `key` cannot be read, if there is one.
fn take_unreadable(errors: &mut Vec<StoreError>, key: &str) -> Option<StoreError> {
    let is_of = |error: &StoreError| error.unreadable_key() == Some(key);
    let place = errors.iter().position(is_of)?;
    Some(errors.swap_remove(place))
}

#[cfg(test)]
pub(in crate::team) mod tests {
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rendezvous::{Counted, Process};

    use super::*;
    use crate::team::meeting::exchange::tests::{LONG, exchanges};
    use crate::team::{MemoryStore, TeamConfig};

    #[test]
    fn every_rank_gets_the_values_of_all_in_the_order_of_the_ranks() {
        let exchanges = exchanges(4, LONG);
        thread::scope(|scope| {
            let threads: Vec<_> = exchanges
                .iter()
                .map(|exchange| {
                    scope.spawn(|| exchange.all("square", &(exchange.rank() * exchange.rank())))
                })
                .collect();
            for thread in threads {
                let all = thread.join().unwrap().unwrap();
                assert_eq!(all, [(0, 0), (1, 1), (2, 4), (3, 9)]);
            }
        });
    }

    #[test]
    fn a_meeting_costs_each_rank_one_write_and_few_ranged_reads() {
        let ranks = 64;
        let store = Counted::new(Arc::new(MemoryStore::new()));
        let asked = store.asked();
        let store: Arc<dyn Store> = Arc::new(store);
        let exchange = |rank| Exchange::new(Arc::clone(&store), &TeamConfig::new(rank, ranks));
        let start = Instant::now();
        thread::scope(|scope| {
            for rank in 0..ranks {
                scope.spawn(move || exchange(rank).all("number", &rank).unwrap());
            }
        });
        let waited = start.elapsed();
        let calls = asked.by_kind();
        eprintln!("{ranks} ranks met within {waited:.1?}: {calls:?}");
        let mut looks = 2;
        let mut time = PAUSES[0];
        while time < waited {
            time += (time / PAUSE_PART).clamp(PAUSES[0], PAUSES[1]);
            looks += 1;
        }
        assert_eq!(calls["put"], u64::from(ranks), "{calls:?}");
        // In each look a rank reads the names of ranks that have come, the names of ranks that have failed, and the new values.
        let most = u64::from(ranks) * (1 + 3 * looks);
        assert!(asked.calls() <= most, "{calls:?}, at most {most}");
    }

    #[test]
    fn more_ranks_than_one_look_names_meet() {
        let ranks = u32::try_from(MAX_LOOK).unwrap() + 2;
        let exchanges = exchanges(ranks, LONG);
        let (last, others) = exchanges.split_last().unwrap();
        for exchange in others {
            exchange
                .put(&format!("number/{}", exchange.rank()), &exchange.rank())
                .unwrap();
        }
        // Keys of another topic, and of no rank.
        last.put("number/other/0", &0).unwrap();
        last.put("number/stranger", &"word").unwrap();
        let all = last.all("number", &last.rank()).unwrap();
        assert!(all.into_iter().eq((0..ranks).map(|rank| (rank, rank))));
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
        // Both ranks get the failure of rank 2, not an error of their own.
        assert_eq!(messages[0], messages[1]);
    }

    #[test]
    fn the_end_of_a_process_ends_the_wait_for_values_it_never_sent() {
        let exchanges = exchanges(3, LONG);
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::of(child.id());
        let watched = vec![(0, Process::this()), (1, Process::this()), (2, process)];
        exchanges[0].watch(watched);
        exchanges[0].check_processes().unwrap();
        // The other ranks do not see it themselves, and read the failure of the one that does.
        exchanges[2].put("last/2", &2).unwrap();
        exchanges[1].put("last/1", &1).unwrap();
        let error = thread::scope(|scope| {
            let waiting = scope.spawn(|| exchanges[0].all("next", &0).unwrap_err());
            exchanges[1].put("next/1", &1).unwrap();
            child.kill().unwrap();
            waiting.join().unwrap()
        });
        let process = child.id().to_string();
        assert!(
            matches!(&error, TeamError::PeerEnded { rank: 2, process: of } if *of == process),
            "{error}"
        );
        assert!(!error.is_remote());
        child.wait().unwrap();
        let looked = exchanges[0].check_processes().unwrap_err();
        assert_eq!(looked.to_string(), error.to_string());
        // The record that it published remains in the store.
        let all = exchanges[0].all("last", &0).unwrap();
        assert_eq!(all, [(0, 0), (1, 1), (2, 2)]);
    }

    #[test]
    fn ranks_that_do_not_come_are_named() {
        let exchanges = exchanges(4, Duration::from_millis(50));
        exchanges[2].store().put("hello/2", b"1").unwrap();
        let error = exchanges[0].all("hello", &1u32).unwrap_err().to_string();
        assert!(
            error.starts_with("ranks 1, 3 have not come within"),
            "{error}"
        );
        assert!(error.ends_with("(hello)"), "{error}");
    }

    /// Returns the exchange of rank 0 of four whose first read by `kind` lasts longer than its `timeout`; after it rank 3 puts `key`.
    pub(in crate::team) fn late_exchange(kind: &'static str, key: &'static str) -> Exchange {
        let timeout = Duration::from_millis(1);
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let first = AtomicBool::new(true);
        let counted = Counted::new(Arc::clone(&memory)).behind_reads(move |of| {
            if of == kind && first.swap(false, Ordering::Relaxed) {
                thread::sleep(2 * timeout);
                memory.put(key, b"null").unwrap();
            }
        });
        let config = TeamConfig::new(0, 4).with_join_timeout(timeout);
        Exchange::new(Arc::new(counted), &config)
    }

    #[test]
    fn a_rank_that_comes_while_the_last_look_lasts_has_come() {
        let exchange = late_exchange("list", "topic/3");
        for rank in [1, 2] {
            exchange.put(&format!("topic/{rank}"), &()).unwrap();
        }
        let all = exchange.all("topic", &()).unwrap();
        assert_eq!(all.len(), 4);
        let exchange = late_exchange("get", "peer/3");
        let look = || exchange.read::<()>(3, "peer", "peer/3");
        let deadline = Instant::now() + Duration::from_millis(1);
        exchange.until(3, "peer", deadline, look).unwrap();
        // With a deadline that has passed, a record that is there is found.
        exchange.until(3, "peer", Instant::now(), look).unwrap();
    }

    #[test]
    fn a_record_that_is_not_what_ranks_write_is_refused() {
        let exchanges = exchanges(2, LONG);
        exchanges[1].store().put("hello/1", b"{").unwrap();
        let error = exchanges[0].all("hello", &1u32).unwrap_err().to_string();
        assert!(
            error.starts_with("invalid record 'hello' from rank 1: "),
            "{error}"
        );
    }

    #[test]
    fn an_unreadable_value_is_of_the_rank_whose_key_it_has() {
        let garbage = |key: &str| StoreError::NotARecord {
            key: key.to_owned(),
            bytes: 3,
        };
        let mut errors = vec![
            garbage("number/12"),
            StoreError::Foreign {
                store: "a map".to_owned(),
                message: "number/1 is away".to_owned(),
            },
            garbage("a/number/1"),
        ];
        assert!(take_unreadable(&mut errors, "number/1").is_none());
        errors.push(garbage("number/1"));
        for key in ["number/1", "number/12"] {
            let error = take_unreadable(&mut errors, key).unwrap();
            assert_eq!(error.unreadable_key(), Some(key));
        }
        assert_eq!(errors.len(), 2);
    }
}
