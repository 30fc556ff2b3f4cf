//! The looks of a rank: what it asks the store for, and what it makes of the answer.

mod lost;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use membership_rules::anew::Place;
use membership_rules::record::{RankGeneration, Record};
use rendezvous::{Changed, Entry, MAX_LOOK, Process, Store, StoreError};

use super::calls::Calls;
use super::kept::Kept;
use crate::membership::config::Bounds;
use crate::membership::holders::Holder;
use crate::membership::stored::{
    CONFIG, GROUP, MEMBERS, Member, OVER, PROMISES, RECORD, ROWS, StoredRow, Unreadable,
    member_key, parse, parse_record, parse_row, promise_key, rank_generation, row_key,
};

/// What a record that cannot be used means for the group, and how the operator mends it.
const MENDS: &str = "Calls go on in the view that is, and no view changes until that key holds a record of the group again. Whoever runs \
                     the store puts back the last value that was one, or removes the key: then the ranks write it anew";

/// What one look asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::membership) enum LookAt {
    /// How many ranks hold their leases, and which ranks if that number has changed.
    Members,
    /// The record, the newcomers, and the keys of this set. A rank that only has to promise in a change reads these.
    Named(BTreeSet<String>),
    /// All keys that have changed. A rank that proposes and commits makes such looks.
    All,
}

/// What one generation reads of the store, and what it keeps of that.
#[derive(Debug)]
pub(in crate::membership) struct Reader {
    own: RankGeneration,
    slots: u32,
    process: Process,
    calls: Calls,
    kept: Kept,
    /// Reports for the next look.
    notes: Vec<String>,
    /// The bounds of this rank, as text; all ranks write the same.
    bounds: Vec<u8>,
    /// The store holds other bounds than this rank.
    bounds_differ: bool,
    /// Something has shown that the store may have lost the record.
    doubts: bool,
    /// The value under this rank's `taken` key. Another process with the same slot and generation has another value.
    token: Vec<u8>,
    /// Another process has the `taken` key of this rank.
    namesake: bool,
}

impl Reader {
    pub(super) fn new(calls: Calls, own: RankGeneration, slots: u32, process: Process) -> Self {
        Self {
            own,
            slots,
            process,
            calls,
            kept: Kept::default(),
            notes: Vec::new(),
            bounds: Vec::new(),
            bounds_differ: false,
            doubts: false,
            token: format!("{:016x}", fastrand::u64(..)).into_bytes(),
            namesake: false,
        }
    }

