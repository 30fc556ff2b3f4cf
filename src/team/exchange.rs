//! What ranks tell each other through the store, and how a failure at one ends the wait at all.
//!
//! A rank writes `topic/rank` and reads the same of every other rank. A rank that gives up writes its error to `failed/rank-id`.
//! Every wait looks at these keys, so the other ranks end soon after with that error and not at their timeout. The id is of the
//! process or thread: one that took a rank which is not its own is another's failure for the real one. A process that ends
//! without a word ends the waits for it, too, once it is known which process of this machine it was.
//!
//! Founders meet like that. A rank that joins later does not wait for the founders: it compares its settings with what the
//! members published when they came. Its failure does not fail the members.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rendezvous::{MAX_LOOK, MAX_VALUE, Patient, Process, Store, StoreError, printable};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::arguments::{self, Arguments};
use super::config::MAX_QPS_PER_PEER;
use super::failed::{self, Failure};
use super::{RankSet, SignalOrder, TeamConfig, TeamError, hello, link_layer};
use crate::deadline::Looks;

/// A call of the store is repeated for this long: longer than an etcd needs to choose another leader.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at the processes of ranks that are waited for.
pub(super) const PROCESSES: Duration = Duration::from_millis(250);
/// A rank that waits for all others waits this part of the time already waited before it looks again, whatever has changed. Where
/// a thousand ranks come one after the other, each of them changes something.
const PAUSE_PART: u32 = 4;
/// Shortest and longest of these pauses.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// What a rank wants before it makes a QP.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// What all ranks must have alike: name and value.
    pub(super) agreed: Vec<(String, String)>,
    /// The most that it makes.
    pub(super) qps_per_peer: u32,
    /// Orders of signals that it can take.
    pub(super) orders: Vec<SignalOrder>,
}

/// What came of the settings of all ranks.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    /// The fewest that a rank asks for.
    pub(super) qps_per_peer: u32,
    /// The cheapest order of signals that all ranks can take.
    pub(super) order: SignalOrder,
    /// Cheaper ones that this rank can take, each with a rank that cannot.
    pub(super) lacking: Vec<(SignalOrder, u32)>,
}

/// The topic of a mismatch between ranks that support no order of signals in common.
pub(super) const ORDER: &str = "order of signals";

/// The way of one rank to the others.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    store: Arc<dyn Store>,
    rank: u32,
    generation: u32,
    /// Ranks whose records this one waits for: the founders, or the members that it finds when it joins, and itself.
    ranks: RankSet,
    /// Whether this rank joins a team that works already.
    joins: bool,
    timeout: Duration,
    /// Name of this rank's failure.
    failed: String,
    /// Processes of other founders on this machine, once they have published them.
    processes: Arc<OnceLock<Vec<(u32, Process)>>>,
    /// Keys that cannot be read, and that were reported.
    odd: Arc<Mutex<BTreeSet<String>>>,
    /// Those of this rank's program.
    arguments: Arc<Arguments>,
    /// What this rank has put for all others that come, of each topic once.
    told_all: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

/// Topics of which a rank that joins reads what members have put.
const LASTING: [&str; 2] = ["config/", link_layer::BELOW];

/// The values that ranks have published for one topic.
pub(super) struct Gathered<T> {
    /// By rank; none for a rank that has published nothing yet.
    values: BTreeMap<u32, Option<T>>,
    /// Ranks whose record cannot be read.
    lost: BTreeMap<u32, TeamError>,
}

impl<T> Gathered<T> {
    pub(super) fn new(ranks: &RankSet) -> Self {
        Self {
            values: ranks.iter().map(|rank| (rank, None)).collect(),
            lost: BTreeMap::new(),
        }
    }

    pub(super) fn missing(&self) -> Vec<u32> {
        let values = self.values.iter();
        let missing = values
            .filter(|(rank, value)| value.is_none() && !self.lost.contains_key(rank))
            .map(|(rank, _)| *rank);
        missing.collect()
    }
}

