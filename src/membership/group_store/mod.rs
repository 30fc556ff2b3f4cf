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
//! group/had/S.G           the newest record that it has had, while the store has lost it
//! generation/S/G          generation G of slot S was drawn
//! ```
//!
//! A key of another form, or with a value that cannot be read, counts as missing and is reported once, by name. This module repeats
//! no call: the thread that follows the rules looks again, and knows how long each call took.

mod enter;
mod kept;
mod keys;
mod look;
mod lost;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::clocks::Pace;
use membership_rules::record::{Promise, RankGeneration, Record};
use rendezvous::{LeaseId, Process, Store, StoreError, Timed};

use super::stored::{StoredRow, parse_record, record_text, row_text};
use crate::team::Sweep;

pub(super) use enter::PATIENCE;
pub use enter::newest_view;
use kept::text;
pub(super) use kept::{Goodbye, Kept, Member};
use keys::key;
#[cfg(any(test, feature = "sim"))]
pub(super) use keys::member_key;
pub(super) use keys::{
    GOODBYES, PROMISES, RECORD, all_words, goodbye_key, over_key, promise_key, row_key, say_over,
    words_of,
};
pub(super) use look::LookAt;
pub(super) use lost::{Had, named};

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
    /// Something has shown that the store may have lost the record.
    doubts: bool,
    /// The value of this rank's place: another process of the same name has another one.
    token: Vec<u8>,
    /// Another process has the place.
    namesake: bool,
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
            doubts: false,
            namesake: false,
            token: format!("{:016x}", fastrand::u64(..)).into_bytes(),
        }
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
            lost: self.kept.lost.is_some(),
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
                    let stands = self.call(|store| store.renew_lease(&key, id))?;
                    // A directory that was removed and is there again takes the key anew, and has lost the record.
                    self.doubts |= !stands;
                    stands || self.call(|store| store.put_leased(&key, &value, id))?
                }
            };
            if held {
                self.value = value;
                self.lease = Some((id, if changed { renewed } else { asked }));
                return Ok(());
            }
            tracing::warn!("the lease '{key}' is gone");
            self.lease = None;
            self.doubts = true;
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
            None => {
                self.is_missing();
                Ok(Replaced::Missing)
            }
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
