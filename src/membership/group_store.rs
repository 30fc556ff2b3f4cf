//! The keys that a group keeps in the store, and a look that reads all keys that have changed.
//!
//! ```text
//! group/config            bounds that all ranks have alike
//! group/record            the group, changed by compare-and-set only
//! group/member/S.G        lease of slot S, generation G: its process, and whether it asks to be taken in
//! group/row/S.G           what it says of the others
//! group/promise/P/S.G     its promise for proposal P
//! group/leaves/S.G        it wants to leave: its view, and the last call that it starts in it
//! group/over/S.G          it has ended, by its own word
//! group/taken/S.G         it has, or had, its group
//! generation/S/G          generation G of slot S was drawn
//! ```
//!
//! A key of another form, or with a value that cannot be read, counts as missing and is reported once, by name. This module repeats
//! no call: the thread that follows the rules looks again, and knows how long each call took.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rendezvous::{
    Changed, Count, Entry, LeaseId, MAX_LOOK, Measured, Patient, Process, Store, StoreError, Timed,
    repeat,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::GroupError;
use super::config::Bounds;
use super::event::GroupView;
use super::generations::note_generation;
use super::holders::{Holder, Holders};
use super::rules::clocks::Pace;
use super::rules::record::{Promise, RankGeneration, Record};
use super::stored::{StoredRow, Unreadable, parse_record, parse_row, record_text, row_text};
use crate::team::Sweep;

const GROUP: &str = "group";
pub(super) const RECORD: &str = "group/record";
/// What a record that cannot be used means for the group, and how the operator mends it.
const MENDS: &str = "Calls go on in the view that is, and no view changes until that key holds a record of the group again. No rank can \
                     write it: whoever runs the store puts back the last value that was one, or starts all ranks anew with another store";
const MEMBERS: &str = "group/member";
const CONFIG: &str = "group/config";
const ROWS: &str = "group/row/";
pub(super) const PROMISES: &str = "group/promise/";
/// Below it are the words of ranks that want to leave.
pub(super) const GOODBYES: &str = "group/leaves/";
/// Kinds of keys that a generation writes under its own name.
const WORDS: [&str; 4] = ["row", "leaves", "over", "taken"];
/// The value under the `over` key of a rank that has ended.
const OVER: &[u8] = b"1";
/// A call before the group runs is repeated for this long: longer than an etcd needs to choose another leader.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Calls of the store that a rank makes at its start beyond those that it needs, to measure how fast the store is.
const LOOKS: u32 = 4;

/// The value of a living rank's member key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) process: Process,
    /// It wants to be taken in.
    pub(super) asks: bool,
}

/// The value that a member writes when it wants to leave. `last` is the last call that it starts in the view of `epoch`. The
/// goodbye holds in that view only. If a change keeps the member meanwhile, the member writes a new goodbye.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Goodbye {
    pub(super) epoch: u32,
    pub(super) last: u32,
}

/// What this rank has read from the store.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) record: Option<Arc<Record>>,
    /// The bytes of the record in the store.
    text: Vec<u8>,
    /// The generations that hold their leases.
    pub(super) members: Holders,
    pub(super) rows: BTreeMap<RankGeneration, Arc<StoredRow>>,
    /// By proposal and rank.
    pub(super) promises: BTreeMap<(u64, RankGeneration), Promise>,
    pub(super) goodbyes: BTreeMap<RankGeneration, Goodbye>,
    pub(super) over: BTreeSet<RankGeneration>,
    /// The store's revision at the last look, up to which the keys that it asked for are known.
    since: u64,
    /// The store's revision at the last look at all keys.
    since_all: u64,
    /// The store's revision at the look before this rank first saw the open proposal. No promise for that proposal is older.
    since_number: u64,
    /// The keys beside the record that the last look has asked for.
    named: BTreeSet<String>,
    count: Option<Count>,
    /// Keys that cannot be read, and that were reported.
    told: BTreeSet<String>,
    /// Keys were read, or a view came, and the driver has not called [`GroupStore::drop_kept`] since.
    pub(super) is_new: bool,
}

impl Kept {
    /// The store's revision of the last look at changes.
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// Keeps the record that was read from `text`, unless it is of an earlier view than one before.
    fn keep_record(&mut self, read: Result<Record, Unreadable>, text: &[u8]) -> Result<(), String> {
        let record = read.map_err(|error| error.to_string())?;
        let newest = self.record.as_ref();
        if newest.is_some_and(|newest| newest.epoch > record.epoch) {
            return Err(format!(
                "it is of view {}, and this rank has had a later one: the store has lost what it held",
                record.epoch
            ));
        }
        self.is_new = true;
        let number = record.number;
        self.promises.retain(|(of, _), _| *of >= number);
        self.record = Some(Arc::new(record));
        text.clone_into(&mut self.text);
        Ok(())
    }

    /// Promises for the proposal of `number`, in the order of their slots.
    pub(super) fn promises_for(
        &self,
        number: u64,
    ) -> impl Iterator<Item = (RankGeneration, &Promise)> {
        let all = (number, (0, 0))..=(number, (u32::MAX, u32::MAX));
        let of_it = self.promises.range(all);
        of_it.map(|((_, who), promise)| (*who, promise))
    }

    /// Differs when a lease was taken or has gone.
    pub(super) fn count(&self) -> Option<(u64, u64)> {
        self.count.map(|count| (count.keys, count.newest_created))
    }
}

/// The way of one generation to the store.
#[derive(Debug)]
pub(super) struct GroupStore {
    opened: Arc<dyn Store>,
    /// The same, with the bound that calls have now.
    store: Arc<dyn Store>,
    bound: Duration,
    own: RankGeneration,
    process: Process,
    slots: u32,
    ttl: Duration,
    pub(super) pace: Pace,
    /// The slowest call since the last look; the longest time of all if one has failed.
    slowest: Duration,
    pub(super) kept: Kept,
    lease: Option<(LeaseId, Instant)>,
    /// The value under the lease.
    value: Vec<u8>,
    pub(super) takings: u32,
    /// Reports for the next look.
    notes: Vec<String>,
    /// The bounds of this rank, as text; all ranks write the same.
    bounds: Vec<u8>,
    /// Another value stands in the store.
    bounds_differ: bool,
}

