//! What a rank writes into a store that has lost the record, or is back with an earlier one, and what it reads of the others.

use std::collections::BTreeMap;
use std::time::Instant;

use membership_rules::anew::Place;
use membership_rules::record::{RankGeneration, Record};
use rendezvous::StoreError;

use super::Reader;
use crate::membership::generations::note_generation;
use crate::membership::group_store::kept::{Lost, Words};
use crate::membership::stored::{
    CONFIG, HAD, Had, RECORD, had_key, key, parse_record, record_text, text,
};

impl Reader {
    /// Notes that the record is lost: the store has none, or one that is older than this rank's record. From now on only what this rank
    /// knows of itself and of ranks that have ended counts.
    fn lose(&mut self, stands: Option<(Place, Vec<u8>)>) {
        let kept = &mut self.kept;
        if let Some(lost) = &mut kept.lost {
            lost.stands = stands;
            return;
        }
        let now = Instant::now();
        kept.lost = Some(Lost {
            since: now,
            touched: true,
            stands,
            noticed: false,
            restored: false,
            hush: None,
            turned: now,
            told: false,
        });
        kept.rows.clear();
        kept.promises.clear();
        kept.goodbyes.clear();
        kept.named.clear();
        // The words are read again. A word counts when it has changed since its first reading.
        kept.words = Words::default();
        (kept.since_all, kept.since_number, kept.count) = (0, 0, None);
    }

    /// Returns what this rank knows of the loss, while the record is lost.
    pub(in crate::membership) fn lost_mut(&mut self) -> Option<&mut Lost> {
        self.kept.lost.as_mut()
    }

    /// Notes that a look has found an earlier record, so the store has lost a later one.
    pub(super) fn stands_behind(&mut self, record: &Record, text: &[u8]) {
        self.lose(Some((Place::of(record), text.to_vec())));
    }

    /// Notes that the record may be lost: another rank has removed something, or says that the record is lost.
    pub(in crate::membership) fn doubt(&mut self) {
        self.doubts |= self.kept.lost.is_none();
    }

    /// Returns whether any rank says that the store has lost a record that it had.
    pub(in crate::membership) fn is_told_of_lost(&mut self) -> Result<bool, StoreError> {
        Ok(!self.call(|store| store.list(HAD))?.is_empty())
    }

    /// Notes that the store may have lost the record, whatever this rank knows of that. [`Reader::check_record`] then looks.
    pub(in crate::membership::group_store) fn suspect(&mut self) {
        self.doubts = true;
    }

    /// Looks for the record if something has shown that the store may have lost it: a lease of this rank, or the revision of the store.
    /// `again`: this rank has taken its lease more than once.
    pub(in crate::membership::group_store) fn check_record(
        &mut self,
        again: bool,
    ) -> Result<(), StoreError> {
        if !self.doubts {
            return Ok(());
        }
        if self.kept.record.is_none() {
            // The store may have lost everything. A newcomer that has read nothing yet writes its generation and its place again.
            if again {
                let own = self.own;
                self.call(|store| note_generation(store, own))?;
                self.take_place()?;
            }
            self.doubts = false;
            return Ok(());
        }
        match self.call(|store| store.try_get(RECORD)) {
            Ok(None) => self.lose(None),
            // If the record cannot be read, a look reports that.
            Ok(Some(text)) => {
                if let Ok(stands) = parse_record(&text, self.slots) {
                    self.take_over_newest(&stands, text);
                }
            }
            Err(error) if error.is_unreadable() => {}
            Err(error) => return Err(error),
        }
        self.doubts = false;
        Ok(())
    }

    /// Notes that this rank found no record when it was about to replace it.
    pub(in crate::membership::group_store) fn is_missing(&mut self) {
        self.lose(None);
    }

    /// Writes what only this rank, or any member, can bring back: the bounds, this rank's place, and the newest generation that it knows of
    /// each slot, so that no generation is drawn twice.
    pub(in crate::membership) fn restore(&mut self) -> Result<(), StoreError> {
        let (own, bounds) = (self.own, self.bounds.clone());
        if !bounds.is_empty() {
            self.call(|store| store.compare_and_set(CONFIG, None, &bounds))?;
        }
        let mut newest: BTreeMap<u32, u32> = self.kept.seen.clone();
        let mut note = |(slot, generation): RankGeneration| {
            let newest = newest.entry(slot).or_default();
            *newest = generation.max(*newest);
        };
        if let Some(record) = &self.kept.record {
            record.admitted.iter().for_each(&mut note);
            record.members.iter().for_each(&mut note);
        }
        note(own);
        for of in newest {
            self.call(|store| note_generation(store, of))?;
        }
        self.take_place()
    }