impl Exchange {
    pub(super) fn new(store: Arc<dyn Store>, config: &TeamConfig) -> Self {
        let (rank, generation) = (config.rank, config.generation);
        Self {
            store: Arc::new(Patient::new(store, PATIENCE)),
            rank,
            generation,
            ranks: config.members().with(rank),
            joins: config.joins(),
            timeout: config.join_timeout,
            failed: format!("{rank}.{generation}-{:08x}", fastrand::u32(..)),
            processes: Arc::default(),
            odd: Arc::default(),
            arguments: Arc::new(Arguments::new(config.settings.deadline)),
            told_all: Arc::default(),
        }
    }

    pub(super) fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// From now on the end of these processes, of other founders by rank, ends waits for them. Those of other machines say nothing.
    pub(super) fn watch(&self, processes: Vec<(u32, Process)>) {
        let other = |(_, process): &(u32, Process)| process.pid_here().is_some();
        let here = processes.into_iter().filter(other).collect();
        let first = self.processes.set(here);
        debug_assert!(first.is_ok(), "founders tell their processes once");
    }

    /// Founders whose processes have ended, as far as this machine can tell, each with the error that says so.
    pub(super) fn ended(&self) -> impl Iterator<Item = (u32, TeamError)> {
        let known = self.processes.get().map_or(&[][..], Vec::as_slice);
        let ended = known.iter().filter(|(_, process)| process.has_ended());
        ended.map(|(rank, process)| {
            let (rank, process) = (*rank, process.to_string());
            (rank, TeamError::PeerEnded { rank, process })
        })
    }

    /// Founders that come to nothing any more, each with the error of a rank that waits for it.
    pub(super) fn gone(&self) -> Result<BTreeMap<u32, TeamError>, TeamError> {
        let closed = self.closed()?;
        let closed = closed.map(|rank| (rank, TeamError::PeerClosed { rank }));
        Ok(closed.chain(self.ended()).collect())
    }