impl GroupStore {
    pub(super) fn new(
        store: Arc<dyn Store>,
        own: RankGeneration,
        slots: u32,
        ttl: Duration,
        process: Process,
    ) -> Self {
        Self {
            process,
            store: Arc::clone(&store),
            opened: store,
            bound: Duration::MAX,
            own,
            slots,
            ttl,
            pace: Pace::default(),
            slowest: Duration::ZERO,
            kept: Kept::default(),
            lease: None,
            value: Vec::new(),
            takings: 0,
            notes: Vec::new(),
            bounds: Vec::new(),
            bounds_differ: false,
        }
    }

    /// Takes the place of this generation in a group with these bounds; a generation can do so once. A founder has not drawn its
    /// generation, so this call notes it as the newest. Returns how long the calls of the store took.
    pub(super) fn enter(&mut self, bounds: &Bounds) -> Result<Measured, GroupError> {
        let store = Patient::new(Arc::clone(&self.opened), PATIENCE);
        let mut times = Vec::new();
        let mut timed = |call: &dyn Fn() -> Result<bool, StoreError>| {
            let timed = Timed::of(call);
            times.push(timed.took);
            timed.result
        };
        let (rank, generation) = self.own;
        let taken = GroupError::Taken { rank, generation };
        let place = key("taken", self.own);
        if timed(&|| Ok(store.try_get(&place)?.is_some()))? {
            return Err(taken);
        }
        self.bounds = bounds.to_string().into_bytes();
        if !timed(&|| store.compare_and_set(CONFIG, None, &self.bounds))? {
            self.agree(&store, bounds.found)?;
        }
        timed(&|| note_generation(&store, self.own))?;
        if !timed(&|| store.compare_and_set(&place, None, b"1"))? {
            return Err(taken);
        }
        for _ in 0..LOOKS {
            timed(&|| store.count(MEMBERS).map(|_| true))?;
        }
        Ok(Measured::of(times))
    }

