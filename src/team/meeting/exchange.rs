//! The records by which ranks tell each other things through the store, and how a failure of one rank ends the waits of all.
//!
//! A rank writes `topic/rank` and reads that key of every other rank. A rank that gives up writes its error to `failed/rank-id`.
//! Every wait looks at these keys, so the other ranks end soon after with that error and not at their timeout. The id differs from
//! process to process, so the real process of a rank also sees the failure of a process that has taken the rank by mistake. A
//! process that ends without a record ends the waits for it, too, once other ranks know which process of this machine it was.
//!
//! Only founders meet in this way. A rank that joins later does not wait for the founders: it compares its settings with the
//! settings that the members published when they came. Its failure does not fail the members.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rendezvous::{MAX_VALUE, Patient, Process, Store, StoreError, printable};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failed::{self, Failure};
use super::glance::Glance;
use super::program::Program;
use crate::team::config::TeamConfig;
use crate::team::error::TeamError;
use crate::team::holder::Holder;
use crate::team::limits::VERSION;
use crate::team::ranks::RankSet;

/// The time for which a call of the store is repeated. It is longer than an etcd needs to choose another leader.
const PATIENCE: Duration = Duration::from_secs(5);
/// The beginning of the keys of link layers.
pub(super) const LINK_LAYERS: &str = "link-layer/";
/// Topics whose records, put by members, are read by a rank that joins later.
const LASTING: [&str; 2] = ["config/", LINK_LAYERS];