    /// Whether the processes of all other founders still run, as far as this machine can tell.
    pub(super) fn check_processes(&self) -> Result<(), TeamError> {
        self.ended().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The same with another longest wait.
    #[cfg(test)]
    pub(super) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Refuses what only founders do.
    pub(super) fn only_founders(&self, what: &'static str) -> Result<(), TeamError> {
        match self.joins {
            true => Err(TeamError::Late {
                what,
                rank: self.rank,
            }),
            false => Ok(()),
        }
    }

    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether this rank joins a team that works already.
    pub(super) fn joins(&self) -> bool {
        self.joins
    }

    /// For a founder: all founders.
    pub(super) fn founders(&self) -> RankSet {
        self.ranks
    }

    /// Longest wait for other ranks.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Where all ranks meet.
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Takes this rank's place in the store, once per run and generation.
    pub(super) fn enter(&self) -> Result<(), TeamError> {
        let key = self.place();
        let id = std::process::id().to_string();
        match self.store.compare_and_set(&key, None, id.as_bytes())? {
            true => Ok(()),
            false => Err(TeamError::RankTaken { rank: self.rank }),
        }
    }

    /// Tells the others why this rank gives up. A store that cannot be written has to leave them to their timeout.
    pub(super) fn fail_with(&self, message: &str) {
        if self.joins {
            return;
        }
        let key = format!("failed/{}", self.failed);
        if let Err(unwritten) = self.store.put(&key, &Failure::new(message).text()) {
            tracing::error!("rank {} cannot tell its failure: {unwritten}", self.rank);
        }
    }

    /// Tells the others that this rank comes to nothing any more. A store that cannot be written has to leave them to their timeout.
    pub(super) fn tell_closed(&self) {
        if self.joins {
            return;
        }
        if let Err(unwritten) = self.store.put(&format!("closed/{}", self.rank), b"closed") {
            tracing::warn!(
                "the others learn by their timeouts that rank {} has closed its team: {unwritten}",
                self.rank
            );
        }
    }

    /// The other founders that have told so.
    pub(super) fn closed(&self) -> Result<impl Iterator<Item = u32>, StoreError> {
        let told = match self.joins {
            true => Vec::new(),
            false => self.store.list("closed")?,
        };
        let own = self.rank;
        let ranks = told.into_iter().filter_map(|name| name.parse().ok());
        Ok(ranks.filter(move |rank| *rank != own))
    }

    /// The failure of another rank, if one has published any. A rank that joins later does not look, because an earlier failure is
    /// over.
    pub(super) fn failure(&self) -> Result<(), TeamError> {
        match self.joins {
            true => Ok(()),
            false => self.failure_in(&*self.store),
        }
    }

    /// The same if the store answers at once: a rank whose own call runs does not wait for the store.
    pub(super) fn failure_at_once(&self) -> Result<(), TeamError> {
        if self.joins {
            return Ok(());
        }
        let looked = self.at_once("failed", |store| match self.failure_in(store) {
            Err(TeamError::Store(error)) => Err(error),
            looked => Ok(looked),
        });
        looked.unwrap_or(Ok(()))
    }

    /// A later generation that fails has failed alone. A rank that the team has not has failed for all.
    fn failure_in(&self, store: &dyn Store) -> Result<(), TeamError> {
        self.failure_among(store, |_, generation| generation == 1)
    }

    /// The failure of a rank `of` which, by rank and generation, that is.
    fn failure_among(
        &self,
        store: &dyn Store,
        of: impl Fn(u32, u32) -> bool,
    ) -> Result<(), TeamError> {
        for name in store.list("failed")? {
            let Some((rank, generation)) = failed::named(&name) else {
                continue;
            };
            if name == self.failed || !of(rank, generation) {
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
                Some(Ok(message)) => return Err(TeamError::PeerFailed { rank, message }),
                Some(Err(reason)) => self.count_as_missing(&key, &reason),
                None => {}
            }
        }
        Ok(())
    }

    /// Reports, once, that the value under `key` cannot be read.
    pub(super) fn count_as_missing(&self, key: &str, reason: &dyn Display) {
        let mut odd = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
        if odd.insert(key.to_owned()) {
            let (key, reason) = (printable(key), printable(&reason.to_string()));
            tracing::warn!("'{key}' counts as missing: {reason}");
        }
    }

    /// Writes this rank's `value` under `topic`, and waits for the values of all ranks. Returns them in the order of the ranks, its
    /// own included.
    pub(super) fn all<T>(&self, topic: &str, value: &T) -> Result<Vec<(u32, T)>, TeamError>
    where
        T: Serialize + DeserializeOwned,
    {
        let key = |rank: u32| format!("{topic}/{rank}");
        self.all_checked(topic, key, value, |_, _| Ok(()))
    }

    /// As [`Exchange::all`], with the `key` of each rank. `check` sees each rank's value as soon as it arrives, and its error ends
    /// the wait.
    pub(super) fn all_checked<T>(
        &self,
        topic: &str,
        key: impl Fn(u32) -> String,
        value: &T,
        check: impl Fn(u32, &T) -> Result<(), TeamError>,
    ) -> Result<Vec<(u32, T)>, TeamError>
    where
        T: Serialize + DeserializeOwned,
    {
        self.put(&key(self.rank), value)?;
        let start = Instant::now();
        let mut gathered = Gathered::new(&self.ranks);
        let mut next_look = start + PROCESSES;
        let mut missing = Vec::new();
        for left in Looks::by(Instant::now, start.checked_add(self.timeout)) {
            // Before the values: a value that a rank published before its end is read after this.
            let mut gone = BTreeMap::new();
            if left.is_zero() || Instant::now() >= next_look {
                gone = self.gone()?;
                if start.elapsed() >= arguments::PEACE {
                    self.check_wanted()
                        .inspect_err(|_| self.withdraw(&key(self.rank)))?;
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
            pause(self.store.as_ref(), start, left);
        }
        Err(TeamError::Absent {
            missing,
            topic: topic.to_owned(),
            waited: start.elapsed(),
        })
    }

    /// The values that `ranks` have published under the `key` of each, without a wait. A value that cannot be read counts as
    /// missing.
    pub(super) fn told_by<T: DeserializeOwned>(
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
    pub(super) fn gather<T: DeserializeOwned>(
        &self,
        topic: &str,
        key: &impl Fn(u32) -> String,
        check: &impl Fn(u32, &T) -> Result<(), TeamError>,
        gathered: &mut Gathered<T>,
    ) -> Result<(), TeamError> {
        let told = self.told(key)?;
        let mut new = gathered.missing();
        new.retain(|rank| told.contains(&key(*rank)));
        // So many at a time that the answer stays small.
        for some in new.chunks(MAX_LOOK) {
            let names: Vec<String> = some.iter().map(|rank| key(*rank)).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut found = self.store.changed_since(&names, None, 0)?;
            for (rank, name) in some.iter().zip(&names) {
                let entry = found.entries.iter().find(|entry| entry.key == *name);
                let read = match (entry, take_unreadable(&mut found.unreadable, name)) {
                    (Some(entry), _) => self.parse(*rank, topic, name, &entry.value),
                    (None, Some(error)) => Err(error.into()),
                    (None, None) => continue,
                };
                let checked = read.and_then(|value| check(*rank, &value).map(|()| value));
                match checked {
                    Err(error) if self.joins && error.counts_as_missing() => {
                        self.count_as_missing(name, &error);
                        gathered.lost.insert(*rank, error);
                    }
                    checked => drop(gathered.values.insert(*rank, Some(checked?))),
                }
            }
        }
        Ok(())
    }

    /// The values that were gathered, unless every other rank's record was unreadable.
    pub(super) fn gathered<T>(
        &self,
        mut gathered: Gathered<T>,
    ) -> Result<Vec<(u32, T)>, TeamError> {
        let whole = |(rank, value): (u32, Option<T>)| value.map(|value| (rank, value));
        let all: Vec<(u32, T)> = gathered.values.into_iter().filter_map(whole).collect();
        match gathered.lost.pop_first() {
            Some((_, error)) if all.iter().all(|(rank, _)| *rank == self.rank) => Err(error),
            _ => Ok(all),
        }
    }

    /// The keys that are set beside this rank's own of those that `key` names.
    fn told(&self, key: &impl Fn(u32) -> String) -> Result<BTreeSet<String>, TeamError> {
        let own = key(self.rank);
        let below = own.rsplit_once('/').map_or("", |(below, _)| below);
        let names = self.store.list(below)?;
        Ok(names.iter().map(|name| format!("{below}/{name}")).collect())
    }

    /// Sets `key`.
    pub(super) fn put<T: Serialize>(&self, key: &str, value: &T) -> Result<(), TeamError> {
        let text = self.text(key, value)?;
        self.store.put(key, &text)?;
        if LASTING.iter().any(|topic| key.starts_with(topic)) {
            let told = self.told_all.lock();
            let mut told = told.unwrap_or_else(PoisonError::into_inner);
            told.insert(key.to_owned(), text);
        }
        Ok(())
    }

    /// Writes again what a rank that joins reads of any member, and this rank's place, into a store that has lost them.
    pub(super) fn tell_all_again(&self) -> Result<(), TeamError> {
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

    /// The key of this rank's place in the store.
    fn place(&self) -> String {
        match self.joins {
            true => format!("rank/{}.{}", self.rank, self.generation),
            false => format!("rank/{}", self.rank),
        }
    }

    /// Sets `key` and returns the bytes written, for [`Exchange::put_again`].
    pub(super) fn put_kept<T: Serialize>(
        &self,
        key: &str,
        value: &T,
    ) -> Result<Vec<u8>, TeamError> {
        let text = self.text(key, value)?;
        self.store.put(key, &text)?;
        Ok(text)
    }

    /// Sets `key` to `text`, which [`Exchange::text`] has made.
    pub(super) fn put_text(&self, key: &str, text: &[u8]) -> Result<(), TeamError> {
        Ok(self.store.put(key, text)?)
    }

    /// Sets `key` to `text` where another writer has changed it.
    pub(super) fn put_again(&self, key: &str, text: &[u8]) -> Result<(), TeamError> {
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

    pub(super) fn text<T: Serialize>(&self, key: &str, value: &T) -> Result<Vec<u8>, TeamError> {
        serde_json::to_vec(value).map_err(|error| self.record(self.rank, key, &error))
    }

    /// The value of `rank` under `key`, if it has published one. Errors name it `topic`.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        rank: u32,
        topic: &str,
        key: &str,
    ) -> Result<Option<T>, TeamError> {
        let text = self.store.try_get(key)?;
        text.map(|text| self.parse(rank, topic, key, &text))
            .transpose()
    }

    pub(super) fn parse<T: DeserializeOwned>(
        &self,
        rank: u32,
        topic: &str,
        key: &str,
        text: &[u8],
    ) -> Result<T, TeamError> {
        // Of any store: an application's own may hold longer values than ranks write.
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

    /// The same of a record that says its version, and is of this one.
    pub(super) fn read_versioned<T: DeserializeOwned>(
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
            Some(Versioned { version }) if version == hello::VERSION => self.read(rank, key, key),
            Some(Versioned { version }) => {
                let reason = format!("version {version}; this is version {}", hello::VERSION);
                Err(self.record(rank, key, &reason))
            }
        }
    }

    /// Waits until `look` finds the record that `peer` publishes for `topic`, at most until `deadline`; looks at least once. An
    /// error of `look` ends the wait.
    pub(super) fn until<T>(
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
                self.store.wait_for_change(left);
            }
        }
        Err(TeamError::Absent {
            missing: vec![peer],
            topic: topic.to_owned(),
            waited: start.elapsed(),
        })
    }

    /// Writes this rank's `value` under `topic` and waits for that of `peer`, by rank and generation, at most until `deadline`.
    /// May be called again with the same value after a timeout. A rank that gave up ends the wait only if it is `peer`.
    pub(super) fn with<T>(
        &self,
        (peer, generation): (u32, u32),
        topic: &str,
        value: &T,
        deadline: Instant,
    ) -> Result<T, TeamError>
    where
        T: Serialize + DeserializeOwned,
    {
        self.put(&format!("{topic}/{}", self.rank), value)?;
        self.until(peer, topic, deadline, || {
            let found = self.read(peer, topic, &format!("{topic}/{peer}"))?;
            if found.is_none() {
                self.failure_among(&*self.store, |rank, of| (rank, of) == (peer, generation))?;
            }
            Ok(found)
        })
    }

    /// Compares `pairs` of name and value between all ranks; the first difference is an error that names both ranks.
    pub(super) fn agree(&self, topic: &str, pairs: &[(String, String)]) -> Result<(), TeamError> {
        let key = |rank: u32| format!("{topic}/{rank}");
        self.all_checked(topic, key, &pairs.to_vec(), |rank, theirs| {
            self.same(pairs, rank, theirs)
        })?;
        Ok(())
    }

    /// Compares the settings of all ranks; the first difference is an error that names both ranks. The number of QPs to each peer
    /// is the smallest that a founder asks for. The order of signals is one that all founders can take. A rank that joins later
    /// takes both from the members.
    pub(super) fn settle(&self, own: Settings) -> Result<Settled, TeamError> {
        const TOPIC: &str = "config";
        let key = |rank: u32| format!("{TOPIC}/{rank}");
        let all = self.all_checked(TOPIC, key, &own, |rank, theirs: &Settings| {
            if !(1..=MAX_QPS_PER_PEER).contains(&theirs.qps_per_peer) {
                let qps = theirs.qps_per_peer;
                let reason = format!("{qps} QPs to each peer; it must be 1 to {MAX_QPS_PER_PEER}");
                return Err(self.record(rank, TOPIC, &reason));
            }
            self.same(&own.agreed, rank, &theirs.agreed)?;
            if theirs.orders.iter().any(|order| own.orders.contains(order)) {
                return Ok(());
            }
            let [own, theirs] = [&own.orders, &theirs.orders].map(|orders| words(orders));
            Err(self.mismatch(ORDER, own, rank, theirs))
        })?;
        let (order, lacking) = self.common_order(&own, &all)?;
        let counts = all
            .iter()
            .filter(|(rank, _)| !self.joins || *rank != self.rank);
        let fewest = counts.map(|(_, settings)| settings.qps_per_peer).min();
        let qps_per_peer = fewest.unwrap_or(own.qps_per_peer);
        if qps_per_peer != own.qps_per_peer {
            let wanted = own.qps_per_peer;
            tracing::info!("{qps_per_peer} QPs to each peer, not {wanted}: other ranks have fewer");
        }
        // A founder may be gone when a rank joins: every member tells what came of it.
        if qps_per_peer != own.qps_per_peer || own.orders != [order] {
            let came = Settings {
                qps_per_peer,
                orders: vec![order],
                ..own
            };
            self.put(&key(self.rank), &came)?;
        }
        Ok(Settled {
            qps_per_peer,
            order,
            lacking,
        })
    }

    /// The cheapest order of signals that all ranks can take, and cheaper ones of this rank with a rank that cannot.
    fn common_order(
        &self,
        own: &Settings,
        all: &[(u32, Settings)],
    ) -> Result<(SignalOrder, Vec<(SignalOrder, u32)>), TeamError> {
        let mut lacking = Vec::new();
        for order in &own.orders {
            match all
                .iter()
                .find(|(_, theirs)| !theirs.orders.contains(order))
            {
                None => return Ok((*order, lacking)),
                Some((rank, _)) => lacking.push((*order, *rank)),
            }
        }
        // Each has one in common with this rank, but two of them have none.
        let apart = |(_, one): &&(u32, Settings), (_, other): &&(u32, Settings)| {
            !one.orders.iter().any(|order| other.orders.contains(order))
        };
        let pairs = all
            .iter()
            .flat_map(|one| all.iter().map(move |other| (one, other)));
        let found = pairs.into_iter().find(|(one, other)| apart(one, other));
        let ((first_rank, first), (second_rank, second)) = found.unwrap_or((&all[0], &all[0]));
        Err(TeamError::Mismatch {
            what: ORDER.to_owned(),
            first_rank: *first_rank,
            first: words(&first.orders),
            second_rank: *second_rank,
            second: words(&second.orders),
        })
    }

    /// Compares `pairs` of this rank with those of `rank`.
    pub(super) fn same(
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

    /// Waits until every rank has come to the same place.
    pub(super) fn barrier(&self, name: &str) -> Result<(), TeamError> {
        self.only_founders("a barrier")?;
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

/// Waits for a change of `store`, at most for what is left of a wait that began at `start`.
pub(super) fn pause(store: &dyn Store, start: Instant, left: Duration) {
    if left.is_zero() {
        return;
    }
    let look = Instant::now();
    store.wait_for_change(left.min(PROCESSES));
    let pause = (start.elapsed() / PAUSE_PART).clamp(PAUSES[0], PAUSES[1]);
    std::thread::sleep(pause.min(left).saturating_sub(look.elapsed()));
}

/// Why the value of `key` cannot be read, if it cannot.
fn take_unreadable(errors: &mut Vec<StoreError>, key: &str) -> Option<StoreError> {
    let is_of = |error: &StoreError| error.unreadable_key() == Some(key);
    let place = errors.iter().position(is_of)?;
    Some(errors.swap_remove(place))
}

fn words(orders: &[SignalOrder]) -> String {
    let words: Vec<String> = orders.iter().map(SignalOrder::to_string).collect();
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(" or "),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::team::MemoryStore;
    use rendezvous::Counted;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    /// Those of `ranks` founders, which meet in memory.
    pub(in crate::team) fn exchanges(ranks: u32, timeout: Duration) -> Vec<Exchange> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let one = |rank| {
            let config = TeamConfig::new(rank, ranks).with_join_timeout(timeout);
            Exchange::new(Arc::clone(&store), &config)
        };
        (0..ranks).map(one).collect()
    }

    /// Ends a hang.
    pub(in crate::team) const LONG: Duration = Duration::from_secs(100);

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
        // In each look the names of those that have come and of those that have failed, and the values that are new.
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
                .put(&format!("number/{}", exchange.rank), &exchange.rank)
                .unwrap();
        }
        // Keys of another topic, and of no rank.
        last.put("number/other/0", &0).unwrap();
        last.put("number/stranger", &"word").unwrap();
        let all = last.all("number", &last.rank).unwrap();
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
        // Its words, not those of a wait that has ended by itself.
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

    /// The exchange of rank 0 of four whose first read by `kind` lasts longer than its `timeout`; behind it rank 3 puts `key`.
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
        let deadline = Instant::now() + Duration::from_millis(1);
        exchange.with::<()>((3, 1), "peer", &(), deadline).unwrap();
        // A deadline that has passed finds what is there.
        exchange
            .with::<()>((3, 1), "peer", &(), Instant::now())
            .unwrap();
    }

    #[test]
    fn a_record_that_is_not_what_ranks_write_is_refused() {
        let exchanges = exchanges(2, LONG);
        exchanges[1].store.put("hello/1", b"{").unwrap();
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