    /// Compares the bounds of this rank with those in the store. If the store holds garbage, a rank that looks writes the bounds
    /// again (`mend_bounds`), and this rank waits for that up to `patience`. If no rank holds a lease, this rank writes them.
    fn agree(&self, store: &Patient, patience: Duration) -> Result<(), GroupError> {
        let (own, start) = (&self.bounds, Instant::now());
        loop {
            let reason = match store.try_get(CONFIG) {
                Ok(Some(theirs)) if theirs == *own => return Ok(()),
                Ok(Some(theirs)) if Bounds::are_in(&theirs) => {
                    let [own, theirs] =
                        [own, &theirs].map(|text| String::from_utf8_lossy(text).into_owned());
                    return Err(GroupError::Differs { own, theirs });
                }
                Ok(Some(_)) => "it does not hold the bounds of a group".to_owned(),
                Ok(None) => "it was removed".to_owned(),
                Err(error) if error.is_unreadable() => error.to_string(),
                Err(error) => return Err(error.into()),
            };
            if store.count(MEMBERS)?.keys == 0 {
                tracing::warn!("'{CONFIG}' counts as missing: {reason}");
                store.remove(CONFIG)?;
            }
            if store.compare_and_set(CONFIG, None, own)? {
                return Ok(());
            }
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                let waited = start.elapsed();
                return Err(GroupError::Record {
                    key: CONFIG.to_owned(),
                    reason: format!(
                        "{reason}; no rank that is there has written it again within {waited:.1?}"
                    ),
                });
            }
            store.wait_for_change(left.min(self.ttl / 4));
        }
    }

    /// Writes the bounds again where another has changed them: those that come compare theirs.
    pub(super) fn mend_bounds(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.bounds_differ) && !self.bounds.is_empty() {
            let bounds = self.bounds.clone();
            self.call(|store| store.put(CONFIG, &bounds))?;
        }
        Ok(())
    }

    /// A store for the thread that waits for the record.
    pub(super) fn watched(&self) -> (Arc<dyn Store>, &'static str) {
        (Arc::clone(&self.opened), RECORD)
    }

    /// Makes one call within the bound that the pace of the store gives it.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let bound = self.pace.call_ends(self.ttl);
        if bound != self.bound {
            self.store = self.opened.bounded(bound);
            self.bound = bound;
        }
        let timed = Timed::of(|| call(self.store.as_ref()));
        self.pace.took(timed.took);
        self.slowest = match &timed.result {
            Err(error) if !error.is_unreadable() => Duration::MAX,
            _ => self.slowest.max(timed.took),
        };
        timed.result
    }

    /// The slowest call since this was asked last; the longest time of all if one has failed.
    pub(super) fn take_slowest(&mut self) -> Duration {
        std::mem::take(&mut self.slowest)
    }

    /// Takes the lease if this rank has none, and renews it when a third of its time to live has passed. The rank takes a lease
    /// again only if the store says that it is gone.
    pub(super) fn keep_lease(&mut self, asks: bool) -> Result<(), StoreError> {
        let member = Member {
            process: self.process.clone(),
            asks,
        };
        let value = serde_json::to_vec(&member).expect("plain words");
        let key = key("member", self.own);
        let asked = Instant::now();
        if let Some((id, renewed)) = self.lease {
            let changed = value != self.value;
            let held = match changed {
                true => self.call(|store| store.put_leased(&key, &value, id))?,
                false if asked.duration_since(renewed) < self.ttl / 3 => return Ok(()),
                // `false` also where another has changed the key: it is written again while the lease lives.
                false => {
                    self.call(|store| store.renew_lease(&key, id))?
                        || self.call(|store| store.put_leased(&key, &value, id))?
                }
            };
            if held {
                self.value = value;
                self.lease = Some((id, if changed { renewed } else { asked }));
                return Ok(());
            }
            tracing::warn!("the lease '{key}' is gone");
            self.lease = None;
        }
        let ttl = self.ttl;
        match self.call(|store| store.take_lease(&key, &value, ttl))? {
            Some(id) => {
                self.takings += 1;
                self.lease = Some((id, asked));
                self.value = value;
            }
            // Only this rank writes this name. So the value is from another writer, or from a lease whose answer was lost.
            None => {
                if self.kept.told.insert(format!("{key} without a lease")) {
                    self.notes.push(format!(
                        "'{key}' is set and is not of this rank's lease: it is removed, and the lease is taken behind that"
                    ));
                }
                self.call(|store| store.remove(&key))?;
            }
        }
        Ok(())
    }

    /// Gives the lease back.
    pub(super) fn end_lease(&mut self) {
        if let Some((id, _)) = self.lease.take() {
            let key = key("member", self.own);
            if let Err(error) = self.call(|store| store.end_lease(&key, id)) {
                tracing::warn!("the lease '{key}' is left to run out: {error}");
            }
        }
    }

    /// Makes one look. If one rank changes two keys one after the other, a look that asks for both and sees the second also sees
    /// the first. Returns reports on keys that cannot be read.
    pub(super) fn look(&mut self, at: &LookAt) -> Result<Vec<String>, StoreError> {
        let mut odd = std::mem::take(&mut self.notes);
        match at {
            LookAt::Named(named) if named.len() < MAX_LOOK => {
                self.look_at_named(named, &mut odd)?
            }
            LookAt::Named(_) | LookAt::All => self.look_at_all(&mut odd)?,
            LookAt::Members => self.look_at_members(&mut odd)?,
        }
        Ok(odd)
    }

    fn look_at_all(&mut self, odd: &mut Vec<String>) -> Result<(), StoreError> {
        let since = self.kept.since_all;
        let found = self.call(|store| store.changed_since(&[], Some(GROUP), since))?;
        self.kept.since_all = found.revision;
        self.kept.named.clear();
        self.learn(found, odd);
        Ok(())
    }

    /// Asks for the record, for the names of newcomers, and for these keys.
    fn look_at_named(
        &mut self,
        named: &BTreeSet<String>,
        odd: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        let kept = &self.kept;
        // The last look at all keys has asked for those that were not named since.
        let (new, known): (Vec<&str>, Vec<&str>) = named
            .iter()
            .map(String::as_str)
            .partition(|&key| !kept.named.contains(key) && kept.since != kept.since_all);
        let (promises, new): (Vec<&str>, Vec<&str>) =
            new.into_iter().partition(|key| key.starts_with(PROMISES));
        let since = match promises.is_empty() {
            true => kept.since,
            false => kept.since.min(kept.since_number),
        };
        let since_all = kept.since_all;
        if !new.is_empty() {
            let found = self.call(|store| store.changed_since(&new, None, since_all))?;
            self.keep_all(found, odd);
        }
        let keys: Vec<&str> = [RECORD]
            .into_iter()
            .chain(known)
            .chain(promises)
            .chain(new)
            .collect();
        let found = self.call(|store| store.changed_since(&keys, Some(MEMBERS), since))?;
        self.kept.named.clone_from(named);
        self.learn(found, odd);
        Ok(())
    }

    /// Keeps the result of a look at the record.
    fn learn(&mut self, found: Changed, odd: &mut Vec<String>) {
        let (since, number) = (self.kept.since, self.number());
        if found.revision < since {
            odd.push(format!(
                "the store is at revision {}, and was at {since}: it has lost what it held. No view changes until the group's \
                 record is there again; start the ranks anew with another store",
                found.revision
            ));
            self.kept.count = None;
            self.kept.since_all = self.kept.since_all.min(found.revision);
        }
        self.kept.since = found.revision;
        self.keep_all(found, odd);
        if self.number() != number {
            self.kept.since_number = since;
        }
    }

    /// Takes down the record that a watch delivered, unless a look was faster. Returns a report if the record cannot be read.
    pub(super) fn take_down(&mut self, entry: &Entry) -> Option<String> {
        if entry.revision <= self.kept.since {
            return None;
        }
        let told = parse_record(&entry.value, self.slots);
        let place = |record: &Record| (record.epoch, record.number);
        let newest = self.kept.record.as_deref().map(place);
        if told.as_ref().is_ok_and(|told| Some(place(told)) < newest) {
            return None;
        }
        let number = self.number();
        let mut odd = Vec::new();
        match self.kept.keep_record(told, &entry.value) {
            Ok(()) => drop(self.kept.told.remove(&entry.key)),
            Err(reason) => self.odd(&entry.key, &reason, &mut odd),
        }
        if self.number() != number {
            self.kept.since_number = self.kept.since;
        }
        odd.pop()
    }

    /// Of the newest proposal.
    fn number(&self) -> u64 {
        self.kept.record.as_ref().map_or(0, |record| record.number)
    }

    fn keep_all(&mut self, found: Changed, odd: &mut Vec<String>) {
        for entry in found.entries {
            if let Err(reason) = self.keep(&entry) {
                self.odd(&entry.key, &reason, odd);
            }
        }
        for error in found.unreadable {
            self.bounds_differ |= error.unreadable_key() == Some(CONFIG);
            self.odd(&error.to_string(), "it cannot be read", odd);
        }
    }

    /// Counts the leases. A newer creation than at the last look means newcomers, whose keys are read. A count that differs from
    /// the kept leases means that some have gone: then the rank lists the names that are left.
    fn look_at_members(&mut self, odd: &mut Vec<String>) -> Result<(), StoreError> {
        let count = self.call(|store| store.count(MEMBERS))?;
        if self.kept.count() == Some((count.keys, count.newest_created)) {
            return Ok(());
        }
        if count.newest_created > self.kept.since || self.kept.count.is_none() {
            let named = self.kept.named.clone();
            self.look_at_named(&named, odd)?;
        }
        self.forget_dropped(count.keys);
        if self.kept.members.len() as u64 != count.keys {
            let names = self.call(|store| store.list(MEMBERS))?;
            let slots = self.slots;
            let named = names
                .iter()
                .filter_map(|name| rank_generation(name, slots).ok());
            let held: BTreeSet<RankGeneration> = named.collect();
            self.kept.members.retain(|who| held.contains(&who));
        }
        self.kept.count = Some(count);
        Ok(())
    }

    /// If as many leases are gone as dropped ranks are kept, the missing leases are those of the dropped ranks. Then no list of
    /// names is needed. If a member's lease is missing instead, the count differs again when those of the dropped ranks go.
    fn forget_dropped(&mut self, held: u64) {
        let kept = &mut self.kept;
        let Some(record) = &kept.record else {
            return;
        };
        let dropped = |who: RankGeneration| record.was_dropped(who.0, who.1);
        let gone = kept.members.iter().filter(|(who, _)| dropped(*who)).count();
        if (kept.members.len() - gone) as u64 == held {
            kept.members.retain(|who| !dropped(who));
        }
    }

    fn odd(&mut self, key: &str, reason: &str, odd: &mut Vec<String>) {
        if self.kept.told.insert(key.to_owned()) {
            odd.push(match key.contains(RECORD) {
                true => format!("'{RECORD}' cannot be used: {reason}. {MENDS}"),
                false => format!("'{key}' counts as missing: {reason}"),
            });
        }
    }

    fn keep(&mut self, entry: &Entry) -> Result<(), String> {
        let names: Vec<&str> = entry.key.split('/').skip(1).collect();
        let kept = &mut self.kept;
        match names[..] {
            ["taken", _] => return Ok(()),
            ["config"] => {
                // A reader that is no rank has none.
                self.bounds_differ = match self.bounds.is_empty() {
                    true => !Bounds::are_in(&entry.value),
                    false => entry.value != self.bounds,
                };
                if self.bounds_differ {
                    return Err("they are not the bounds of this group".to_owned());
                }
            }
            // A watch may have delivered it before this look.
            ["record"] if kept.record.is_some() && entry.value == kept.text => {}
            ["record"] => kept.keep_record(parse_record(&entry.value, self.slots), &entry.value)?,
            ["promise", number, name] => {
                let number: u64 = number.parse().map_err(|_| "no number of a proposal")?;
                let who = rank_generation(name, self.slots)?;
                let open = kept.record.as_ref().map_or(0, |record| record.number);
                if number >= open {
                    kept.promises.insert((number, who), parse(&entry.value)?);
                }
            }
            [kind, name] => {
                let who = rank_generation(name, self.slots)?;
                kept.is_new = true;
                match kind {
                    "member" => {
                        kept.members.remove(who);
                        let Member { process, asks } = parse(&entry.value)?;
                        let beside = process.is_beside(&self.process);
                        let near = beside && process != self.process;
                        let holder = Holder { beside, asks };
                        kept.members.insert(who, holder, near.then_some(process));
                    }
                    "row" => {
                        kept.rows.remove(&who);
                        let row = parse_row(&entry.value, self.slots);
                        let row = row.map_err(|error| error.to_string())?;
                        kept.rows.insert(who, Arc::new(row));
                    }
                    "leaves" => {
                        kept.goodbyes.remove(&who);
                        kept.goodbyes.insert(who, parse(&entry.value)?);
                    }
                    "over" if entry.value == OVER => drop(kept.over.insert(who)),
                    "over" => return Err("it is not the word of a rank that has ended".to_owned()),
                    _ => return Err("no key of a group".to_owned()),
                }
            }
            _ => return Err("no key of a group".to_owned()),
        }
        self.kept.told.remove(&entry.key);
        Ok(())
    }

    /// Forgets what was read of generations for which `is_over` holds. Returns whether any key was read since the last call; if
    /// not, nothing was forgotten.
    pub(super) fn drop_kept(&mut self, is_over: impl Fn(RankGeneration) -> bool) -> bool {
        let kept = &mut self.kept;
        if !std::mem::take(&mut kept.is_new) {
            return false;
        }
        kept.rows.retain(|who, _| !is_over(*who));
        kept.goodbyes.retain(|who, _| !is_over(*who));
        kept.over.retain(|who| !is_over(*who));
        true
    }

    /// Forgets the promise of `who` for proposal `number`, which is invalid for `reason`. The next look reports that once.
    pub(super) fn refuse_promise(&mut self, number: u64, who: RankGeneration, reason: &str) {
        self.kept.promises.remove(&(number, who));
        let mut odd = Vec::new();
        self.odd(&promise_key(number, who), reason, &mut odd);
        self.notes.append(&mut odd);
    }

    /// Forgets the rows of other ranks and the promises. A rank reads them while it acts, and does not keep them for the next
    /// change: those of 1,024 ranks take 300 KB. The next look at all keys reads them again, and a look at named keys reads the
    /// named ones. Returns whether any were kept.
    pub(super) fn forget_rows(&mut self) -> bool {
        let (own, kept) = (self.own, &mut self.kept);
        if kept.rows.keys().all(|who| *who == own) && kept.promises.is_empty() {
            return false;
        }
        let row = kept.rows.remove_entry(&own);
        kept.rows = row.into_iter().collect();
        kept.promises.clear();
        let forgotten = |key: &str| key.starts_with(ROWS) || key.starts_with(PROMISES);
        kept.named
            .retain(|key| !forgotten(key) || *key == row_key(own));
        kept.since_all = 0;
        true
    }

    /// Founds the group. Returns whether this rank did; if not, look again.
    pub(super) fn found(&mut self, record: &Record) -> Result<bool, StoreError> {
        let text = record_text(record, self.slots);
        self.call(|store| store.compare_and_set(RECORD, None, &text))
    }

    /// Puts `new` in the place of the record that was read last. Unless it is done, look again, also after an error.
    pub(super) fn replace(&mut self, new: &Record) -> Result<Replaced, StoreError> {
        let text = record_text(new, self.slots);
        let old = self.kept.text.clone();
        if self.call(|store| store.compare_and_set(RECORD, Some(&old), &text))? {
            self.kept.record = Some(Arc::new(new.clone()));
            self.kept.is_new = true;
            self.kept.text = text;
            return Ok(Replaced::Done);
        }
        let found = match self.call(|store| store.try_get(RECORD)) {
            Err(error) if error.is_unreadable() => return Ok(Replaced::Unreadable),
            found => found?,
        };
        match found {
            Some(text) if parse_record(&text, self.slots).is_err() => Ok(Replaced::Unreadable),
            Some(_) => Ok(Replaced::Changed),
            None => Ok(Replaced::Missing),
        }
    }

    pub(super) fn promise(&mut self, number: u64, promise: &Promise) -> Result<(), StoreError> {
        let (key, text) = (promise_key(number, self.own), text(promise));
        self.call(|store| store.put(&key, &text))
    }

    /// Sets a key that is none of a group.
    pub(super) fn put(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.call(|store| store.put(key, value))
    }

    pub(super) fn leave(&mut self, goodbye: Goodbye) -> Result<(), StoreError> {
        let (key, text) = (goodbye_key(self.own), text(&goodbye));
        self.call(|store| store.put(&key, &text))
    }

    pub(super) fn tell(&mut self, row: &StoredRow) -> Result<(), StoreError> {
        let (key, text) = (key("row", self.own), row_text(row));
        self.call(|store| store.put(&key, &text))
    }

    /// This generation has ended: the others need not wait for its lease to run out.
    pub(super) fn say_over(&mut self) -> Result<(), StoreError> {
        let own = self.own;
        self.call(|store| say_over(store, own))
    }

    /// Makes the next call of `sweep`.
    pub(super) fn sweep(
        &mut self,
        sweep: &mut Sweep,
        is_over: &dyn Fn(u32, u32) -> bool,
    ) -> Result<(), StoreError> {
        self.call(|store| sweep.step(store, is_over))
    }
}