/// The access of one rank to the records of the others.
#[derive(Clone, Debug)]
pub(in crate::team) struct Exchange {
    store: Arc<dyn Store>,
    own: Holder,
    /// The ranks whose records this rank waits for: the founders, or the members that it finds when it joins, and itself.
    ranks: RankSet,
    /// This rank joins a team that works already.
    joins: bool,
    timeout: Duration,
    /// The name of the record of this rank's failure, below `failed/`.
    failed: String,
    /// The processes of other founders on this machine, once the founders have published them.
    processes: Arc<OnceLock<Vec<(u32, Process)>>>,
    /// Keys whose values cannot be read and that were reported.
    odd: Arc<Mutex<BTreeSet<String>>>,
    /// Questions to the store that get an answer at once or none.
    glance: Arc<Glance>,
    program: Arc<Program>,
    /// The records that this rank has put for ranks that join later, by key.
    told_all: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Exchange {
    pub(in crate::team) fn new(store: Arc<dyn Store>, config: &TeamConfig) -> Self {
        let own = config.holder();
        Self {
            store: Arc::new(Patient::new(store, PATIENCE)),
            own,
            ranks: config.members().with(own.rank),
            joins: config.joins(),
            timeout: config.join_timeout,
            failed: format!("{own}-{:08x}", fastrand::u32(..)),
            processes: Arc::default(),
            odd: Arc::default(),
            glance: Arc::new(Glance::new(config.settings.deadline)),
            program: Arc::default(),
            told_all: Arc::default(),
        }
    }

    /// Returns what this rank knows of its own program.
    pub(in crate::team) fn program(&self) -> &Program {
        &self.program
    }

    pub(in crate::team) fn rank(&self) -> u32 {
        self.own.rank
    }

    /// Returns whether this rank joins a team that works already.
    pub(in crate::team) fn joins(&self) -> bool {
        self.joins
    }

    /// Returns the ranks that this rank meets. For a founder these are all founders.
    pub(in crate::team) fn founders(&self) -> RankSet {
        self.ranks
    }

    /// Returns the longest wait for other ranks.
    pub(in crate::team) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the store in which all ranks meet.
    pub(in crate::team) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Refuses what only founders do, if this rank joined later.
    pub(in crate::team) fn only_founders(&self, what: &'static str) -> Result<(), TeamError> {
        if self.joins {
            Err(TeamError::Late {
                what,
                rank: self.own.rank,
            })
        } else {
            Ok(())
        }
    }

    /// Takes this rank's place in the store. This succeeds once for each founder of a run, and once for each generation of a rank
    /// that joins later.
    pub(in crate::team) fn enter(&self) -> Result<(), TeamError> {
        let key = self.place();
        let id = std::process::id().to_string();
        if self.store.compare_and_set(&key, None, id.as_bytes())? {
            Ok(())
        } else {
            Err(TeamError::RankTaken {
                rank: self.own.rank,
            })
        }
    }

    /// Returns the key of this rank's place in the store.
    fn place(&self) -> String {
        if self.joins {
            format!("rank/{}.{}", self.own.rank, self.own.generation)
        } else {
            format!("rank/{}", self.own.rank)
        }
    }

    /// Tells the other ranks why this rank gives up. If the store cannot be written, they end at their timeouts.
    pub(in crate::team) fn fail_with(&self, message: &str) {
        if self.joins {
            return;
        }
        let key = format!("failed/{}", self.failed);
        if let Err(unwritten) = self.store.put(&key, &Failure::new(message).text()) {
            tracing::error!(
                "rank {} cannot tell its failure: {unwritten}",
                self.own.rank
            );
        }
    }

    /// Passes `result` on. Publishes an error that began at this rank.
    pub(in crate::team) fn tell_error<T>(
        &self,
        result: Result<T, TeamError>,
    ) -> Result<T, TeamError> {
        if let Err(error) = &result
            && !error.is_remote()
        {
            self.fail_with(&error.to_string());
        }
        result
    }

    /// Tells the other ranks that this rank takes part in nothing any more. If the store cannot be written, they end at their
    /// timeouts.
    pub(in crate::team) fn tell_closed(&self) {
        if self.joins {
            return;
        }
        if let Err(unwritten) = self
            .store
            .put(&format!("closed/{}", self.own.rank), b"closed")
        {
            tracing::warn!(
                "the others learn by their timeouts that rank {} has closed its team: {unwritten}",
                self.own.rank
            );
        }
    }

    /// Returns the other founders that have closed their teams.
    pub(in crate::team) fn closed(&self) -> Result<impl Iterator<Item = u32>, StoreError> {
        let told = if self.joins {
            Vec::new()
        } else {
            self.store.list("closed")?
        };
        let own = self.own.rank;
        let ranks = told.into_iter().filter_map(|name| name.parse().ok());
        Ok(ranks.filter(move |rank| *rank != own))
    }

    /// Notes the processes of other founders, by rank. From now on the end of such a process ends waits for its rank. A process of
    /// another machine cannot be watched.
    pub(in crate::team) fn watch(&self, processes: Vec<(u32, Process)>) {
        let other = |(_, process): &(u32, Process)| process.pid_here().is_some();
        let here = processes.into_iter().filter(other).collect();
        let first = self.processes.set(here);
        debug_assert!(first.is_ok(), "founders tell their processes once");
    }

    /// Returns the founders whose processes have ended, as far as this machine can tell, each with the error that says so.
    pub(in crate::team) fn ended(&self) -> impl Iterator<Item = (u32, TeamError)> {
        let known = self.processes.get().map_or(&[][..], Vec::as_slice);
        let ended = known.iter().filter(|(_, process)| process.has_ended());
        ended.map(|(rank, process)| {
            let (rank, process) = (*rank, process.to_string());
            (rank, TeamError::PeerEnded { rank, process })
        })
    }

    /// Returns the founders that take part in nothing any more, each with the error for a rank that waits for them.
    pub(in crate::team) fn gone(&self) -> Result<BTreeMap<u32, TeamError>, TeamError> {
        let closed = self.closed()?;
        let closed = closed.map(|rank| (rank, TeamError::PeerClosed { rank }));
        Ok(closed.chain(self.ended()).collect())
    }

    /// Returns an error if the process of another founder has ended, as far as this machine can tell.
    pub(in crate::team) fn check_processes(&self) -> Result<(), TeamError> {
        self.ended().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Sets the longest wait for other ranks.
    #[cfg(test)]
    pub(in crate::team) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns as an error the failure that another rank has published, if any. A rank that joins later does not look, because an
    /// earlier failure is over.
    pub(in crate::team) fn failure(&self) -> Result<(), TeamError> {
        if self.joins {
            Ok(())
        } else {
            self.failure_in(&*self.store)
        }
    }

    /// As `failure`, but returns no error if the store does not answer at once: a rank whose own call runs does not wait for the
    /// store.
    pub(in crate::team) fn failure_at_once(&self) -> Result<(), TeamError> {
        if self.joins {
            return Ok(());
        }
        let failure = self.at_once("failed", |store| match self.failure_in(store) {
            Ok(()) => Ok(None),
            Err(TeamError::Store(error)) => Err(error),
            Err(failure) => Ok(Some(failure)),
        });
        failure.flatten().map_or(Ok(()), Err)
    }

    /// Returns as an error the failure of another rank, if any. A later generation has failed alone, so its failure is passed over.
    /// The failure of a rank that the team does not have counts for all.
    fn failure_in(&self, store: &dyn Store) -> Result<(), TeamError> {
        self.failure_among(store, |of| of.generation == 1)
    }

    /// Returns as an error the failure that `peer` has published, if any.
    pub(in crate::team) fn failure_of(&self, peer: Holder) -> Result<(), TeamError> {
        self.failure_among(self.store.as_ref(), |of| of == peer)
    }

    /// Returns as an error the failure of a holder for which `of` is true, if any.
    fn failure_among(
        &self,
        store: &dyn Store,
        of: impl Fn(Holder) -> bool,
    ) -> Result<(), TeamError> {
        for name in store.list("failed")? {
            let Some(holder) = failed::named(&name) else {
                continue;
            };
            if name == self.failed || !of(holder) {
                continue;
            }
            let key = format!("failed/{name}");
            let text = match store.try_get(&key) {
                Err(error) if error.is_unreadable() => {
                    self.count_as_missing(&key, &error);
                    continue;
                }
                found => found?,
            };
            match text.map(|text| Failure::parse(&text)) {
                Some(Ok(message)) => {
                    let rank = holder.rank;
                    return Err(TeamError::PeerFailed { rank, message });
                }
                Some(Err(reason)) => self.count_as_missing(&key, &reason),
                None => {}
            }
        }
        Ok(())
    }

    /// Returns whether the store has just left a question of this rank unanswered.
    pub(in crate::team) fn is_silent(&self) -> bool {
        self.glance.is_silent()
    }

    /// Returns what `ask` reads from the store, if the store answers at once.
    pub(super) fn at_once<T>(
        &self,
        key: &str,
        ask: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Option<T> {
        self.glance.ask(self.store.as_ref(), key, ask)
    }

    /// Returns the value under `key`, if it is valid and the store answers at once: a rank that has missed another rank does not
    /// wait for the store.
    pub(super) fn glance<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let text = self.at_once(key, |store| store.try_get(key))??;
        serde_json::from_slice(&text).ok()
    }

    /// Sets `key` to `value`, if the store answers at once.
    pub(super) fn tell<T: Serialize>(&self, key: &str, value: &T) {
        match self.text(key, value) {
            Ok(text) => {
                self.at_once(key, |store| store.put(key, &text));
            }
            Err(error) => tracing::debug!("'{key}' cannot be written: {error}"),
        }
    }

    /// Warns that the value under `key` cannot be read, once for each key.
    pub(in crate::team) fn count_as_missing(&self, key: &str, reason: &dyn Display) {
        let mut odd = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
        if odd.insert(key.to_owned()) {
            let (key, reason) = (printable(key), printable(&reason.to_string()));
            tracing::warn!("'{key}' counts as missing: {reason}");
        }
    }

    /// Sets `key` to `value`.
    pub(in crate::team) fn put<T: Serialize>(&self, key: &str, value: &T) -> Result<(), TeamError> {
        let text = self.text(key, value)?;
        self.store.put(key, &text)?;
        if LASTING.iter().any(|topic| key.starts_with(topic)) {
            let told = self.told_all.lock();
            let mut told = told.unwrap_or_else(PoisonError::into_inner);
            told.insert(key.to_owned(), text);
        }
        Ok(())
    }

    /// Sets `key` to `value` and returns the bytes written, for [`Exchange::put_again`].
    pub(in crate::team) fn put_kept<T: Serialize>(
        &self,
        key: &str,
        value: &T,
    ) -> Result<Vec<u8>, TeamError> {
        let text = self.text(key, value)?;
        self.store.put(key, &text)?;
        Ok(text)
    }

    /// Sets `key` to `text`, which [`Exchange::text`] has made.
    pub(in crate::team) fn put_text(&self, key: &str, text: &[u8]) -> Result<(), TeamError> {
        Ok(self.store.put(key, text)?)
    }

    /// Sets `key` to `text` if the store holds another value.
    pub(in crate::team) fn put_again(&self, key: &str, text: &[u8]) -> Result<(), TeamError> {
        let stands = match self.store.try_get(key) {
            Err(error) if error.is_unreadable() => false,
            found => found?.as_deref() == Some(text),
        };
        if !stands {
            tracing::warn!("'{key}' was changed by another writer, and is written again");
            self.store.put(key, text)?;
        }
        Ok(())
    }

    /// Writes again, into a store that has lost them, the records that newcomers read of any member, and this rank's place.
    pub(in crate::team) fn tell_all_again(&self) -> Result<(), TeamError> {
        let told = {
            let told = self.told_all.lock();
            told.unwrap_or_else(PoisonError::into_inner).clone()
        };
        for (key, text) in told {
            self.put_again(&key, &text)?;
        }
        let id = std::process::id().to_string();
        self.store
            .compare_and_set(&self.place(), None, id.as_bytes())?;
        Ok(())
    }

    pub(in crate::team) fn text<T: Serialize>(
        &self,
        key: &str,
        value: &T,
    ) -> Result<Vec<u8>, TeamError> {
        serde_json::to_vec(value).map_err(|error| self.record(self.own.rank, key, &error))
    }

    /// Returns the value that `rank` has published under `key`, if any. Errors name the value `topic`.
    pub(in crate::team) fn read<T: DeserializeOwned>(
        &self,
        rank: u32,
        topic: &str,
        key: &str,
    ) -> Result<Option<T>, TeamError> {
        let text = self.store.try_get(key)?;
        text.map(|text| self.parse(rank, topic, key, &text))
            .transpose()
    }

    pub(in crate::team) fn parse<T: DeserializeOwned>(
        &self,
        rank: u32,
        topic: &str,
        key: &str,
        text: &[u8],
    ) -> Result<T, TeamError> {
        // Checked for any store: an application's own store may hold longer values than ranks write.
        if text.len() > MAX_VALUE {
            return Err(TeamError::Store(StoreError::TooLong {
                what: "the value of",
                key: key.to_owned(),
                bytes: text.len(),
                limit: MAX_VALUE,
            }));
        }
        serde_json::from_slice(text).map_err(|error| self.record(rank, topic, &error))
    }

    /// As `read`, for a record that carries its version. Refuses another version than that of this crate.
    pub(in crate::team) fn read_versioned<T: DeserializeOwned>(
        &self,
        rank: u32,
        key: &str,
    ) -> Result<Option<T>, TeamError> {
        #[derive(serde::Deserialize)]
        struct Versioned {
            version: u32,
        }
        match self.read(rank, key, key)? {
            None => Ok(None),
            Some(Versioned { version }) if version == VERSION => self.read(rank, key, key),
            Some(Versioned { version }) => {
                let reason = format!("version {version}; this is version {}", VERSION);
                Err(self.record(rank, key, &reason))
            }
        }
    }

    /// Compares `pairs` of this rank with `theirs` of `rank`. The first difference is an error.
    pub(in crate::team) fn same(
        &self,
        pairs: &[(String, String)],
        rank: u32,
        theirs: &[(String, String)],
    ) -> Result<(), TeamError> {
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
    }

    pub(in crate::team) fn record(
        &self,
        rank: u32,
        topic: &str,
        reason: &dyn ToString,
    ) -> TeamError {
        TeamError::Record {
            rank,
            topic: topic.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// Returns an error that names the lower rank first, so that both ranks say the same.
    pub(in crate::team) fn mismatch(
        &self,
        what: &str,
        mine: String,
        rank: u32,
        theirs: String,
    ) -> TeamError {
        let (first, second) = if self.own.rank < rank {
            ((self.own.rank, mine), (rank, theirs))
        } else {
            ((rank, theirs), (self.own.rank, mine))
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
pub(in crate::team) mod tests {
    use super::*;
    use crate::team::MemoryStore;

    /// Returns the exchanges of `ranks` founders, which meet in memory.
    pub(in crate::team) fn exchanges(ranks: u32, timeout: Duration) -> Vec<Exchange> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let one = |rank| {
            let config = TeamConfig::new(rank, ranks).with_join_timeout(timeout);
            Exchange::new(Arc::clone(&store), &config)
        };
        (0..ranks).map(one).collect()
    }

    /// A timeout that only ends a hang.
    pub(in crate::team) const LONG: Duration = Duration::from_secs(100);

    #[test]
    fn processes_that_cannot_be_watched_are_not() {
        let exchange = &exchanges(1, LONG)[0];
        exchange.check_processes().unwrap();
        let elsewhere = r#"{"seen_from": "another machine", "pid": 1, "started": 7}"#;
        let elsewhere: Process = serde_json::from_str(elsewhere).unwrap();
        exchange.watch(vec![(0, Process::this()), (1, elsewhere)]);
        assert_eq!(exchange.processes.get().unwrap(), &[]);
        exchange.check_processes().unwrap();
    }

    #[test]
    fn a_record_that_is_too_long_is_refused_by_key_before_it_is_parsed() {
        let exchange = &exchanges(2, LONG)[0];
        let mut record = b"7".to_vec();
        record.resize(MAX_VALUE, b' ');
        let parse = |record: &[u8]| exchange.parse::<u32>(1, "hello", "hello/1", record);
        assert_eq!(parse(&record).unwrap(), 7);
        record.push(b' ');
        let error = parse(&record).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the value of 'hello/1' has 1048577 bytes; at most 1048576 are kept"
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