    /// Takes the `taken` key of this rank again. If another process has it, [`Reader::has_namesake`] says so.
    fn take_place(&mut self) -> Result<(), StoreError> {
        let (key, token) = (key("taken", self.own), self.token.clone());
        let taken = self.call(|store| store.compare_and_set(&key, None, &token))?;
        let stands = if taken {
            return Ok(());
        } else {
            self.call(|store| store.try_get(&key))?
        };
        self.namesake = stands.is_some_and(|stands| stands != token);
        Ok(())
    }

    /// Returns whether another process has drawn this rank's generation, from a store that had lost the generations drawn before, and has
    /// its `taken` key.
    pub(in crate::membership) fn has_namesake(&self) -> bool {
        self.namesake
    }

    /// Returns the text of the newest record that this rank has had.
    pub(in crate::membership) fn had_text(&self) -> String {
        String::from_utf8_lossy(&self.kept.text).into_owned()
    }

    /// Takes over the newest record that a rank says to have had. If the record that `stands` in the store is earlier than this rank's,
    /// notes the loss.
    fn take_over_newest(&mut self, stands: &Record, text: Vec<u8>) {
        if let Some(who) = self.kept.words.newest() {
            self.take_over(who);
        }
        let own = self.kept.record.as_deref().map(Place::of);
        if own > Some(Place::of(stands)) {
            self.lose(Some((Place::of(stands), text)));
        }
    }

    /// Takes over the record that `who` says to have had, if that record is later than this rank's. Returns whether it was.
    pub(in crate::membership) fn take_over(&mut self, who: RankGeneration) -> bool {
        let Some(had) = self.kept.words.get(who) else {
            return false;
        };
        let text = had.record.clone().into_bytes();
        let later = parse_record(&text, self.slots).ok().filter(|later| {
            let newest = self.kept.record.as_deref();
            newest.is_none_or(|newest| Place::of(newest) < Place::of(later))
        });
        later.is_some_and(|later| self.keep_record(Ok(later), &text).is_ok())
    }

    /// Writes which record this rank has had.
    pub(in crate::membership) fn say_had(&mut self, had: &Had) -> Result<(), StoreError> {
        let (key, text) = (had_key(self.own), text(had));
        self.call(|store| store.put(&key, &text))
    }

    /// Writes `new` into the store if the record there is still missing, or still the earlier one that was read. Returns whether this rank
    /// did.
    pub(in crate::membership) fn write_anew(&mut self, new: &Record) -> Result<bool, StoreError> {
        let text = record_text(new, self.slots);
        let stands = self.kept.lost.as_ref().and_then(|lost| lost.stands.clone());
        let expected = stands.as_ref().map(|(_, text)| text.as_slice());
        self.call(|store| store.compare_and_set(RECORD, expected, &text))
    }

    /// Reads the record that stands in the store. A look does not show that a record was removed.
    pub(in crate::membership) fn read_lost(&mut self) -> Result<(), StoreError> {
        let found = match self.call(|store| store.try_get(RECORD)) {
            Err(error) if error.is_unreadable() => return Ok(()),
            found => found?,
        };
        let Some(text) = found else {
            self.lose(None);
            return Ok(());
        };
        let own = self.kept.record.as_deref().map(Place::of);
        match parse_record(&text, self.slots) {
            Ok(record) if Some(Place::of(&record)) >= own => {
                // A look has reported why this record is not to be kept, if so.
                let _ = self.keep_record(Ok(record), &text);
                self.kept.since_number = self.kept.since;
                self.find();
            }
            Ok(record) => self.lose(Some((Place::of(&record), text))),
            Err(_) => {}
        }
        Ok(())
    }

    /// Notes that the record which this rank follows is in the store again. All clocks against others start anew, as after a gap.
    pub(super) fn find(&mut self) {
        if self.kept.lost.take().is_some() {
            self.calls.fail();
            self.kept.is_new = true;
            self.kept.found_again = true;
        }
    }

    /// Returns whether the record was found again since the last call.
    pub(in crate::membership) fn take_found_again(&mut self) -> bool {
        std::mem::take(&mut self.kept.found_again)
    }

    /// Removes the `had` key of this rank, which the store needs no more.
    pub(in crate::membership) fn forget_had(&mut self) -> Result<(), StoreError> {
        let key = had_key(self.own);
        self.kept.words = Words::default();
        self.call(|store| store.remove(&key)).map(drop)
    }

    /// Keeps the generation if it is the newest of its slot that this rank has seen, and was never a member.
    pub(super) fn see_generation(&mut self, (slot, generation): RankGeneration) {
        let admitted = |record: &Record| record.admitted.get(slot).unwrap_or(0);
        let admitted = self.kept.record.as_deref().map_or(0, admitted);
        if generation > admitted {
            let seen = self.kept.seen.entry(slot).or_default();
            *seen = generation.max(*seen);
        }
    }
}