    pub(super) fn own(&self) -> RankGeneration {
        self.own
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Returns the bounds of this rank as text. They are empty for a reader that is no rank.
    pub(super) fn bounds(&self) -> &[u8] {
        &self.bounds
    }

    pub(super) fn set_bounds(&mut self, bounds: Vec<u8>) {
        self.bounds = bounds;
    }

    /// Returns the bounds that are to be written again, if a look has found others in the store since the last call.
    pub(super) fn take_bounds_to_mend(&mut self) -> Option<Vec<u8>> {
        let differ = std::mem::take(&mut self.bounds_differ);
        (differ && !self.bounds.is_empty()).then(|| self.bounds.clone())
    }

    /// Returns the value under this rank's `taken` key.
    pub(super) fn token(&self) -> &[u8] {
        &self.token
    }

    /// Returns what this rank has read.
    pub(in crate::membership) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Returns the time of the slowest call since the last time that this was asked. [`Duration::MAX`] if a call has failed.
    pub(super) fn take_slowest(&mut self) -> Duration {
        self.calls.take_slowest()
    }

    /// Makes one call within the bound that the pace of the store gives.
    pub(super) fn call<T>(
        &mut self,
        call: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.calls.call(call)
    }

    /// Makes one look. If one rank changes two keys one after the other, a look that asks for both and sees the second also sees
    /// the first. Returns reports on keys that cannot be read.
    pub(in crate::membership) fn look(&mut self, at: &LookAt) -> Result<Vec<String>, StoreError> {
        let mut odd = std::mem::take(&mut self.notes);
        match at {
            LookAt::Named(named) if named.len() < MAX_LOOK && self.kept.losing.is_empty() => {
                self.look_at_named(named, &mut odd)?
            }
            LookAt::Named(_) | LookAt::All => self.look_at_all(&mut odd)?,
            LookAt::Members if self.kept.losing.is_empty() => self.look_at_members(&mut odd)?,
            LookAt::Members => {
                self.look_at_members(&mut odd)?;
                self.look_at_all(&mut odd)?;
            }
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

    /// Asks for the record, for the names of newcomers, and for the keys in `named`.
    fn look_at_named(
        &mut self,
        named: &BTreeSet<String>,
        odd: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        let kept = &self.kept;
        // A key that was not named at the last look is known as of the last look at all keys.
        let (new, known): (Vec<&str>, Vec<&str>) = named
            .iter()
            .map(String::as_str)
            .partition(|&key| !kept.named.contains(key) && kept.since != kept.since_all);
        let (promises, new): (Vec<&str>, Vec<&str>) =
            new.into_iter().partition(|key| key.starts_with(PROMISES));
        let since = if promises.is_empty() {
            kept.since
        } else {
            kept.since.min(kept.since_number)
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

    /// Keeps the answer to a look.
    fn learn(&mut self, found: Changed, odd: &mut Vec<String>) {
        let (since, number) = (self.kept.since, self.number());
        if found.revision < since {
            odd.push(format!(
                "the store is at revision {}, and was at {since}: it has lost what it held. Its ranks write the group's record anew \
                 when all of them have said which one they had; no view changes until then",
                found.revision
            ));
            self.doubts = true;
            self.kept.count = None;
            self.kept.since_all = 0;
        }
        self.kept.since = found.revision;
        self.keep_all(found, odd);
        if self.number() != number {
            self.kept.since_number = since;
        }
    }

    /// Keeps the record that a watch delivered, unless a look was faster. Returns a report if the record cannot be read.
    pub(in crate::membership) fn take_down(&mut self, entry: &Entry) -> Option<String> {
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
        match self.keep_record(told, &entry.value) {
            Ok(()) => {
                self.kept.told.remove(&entry.key);
                self.find();
            }
            Err(reason) => self.odd(&entry.key, &reason, &mut odd),
        }
        if self.number() != number {
            self.kept.since_number = self.kept.since;
        }
        odd.pop()
    }

    /// Keeps the record that was read from `text`, unless this rank keeps one of a later view or proposal.
    fn keep_record(&mut self, read: Result<Record, Unreadable>, text: &[u8]) -> Result<(), String> {
        let record = read.map_err(|error| error.to_string())?;
        let newest = self.kept.record.as_ref();
        if newest.is_some_and(|newest| Place::of(newest) > Place::of(&record)) {
            let Place { epoch, number } = Place::of(&record);
            return Err(format!(
                "it is of view {epoch} and proposal {number}, and this rank has had a later one: the store has lost what it held"
            ));
        }
        self.kept.is_new = true;
        let number = record.number;
        self.kept.promises.retain(|(of, _), _| *of >= number);
        self.kept.record = Some(Arc::new(record));
        text.clone_into(&mut self.kept.text);
        Ok(())
    }

    /// Keeps `record`, which this rank has written as `text`.
    pub(super) fn has_written(&mut self, record: &Record, text: Vec<u8>) {
        self.kept.record = Some(Arc::new(record.clone()));
        self.kept.is_new = true;
        self.kept.text = text;
    }

    /// Keeps the row of this rank, which this rank has written.
    pub(in crate::membership) fn keep_own_row(&mut self, row: Arc<StoredRow>) {
        self.kept.rows.insert(self.own, row);
    }

    /// Notes that a view has come, so that [`Reader::drop_kept`] forgets what is over.
    pub(in crate::membership) fn note_view(&mut self) {
        self.kept.is_new = true;
    }

    /// Has the next look report `note`, unless a note about the same was reported before.
    pub(super) fn note_once(&mut self, about: String, note: String) {
        if self.kept.told.insert(about) {
            self.notes.push(note);
        }
    }

    /// Forgets what was reported, so that it is reported again.
    #[cfg(test)]
    pub(super) fn forget_told(&mut self) {
        self.kept.told.clear();
    }

    /// Returns the number of the newest proposal.
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
        let mut count = self.call(|store| store.count(MEMBERS))?;
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
            self.read_listed(&held, odd)?;
            // This rank keeps the leases of the list. If the list has missed a lease for a moment, the next count differs from the kept
            // one.
            count.keys = names.len() as u64;
        }
        self.kept.count = Some(count);
        Ok(())
    }

    /// Reads the leases that the list names and that this rank does not keep. In a directory a lease whose holder was slow may be missing
    /// from one list, and then stand there again with the same revision. No look for changes finds such a lease.
    fn read_listed(
        &mut self,
        held: &BTreeSet<RankGeneration>,
        odd: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        let members = &self.kept.members;
        let missing = held.iter().filter(|who| !members.contains(**who));
        let missing: Vec<String> = missing.map(|who| member_key(*who)).collect();
        for some in missing.chunks(MAX_LOOK) {
            let keys: Vec<&str> = some.iter().map(String::as_str).collect();
            let found = self.call(|store| store.changed_since(&keys, None, 0))?;
            self.keep_all(found, odd);
        }
        Ok(())
    }

    /// Forgets the leases of dropped ranks if `held` leases are left without them. Then no list of names is needed. If a member's lease is
    /// missing instead, the count differs again when the leases of the dropped ranks go.
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
            odd.push(if key.contains(RECORD) {
                format!("'{RECORD}' cannot be used: {reason}. {MENDS}")
            } else {
                format!("'{key}' counts as missing: {reason}")
            });
        }
    }

    /// Keeps the value of one key. The function is long because each kind of key has its arm.
    fn keep(&mut self, entry: &Entry) -> Result<(), String> {
        let names: Vec<&str> = entry.key.split('/').skip(1).collect();
        let kept = &mut self.kept;
        match names[..] {
            ["taken", _] => return Ok(()),
            ["config"] => {
                // A reader that is no rank has no bounds.
                self.bounds_differ = if self.bounds.is_empty() {
                    !Bounds::are_in(&entry.value)
                } else {
                    entry.value != self.bounds
                };
                if self.bounds_differ {
                    return Err("they are not the bounds of this group".to_owned());
                }
            }
            // A watch may have delivered this record before this look.
            ["record"] if kept.record.is_some() && entry.value == kept.text => self.find(),
            ["record"] => {
                let read = parse_record(&entry.value, self.slots);
                let older = read.as_ref().ok().filter(|read| {
                    let newest = kept.record.as_deref();
                    newest.is_some_and(|newest| Place::of(newest) > Place::of(read))
                });
                if let Some(older) = older.cloned() {
                    self.stands_behind(&older, &entry.value);
                }
                self.keep_record(read, &entry.value)?;
                self.find();
            }
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
                        let Member {
                            process,
                            asks,
                            lost,
                        } = parse(&entry.value)?;
                        if lost {
                            kept.losing.insert(who);
                        } else {
                            kept.losing.remove(&who);
                        }
                        let beside = process.is_beside(&self.process);
                        let near = beside && process != self.process;
                        let holder = Holder { beside, asks };
                        kept.members.insert(who, holder, near.then_some(process));
                        self.see_generation(who);
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
                    "had" => {
                        kept.words.insert(who, parse(&entry.value)?);
                        self.doubt();
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
    pub(in crate::membership) fn drop_kept(
        &mut self,
        is_over: impl Fn(RankGeneration) -> bool,
    ) -> bool {
        let kept = &mut self.kept;
        if !std::mem::take(&mut kept.is_new) {
            return false;
        }
        kept.words.retain(|who| !is_over(who));
        kept.losing.retain(|who| !is_over(*who));
        kept.rows.retain(|who, _| !is_over(*who));
        kept.goodbyes.retain(|who, _| !is_over(*who));
        kept.over.retain(|who| !is_over(*who));
        true
    }

    /// Forgets the promise of `who` for proposal `number`, which is invalid for `reason`. The next look reports that once.
    pub(in crate::membership) fn refuse_promise(
        &mut self,
        number: u64,
        who: RankGeneration,
        reason: &str,
    ) {
        self.kept.promises.remove(&(number, who));
        let mut odd = Vec::new();
        self.odd(&promise_key(number, who), reason, &mut odd);
        self.notes.append(&mut odd);
    }

    /// Forgets the rows of other ranks and the promises. A rank reads them while it acts, and does not keep them for the next
    /// change: those of 1,024 ranks take 300 KB. The next look at all keys reads them again, and a look at named keys reads the
    /// named ones. Returns whether any were kept.
    pub(in crate::membership) fn forget_rows(&mut self) -> bool {
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
}
