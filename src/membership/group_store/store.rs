//! The lease of one generation, and the keys that the generation writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::clocks::Pace;
use membership_rules::record::{Promise, RankGeneration, Record};
use rendezvous::{LeaseId, Process, Store, StoreError};

use super::calls::Calls;
use super::kept::Kept;
use super::look::Reader;
use crate::membership::stored::{
    Goodbye, Member, RECORD, StoredRow, goodbye_key, key, parse_record, promise_key, record_text,
    row_key, row_text, say_over, text,
};
use crate::team::Sweep;

/// One generation in the store: what it reads, its lease, and what it writes.
#[derive(Debug)]
pub(in crate::membership) struct GroupStore {
    reader: Reader,
    lease: Option<(LeaseId, Instant)>,
    /// The value under the lease.
    value: Vec<u8>,
    takings: u32,
}

impl GroupStore {
    pub(in crate::membership) fn new(
        store: Arc<dyn Store>,
        own: RankGeneration,
        slots: u32,
        ttl: Duration,
        process: Process,
    ) -> Self {
        Self {
            reader: Reader::new(Calls::new(store, ttl), own, slots, process),
            lease: None,
            value: Vec::new(),
            takings: 0,
        }
    }

    /// Returns what reads the store for this generation.
    pub(in crate::membership) fn reader(&self) -> &Reader {
        &self.reader
    }