/// The keys below which generations write under their own names. No rank reads those of generations that are over.
pub(super) fn all_words() -> impl Iterator<Item = String> {
    WORDS.into_iter().map(|kind| format!("{GROUP}/{kind}"))
}

/// The keys that `who` writes below them.
pub(super) fn words_of(who: RankGeneration) -> impl Iterator<Item = String> {
    WORDS.into_iter().map(move |kind| key(kind, who))
}

/// `who` has ended, and says so.
pub(super) fn say_over(store: &dyn Store, who: RankGeneration) -> Result<(), StoreError> {
    store.put(&key("over", who), OVER)
}

/// What one look asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LookAt {
    /// How many ranks hold their leases, and which if that has changed.
    Members,
    /// The record, the newcomers, and these keys. A rank that only has to promise in a change reads these.
    Named(BTreeSet<String>),
    /// All keys that have changed. A rank that proposes and commits reads these.
    All,
}

/// The lease of a rank.
#[cfg(any(test, feature = "sim"))]
pub(super) fn member_key(who: RankGeneration) -> String {
    key("member", who)
}

/// The key of a rank's row, which says how it stands with the others.
pub(super) fn row_key(who: RankGeneration) -> String {
    key("row", who)
}

/// That a rank has ended, by its own word.
pub(super) fn over_key(who: RankGeneration) -> String {
    key("over", who)
}