    pub(in crate::membership) fn reader_mut(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// Returns what this generation has read.
    pub(in crate::membership) fn kept(&self) -> &Kept {
        self.reader.kept()
    }

    /// Returns the store and the key for the thread that waits for the record.
    pub(in crate::membership) fn watched(&self) -> (Arc<dyn Store>, &'static str) {
        (Arc::clone(self.reader.calls().opened()), RECORD)
    }

    /// Returns the measured pace of the store's answers to this rank.
    pub(in crate::membership) fn pace(&self) -> &Pace {
        self.reader.calls().pace()
    }

    /// Returns how often this rank has taken its lease.
    pub(in crate::membership) fn takings(&self) -> u32 {
        self.takings
    }

    fn call<T>(
        &mut self,
        call: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.reader.call(call)
    }

    /// Returns the time of the slowest call since the last time that this was asked. [`Duration::MAX`] if a call has failed.
    pub(in crate::membership) fn take_slowest(&mut self) -> Duration {
        self.reader.take_slowest()
    }

    /// Looks for the record if something has shown that the store may have lost it: a lease of this rank, or the revision of the store.
    pub(in crate::membership) fn check_record(&mut self) -> Result<(), StoreError> {
        self.reader.check_record(self.takings > 1)
    }

    /// Takes the lease if this rank has none, and renews it when a third of its time to live has passed. The rank takes a lease
    /// again only if the store says that it is gone.
    pub(in crate::membership) fn keep_lease(&mut self, asks: bool) -> Result<(), StoreError> {
        let member = Member {
            process: self.reader.process().clone(),
            asks,
            lost: self.kept().lost.is_some(),
        };
        let value = serde_json::to_vec(&member).expect("plain words");
        let key = key("member", self.reader.own());
        let (asked, ttl) = (Instant::now(), self.reader.calls().ttl());
        if let Some((id, renewed)) = self.lease {
            let changed = value != self.value;
            let held = match changed {
                true => self.call(|store| store.put_leased(&key, &value, id))?,
                false if asked.duration_since(renewed) < ttl / 3 => return Ok(()),
                // `false` also if another writer has changed the key: while the lease lives, this rank writes the key again.
                false => {
                    let stands = self.call(|store| store.renew_lease(&key, id))?;
                    // If a directory was removed and is there again, it has lost the record. This rank then takes its key anew.
                    if !stands {
                        self.reader.suspect();
                    }
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
            self.reader.suspect();
        }
        match self.call(|store| store.take_lease(&key, &value, ttl))? {
            Some(id) => {
                self.takings += 1;
                self.lease = Some((id, asked));
                self.value = value;
            }
            // Only this rank writes this name. So the value is from another writer, or from a lease whose answer this rank did not get.
            None => {
                self.reader.note_once(
                    format!("{key} without a lease"),
                    format!("'{key}' is set and is not of this rank's lease: it is removed, and the lease is taken after that"),
                );
                self.call(|store| store.remove(&key))?;
            }
        }
        Ok(())
    }

    /// Gives the lease back.
    pub(in crate::membership) fn end_lease(&mut self) {
        if let Some((id, _)) = self.lease.take() {
            let key = key("member", self.reader.own());
            if let Err(error) = self.call(|store| store.end_lease(&key, id)) {
                tracing::warn!("the lease '{key}' is left to run out: {error}");
            }
        }
    }

    /// Writes the first record. Returns whether this rank did; if not, the caller looks again.
    pub(in crate::membership) fn found(&mut self, record: &Record) -> Result<bool, StoreError> {
        let text = record_text(record, self.reader.slots());
        self.call(|store| store.compare_and_set(RECORD, None, &text))
    }

    /// Puts `new` in the place of the record that was read last. If the result is not [`Replaced::Done`], or is an error, the caller looks
    /// again.
    pub(in crate::membership) fn replace(&mut self, new: &Record) -> Result<Replaced, StoreError> {
        let text = record_text(new, self.reader.slots());
        let old = self.kept().text.clone();
        if self.call(|store| store.compare_and_set(RECORD, Some(&old), &text))? {
            self.reader.has_written(new, text);
            return Ok(Replaced::Done);
        }
        let found = match self.call(|store| store.try_get(RECORD)) {
            Err(error) if error.is_unreadable() => return Ok(Replaced::Unreadable),
            found => found?,
        };
        match found {
            Some(text) if parse_record(&text, self.reader.slots()).is_err() => {
                Ok(Replaced::Unreadable)
            }
            Some(_) => Ok(Replaced::Changed),
            None => {
                self.reader.is_missing();
                Ok(Replaced::Missing)
            }
        }
    }

    /// Wakes all ranks by a change of the record: one more has asked.
    pub(in crate::membership) fn wake(&mut self, record: &Record) -> Result<(), StoreError> {
        let woken = Record {
            asked: record.asked.wrapping_add(1),
            ..record.clone()
        };
        self.replace(&woken).map(drop)
    }

    pub(in crate::membership) fn promise(
        &mut self,
        number: u64,
        promise: &Promise,
    ) -> Result<(), StoreError> {
        let (key, text) = (promise_key(number, self.reader.own()), text(promise));
        self.call(|store| store.put(&key, &text))
    }

    /// Sets a key that is not of a group.
    pub(in crate::membership) fn put(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.call(|store| store.put(key, value))
    }

    pub(in crate::membership) fn leave(&mut self, goodbye: Goodbye) -> Result<(), StoreError> {
        let (key, text) = (goodbye_key(self.reader.own()), text(&goodbye));
        self.call(|store| store.put(&key, &text))
    }

    pub(in crate::membership) fn tell(&mut self, row: &StoredRow) -> Result<(), StoreError> {
        let (key, text) = (row_key(self.reader.own()), row_text(row));
        self.call(|store| store.put(&key, &text))
    }

    /// Writes that this generation has ended, so that the others need not wait for its lease to run out.
    pub(in crate::membership) fn say_over(&mut self) -> Result<(), StoreError> {
        let own = self.reader.own();
        self.call(|store| say_over(store, own))
    }

    /// Makes the next call of `sweep`.
    pub(in crate::membership) fn sweep(
        &mut self,
        sweep: &mut Sweep,
        is_over: &dyn Fn(u32, u32) -> bool,
    ) -> Result<(), StoreError> {
        self.call(|store| sweep.step(store, is_over))
    }
}

/// How an attempt to replace the record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::membership) enum Replaced {
    Done,
    /// Another rank was faster.
    Changed,
    /// The store holds no record.
    Missing,
    /// The record in the store cannot be read. Looks report that.
    Unreadable,
}