/// That a rank wants to leave.
pub(super) fn goodbye_key(who: RankGeneration) -> String {
    key("leaves", who)
}

/// How an attempt to replace the record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    Done,
    /// Another rank was faster.
    Changed,
    /// The store holds no record.
    Missing,
    /// The record in the store cannot be read; looks report that.
    Unreadable,
}

fn text(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers and words")
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// The slot and the generation that `name` says.
fn rank_generation(name: &str, slots: u32) -> Result<RankGeneration, String> {
    let split = name.split_once('.');
    let (slot, generation) = split.ok_or("its name is not SLOT.GENERATION")?;
    let slot: u32 = slot.parse().map_err(|_| format!("'{slot}' is no slot"))?;
    if slot >= slots {
        return Err(format!("slot {slot}; there are {slots}"));
    }
    match generation.parse() {
        Ok(generation) if generation != 0 => Ok((slot, generation)),
        _ => Err(format!("'{generation}' is no generation")),
    }
}

/// The newest view of the group of `slots` ranks that meets in `store`: the members that a rank finds when it wants to come in.
/// None before the founders have met.
///
/// # Errors
/// [`GroupError::Store`] after 5 s of failures that may pass; [`GroupError::Record`] if the record cannot be read.
pub fn newest_view(store: &Arc<dyn Store>, slots: u32) -> Result<Option<GroupView>, GroupError> {
    let until = Instant::now() + PATIENCE;
    let Some(text) = repeat(until, || store.try_get(RECORD))? else {
        return Ok(None);
    };
    let record = parse_record(&text, slots).map_err(|error| GroupError::Record {
        key: RECORD.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(Some(GroupView::from(&record)))
}

fn key(kind: &str, (slot, generation): RankGeneration) -> String {
    format!("group/{kind}/{slot}.{generation}")
}

/// The key of a rank's promise for a proposal.
pub(super) fn promise_key(proposal: u64, who: RankGeneration) -> String {
    key(&format!("promise/{proposal}"), who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::GroupConfig;
    use crate::membership::rules::slots::Slots;
    use rendezvous::{MemoryStore, Records};

    const TTL: Duration = Duration::from_secs(10);

    fn opened(store: &Arc<MemoryStore>, own: RankGeneration, slots: u32) -> GroupStore {
        let store = Arc::clone(store) as Arc<dyn Store>;
        GroupStore::new(store, own, slots, TTL, Process::this())
    }

    #[test]
    fn a_record_that_cannot_be_is_refused_with_its_key() {
        let store = Arc::new(MemoryStore::new());
        let record = Record::founded([(0, 1), (2, 1)].into());
        store.put(RECORD, &record_text(&record, 3)).unwrap();
        let all = Arc::clone(&store) as Arc<dyn Store>;
        let error = newest_view(&all, 2).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid record 'group/record' of the group: it is of 3 slots; there are 2"
        );
        store.put(RECORD, b"{").unwrap();
        assert!(matches!(
            newest_view(&all, 2),
            Err(GroupError::Record { .. })
        ));
    }

    #[test]
    fn what_a_row_says_against_ranks_holds_in_its_view_only() {
        let set = |slot: u32| -> Slots { [slot].into_iter().collect() };
        let stored = StoredRow {
            epoch: 3,
            unheard: set(0),
            broken: set(1),
            overdue: set(2),
            ended: set(3),
            meets: set(4),
            connected: [(5, 2), (6, 1)].into(),
            ..StoredRow::default()
        };
        let named = |(_, generation): RankGeneration| generation == 2;
        let row = stored.row(3, named);
        assert_eq!(
            [&row.unheard, &row.broken, &row.overdue, &row.ended],
            [&set(0), &set(1), &set(2), &set(3)]
        );
        // The next holder of slot 3 has not ended.
        for epoch in [2, 4] {
            let row = stored.row(epoch, named);
            let against = [&row.unheard, &row.broken, &row.overdue, &row.ended];
            assert!(against.into_iter().all(Slots::is_empty), "{row:?}");
            assert_eq!((&row.meets, &row.connected), (&set(4), &set(5)));
        }
    }

    impl GroupStore {
        /// A look at all keys, and at the leases.
        fn look_whole(&mut self) -> Result<Vec<String>, StoreError> {
            let mut odd = self.look(&LookAt::All)?;
            odd.extend(self.look(&LookAt::Members)?);
            Ok(odd)
        }
    }

    /// Puts `value` under `key`, looks, and returns the reports of that look.
    fn told(store: &Arc<MemoryStore>, looker: &mut GroupStore, key: &str, value: &[u8]) -> String {
        store.put(key, value).unwrap();
        let odd = looker.look_whole().unwrap();
        assert!(odd.len() <= 1, "{odd:?}");
        odd.concat()
    }

    #[test]
    fn garbage_in_any_key_counts_as_missing_and_is_named_once() {
        let store = Arc::new(MemoryStore::new());
        let mut looker = opened(&store, (0, 1), 2);
        looker.keep_lease(false).unwrap();
        assert!(looker.look_whole().unwrap().is_empty());
        let row = |slots: u32, meets: &[u32]| {
            let row = StoredRow {
                slots,
                meets: meets.iter().copied().collect(),
                ..StoredRow::default()
            };
            row_text(&row)
        };
        let record = |change: fn(&mut Record)| {
            let mut record = Record::founded([(0, 1), (1, 1)].into());
            change(&mut record);
            record_text(&record, 2)
        };
        let cases: Vec<(&str, Vec<u8>, &str)> = vec![
            ("group/row/1.1", b"{".to_vec(), "EOF"),
            (
                "group/row/1.2",
                row(3, &[]),
                "it is of 3 slots; there are 2",
            ),
            ("group/row/1.3", row(2, &[0, 2]), "slot 2; there are 2"),
            ("group/row/2.1", row(2, &[]), "slot 2; there are 2"),
            ("group/row/1.0", row(2, &[]), "'0' is no generation"),
            ("group/row/1.4294967296", row(2, &[]), "is no generation"),
            ("group/row/11", row(2, &[]), "not SLOT.GENERATION"),
            ("group/member/1.9", b"7".to_vec(), "invalid type"),
            ("group/leaves/1.1", b"[]".to_vec(), "invalid length"),
            ("group/over/1.1", b"2".to_vec(), "not the word of a rank"),
            ("group/over/1.2", Vec::new(), "not the word of a rank"),
            (
                "group/promise/x/1.1",
                b"{}".to_vec(),
                "no number of a proposal",
            ),
            (
                "group/promise/1/1.1",
                b"{\"last\":-1}".to_vec(),
                "invalid value",
            ),
            ("group/strange/1.1", Vec::new(), "no key of a group"),
            ("group/strange", Vec::new(), "no key of a group"),
            ("group/record", record(|it| it.epoch = 0), "view 0"),
            ("group/record", Vec::new(), ""),
            ("group/record", record(|it| it.epoch = u32::MAX), ""),
            ("group/record", record(|it| it.number = u64::MAX), ""),
        ];
        for (key, value, reason) in cases {
            let odd = told(&store, &mut looker, key, &value);
            let named = odd.contains(&format!("'{key}'")) && odd.contains(reason);
            assert!(named || reason.is_empty() && odd.is_empty(), "{key}: {odd}");
            assert_eq!(told(&store, &mut looker, key, &value), "", "{key}: once");
        }
        assert_eq!(looker.kept.record, None);
        assert!(looker.kept.rows.is_empty() && looker.kept.promises.is_empty());
        assert!(looker.kept.over.is_empty());
        // A key that is mended counts.
        assert_eq!(
            told(&store, &mut looker, "group/row/1.1", &row(2, &[0])),
            ""
        );
        assert_eq!(looker.kept.rows.len(), 1);
        let whole = record(|_| ());
        assert_eq!(told(&store, &mut looker, RECORD, &whole), "");
        assert_eq!(looker.kept.record.as_ref().map(|it| it.epoch), Some(1));
        assert!(looker.kept.members.contains((0, 1)));
    }

    #[test]
    fn a_record_of_an_earlier_view_shows_that_the_store_has_lost_its_data() {
        let store = Arc::new(MemoryStore::new());
        let mut looker = opened(&store, (0, 1), 2);
        let of = |epoch: u32| {
            let record = Record {
                epoch,
                ..Record::founded([(0, 1)].into())
            };
            record_text(&record, 2)
        };
        assert_eq!(told(&store, &mut looker, RECORD, &of(7)), "");
        let odd = told(&store, &mut looker, RECORD, &of(6));
        assert!(odd.contains("it is of view 6"), "{odd}");
        assert_eq!(
            looker.kept.record.as_ref().unwrap().epoch,
            7,
            "it stays in force"
        );
        // Then the store holds no record at all.
        store.remove(RECORD).unwrap();
        let next = looker.kept.record.clone().unwrap();
        assert_eq!(looker.replace(&next).unwrap(), Replaced::Missing);
    }

    #[test]
    fn a_look_finds_ended_leases_beside_that_of_a_dropped_rank() {
        let store = Arc::new(MemoryStore::new());
        let mut holders: Vec<GroupStore> =
            (0..4).map(|slot| opened(&store, (slot, 1), 5)).collect();
        for holder in &mut holders {
            holder.keep_lease(false).unwrap();
        }
        let mut looker = opened(&store, (4, 1), 5);
        let mut record = Record::founded((0..4).map(|slot| (slot, 1)).collect());
        record.members.remove(3);
        store.put(RECORD, &record_text(&record, 5)).unwrap();
        looker.look_whole().unwrap();
        let held = |looker: &mut GroupStore| -> Vec<u32> {
            looker.look(&LookAt::Members).unwrap();
            looker.kept.members.iter().map(|(who, _)| who.0).collect()
        };
        assert_eq!(held(&mut looker), [0, 1, 2, 3]);
        // One lease is gone, and it is not that of the dropped rank: the next count finds it.
        holders[1].end_lease();
        assert_eq!(held(&mut looker), [0, 1, 2]);
        holders[3].end_lease();
        assert_eq!(held(&mut looker), [0, 2]);
        // Two at once, and another that comes.
        holders[0].end_lease();
        holders[2].end_lease();
        holders[1].keep_lease(true).unwrap();
        assert_eq!(held(&mut looker), [1]);
        assert!(looker.kept.members.asks((1, 1)));
    }

    #[test]
    fn rows_that_were_forgotten_are_read_again_where_needed() {
        let store = Arc::new(MemoryStore::new());
        let mut looker = opened(&store, (0, 1), 3);
        let row = |takings: u32| {
            let row = StoredRow {
                slots: 3,
                takings,
                ..StoredRow::default()
            };
            row_text(&row)
        };
        for slot in 0..3 {
            store.put(&row_key((slot, 1)), &row(slot + 1)).unwrap();
            store
                .put(&promise_key(1, (slot, 1)), b"{\"last\":7}")
                .unwrap();
        }
        let takings = |looker: &GroupStore| -> Vec<u32> {
            let rows = looker.kept.rows.values();
            rows.map(|row| row.takings).collect()
        };
        looker.look(&LookAt::All).unwrap();
        assert_eq!(takings(&looker), [1, 2, 3]);
        assert!(looker.forget_rows() && !looker.forget_rows());
        assert_eq!(takings(&looker), [1], "the own one stays");
        assert!(looker.kept.promises.is_empty());
        // A row that was written before, by its name.
        let named = LookAt::Named([row_key((2, 1))].into());
        looker.look(&named).unwrap();
        assert_eq!(takings(&looker), [1, 3]);
        looker.look(&LookAt::All).unwrap();
        assert_eq!(takings(&looker), [1, 2, 3]);
        assert_eq!(looker.kept.promises.len(), 3);
    }

    #[test]
    fn a_look_at_named_keys_reads_those_that_were_not_asked_for_before() {
        let store = Arc::new(MemoryStore::new());
        let mut looker = opened(&store, (0, 1), 3);
        let named = |keys: &[String]| LookAt::Named(keys.iter().cloned().collect());
        let record = Record::founded([(0, 1), (1, 1), (2, 1)].into());
        store.put(RECORD, &record_text(&record, 3)).unwrap();
        let row = |takings: u32| {
            let row = StoredRow {
                slots: 3,
                takings,
                ..StoredRow::default()
            };
            row_text(&row)
        };
        looker.look(&LookAt::All).unwrap();
        store.put("group/row/1.1", &row(1)).unwrap();
        store.put("group/over/2.1", OVER).unwrap();
        looker.look(&named(&[])).unwrap();
        assert!(looker.kept.rows.is_empty() && looker.kept.over.is_empty());
        // Written before the last look, which has not asked for them.
        looker
            .look(&named(&[row_key((1, 1)), over_key((2, 1))]))
            .unwrap();
        assert_eq!(looker.kept.rows[&(1, 1)].takings, 1);
        assert!(looker.kept.over.contains(&(2, 1)));
        // A promise that was written between the proposal and the look that shows the proposal.
        let keep = record.slots();
        let proposal = crate::membership::rules::record::Proposal {
            keep,
            ..Default::default()
        };
        let open = record.propose(proposal).unwrap();
        store.put(RECORD, &record_text(&open, 3)).unwrap();
        store.put("group/promise/1/2.1", b"{\"last\":7}").unwrap();
        store.put("group/row/1.1", &row(2)).unwrap();
        looker.look(&named(&[row_key((1, 1))])).unwrap();
        assert!(looker.kept.promises.is_empty());
        let all = named(&[row_key((1, 1)), promise_key(1, (2, 1))]);
        looker.look(&all).unwrap();
        assert_eq!(looker.kept.promises[&(1, (2, 1))].last, Some(7));
        assert_eq!(looker.kept.rows[&(1, 1)].takings, 2);
        // A look at all keys also finds changes of keys that were not named.
        store.put("group/row/0.1", &row(3)).unwrap();
        looker.look(&all).unwrap();
        looker.look(&LookAt::All).unwrap();
        assert_eq!(looker.kept.rows[&(0, 1)].takings, 3);
    }

    #[test]
    fn a_look_keeps_only_the_processes_of_members_that_it_can_watch() {
        let store = Arc::new(MemoryStore::new());
        let mut looker = opened(&store, (0, 1), 4);
        let this = serde_json::to_value(Process::this()).unwrap();
        let mut elsewhere = this.clone();
        elsewhere["seen_from"] = "another machine".into();
        let mut beside = this.clone();
        beside["pid"] = 1.into();
        for (slot, process) in [(1, this), (2, elsewhere), (3, beside)] {
            let member = serde_json::json!({"process": process, "asks": false});
            let member = serde_json::to_vec(&member).unwrap();
            store.put(&member_key((slot, 1)), &member).unwrap();
        }
        assert!(looker.look_whole().unwrap().is_empty());
        let near = |slot| looker.kept.members.near((slot, 1)).is_some();
        assert_eq!([1, 2, 3].map(near), [false, false, true]);
        let beside = |slot| looker.kept.members.get((slot, 1)).unwrap().beside;
        assert_eq!([1, 2, 3].map(beside), [true, false, true]);
    }

    #[test]
    fn a_lease_is_taken_again_only_when_the_store_says_that_it_is_gone() {
        let store = Arc::new(MemoryStore::new());
        let mut own = GroupStore::new(
            Arc::clone(&store) as Arc<dyn Store>,
            (1, 2),
            2,
            Duration::from_millis(60),
            Process::this(),
        );
        own.keep_lease(true).unwrap();
        own.keep_lease(true).unwrap();
        assert_eq!(own.takings, 1);
        let mut other = opened(&store, (0, 1), 2);
        other.look_whole().unwrap();
        assert!(other.kept.members.asks((1, 2)));
        own.keep_lease(false).unwrap();
        assert_eq!(own.takings, 1, "what stands under it has changed");
        other.look_whole().unwrap();
        assert!(!other.kept.members.asks((1, 2)));
        // Not renewed in time.
        let start = Instant::now();
        while other.kept.members.contains((1, 2)) {
            assert!(
                start.elapsed() < Duration::from_secs(100),
                "it does not run out"
            );
            other.look_whole().unwrap();
        }
        own.keep_lease(false).unwrap();
        assert_eq!(own.takings, 2);
        own.end_lease();
        other.look_whole().unwrap();
        assert_eq!(other.kept.members.len(), 0);
    }

    #[test]
    fn a_holder_whose_key_another_has_changed_writes_it_again() {
        let store = Arc::new(MemoryStore::new());
        let shared = Arc::clone(&store) as Arc<dyn Store>;
        // Renewed after a third of this.
        let mut own = GroupStore::new(shared, (1, 2), 2, Duration::from_secs(1), Process::this());
        own.keep_lease(false).unwrap();
        store.put("group/member/1.2", b"7").unwrap();
        let mut other = opened(&store, (0, 1), 2);
        other.look_whole().unwrap();
        assert!(!other.kept.members.contains((1, 2)));
        let start = Instant::now();
        while !other.kept.members.contains((1, 2)) {
            let waited = start.elapsed();
            assert!(waited < Duration::from_secs(100), "it is not written again");
            std::thread::sleep(Duration::from_millis(10));
            own.keep_lease(false).unwrap();
            other.look_whole().unwrap();
        }
    }

    #[test]
    fn a_rank_takes_its_member_key_back_from_another_lease_and_keeps_it() {
        let store = Arc::new(MemoryStore::new());
        let ttl = Duration::from_secs(1);
        let mut own = GroupStore::new(
            Arc::clone(&store) as Arc<dyn Store>,
            (1, 2),
            2,
            ttl,
            Process::this(),
        );
        own.keep_lease(false).unwrap();
        let member = "group/member/1.2";
        let other = store.take_lease("other", b"", TTL).unwrap().unwrap();
        assert!(store.put_leased(member, b"7", other).unwrap());
        let start = Instant::now();
        while store.try_get(member).unwrap().as_deref() == Some(b"7") {
            assert!(start.elapsed() < Duration::from_secs(100), "not taken back");
            std::thread::sleep(Duration::from_millis(10));
            own.keep_lease(false).unwrap();
        }
        assert_eq!(own.takings, 1, "its own lease lived all the time");
        store.end_lease("other", other).unwrap();
        assert!(store.try_get(member).unwrap().is_some());
    }

    #[test]
    fn a_member_key_that_another_has_set_first_is_named_and_removed() {
        let store = Arc::new(MemoryStore::new());
        let mut own = opened(&store, (1, 2), 2);
        for (round, value) in [(1, &b"7"[..]), (2, b"")] {
            // With and without a lease of its own.
            let other = store.take_lease("other", b"", TTL).unwrap().unwrap();
            match round {
                1 => assert!(store.put_leased("group/member/1.2", value, other).unwrap()),
                _ => store.put("group/member/1.2", value).unwrap(),
            }
            own.keep_lease(false).unwrap();
            assert_eq!(own.takings, round - 1, "somebody has the key");
            own.keep_lease(false).unwrap();
            assert_eq!(own.takings, round);
            store.end_lease("other", other).unwrap();
            let odd = own.look(&LookAt::All).unwrap();
            let named = "'group/member/1.2' is set and is not of this rank's lease";
            assert_eq!(
                odd.iter().filter(|it| it.starts_with(named)).count(),
                1,
                "{odd:?}"
            );
            assert!(own.kept.members.contains((1, 2)));
            // The next round.
            own.end_lease();
            own.kept.told.clear();
        }
    }

    #[test]
    fn what_the_store_takes_is_measured_by_a_few_calls_at_the_start() {
        let second = Duration::from_secs(1);
        let bounds = GroupConfig::default().bounds(second, second).unwrap();
        let measured = opened(&Arc::new(MemoryStore::new()), (0, 1), 2)
            .enter(&bounds)
            .unwrap();
        assert_eq!(measured.calls, 4 + LOOKS);
    }

    #[test]
    fn garbage_in_the_bounds_is_written_again_by_a_member_or_a_newcomer() {
        let memory = Arc::new(MemoryStore::new());
        let raw = Arc::clone(&memory) as Arc<dyn Store>;
        let store: Arc<dyn Store> = Arc::new(Records::new(raw, "run").unwrap());
        let opened = |own| GroupStore::new(Arc::clone(&store), own, 9, TTL, Process::this());
        let second = Duration::from_secs(1);
        let hasty = GroupConfig::default().with_found_bound(Some(Duration::ZERO));
        let bounds = hasty.bounds(second, second).unwrap();
        let mut there = opened((0, 1));
        there.enter(&bounds).unwrap();
        let written = memory.try_get(CONFIG).unwrap();
        let mut slots = 1..;
        let mut comes = || opened((slots.next().unwrap(), 1)).enter(&bounds);
        let cut = written.as_ref().map(|text| &text[..text.len() - 1]);
        for garbage in [&b"no record"[..], b"", cut.unwrap()] {
            // No rank holds a lease.
            memory.put(CONFIG, garbage).unwrap();
            comes().unwrap();
            assert_eq!(memory.try_get(CONFIG).unwrap(), written);
            // One rank holds a lease, and does not look.
            there.keep_lease(false).unwrap();
            memory.put(CONFIG, garbage).unwrap();
            let error = comes().unwrap_err().to_string();
            let named = "invalid record 'group/config' of the group: ";
            assert!(error.starts_with(named), "{error}");
            assert!(error.contains("has written it again within"), "{error}");
            for times in [1, 0] {
                let odd = there.look(&LookAt::All).unwrap();
                let named = odd.iter().filter(|error| error.contains("'group/config'"));
                assert_eq!(named.count(), times, "{odd:?}");
            }
            there.mend_bounds().unwrap();
            assert_eq!(memory.try_get(CONFIG).unwrap(), written);
            comes().unwrap();
            assert_eq!(there.look(&LookAt::All).unwrap(), [""; 0]);
            there.kept.told.clear();
            there.end_lease();
        }
    }

    #[test]
    fn a_generation_has_one_group_and_all_have_the_same_bounds() {
        let store = Arc::new(MemoryStore::new());
        let second = Duration::from_secs(1);
        let bounds = |config: GroupConfig| config.bounds(second, second).unwrap();
        let usual = bounds(GroupConfig::default());
        let mut one = opened(&store, (1, 2), 2);
        one.enter(&usual).unwrap();
        let error = one.enter(&usual).unwrap_err().to_string();
        assert!(
            error.starts_with("generation 2 of rank 1 has had its group"),
            "{error}"
        );
        let other = GroupConfig::default().with_lease_ttl(Duration::from_secs(3));
        let error = opened(&store, (0, 1), 2).enter(&bounds(other)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("lease_ttl 3s") && error.contains("lease_ttl 2s"),
            "{error}"
        );
    }
}
