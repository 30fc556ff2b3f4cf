//! When a rank writes its newest record anew into a store that has lost the record or is back with an earlier one.
//!
//! Only a compare-and-set of the record makes a view. So the record that the last change has left counts, and it may be that no rank knows
//! it. A rank that writes an earlier record makes a second group. These rules keep it from that:
//!
//! - Each member of the record to be written, and each newcomer of its proposal, has said in this store which is the newest record that it
//!   has had, or has ended by certain evidence. Each view needs a promise of each of its members. So no living member of this record has
//!   been in a later view without saying so.
//! - The newest record that was named is written. A rank says its whole record, and others take it over if theirs is earlier, because the
//!   rank that had it may end before the record is written.
//! - One of these ranks was in touch with the store not longer ago than the group takes to be founded anew. So a group of newcomers cannot
//!   have left these ranks out.
//! - No rank has said anything new for a lease. So each rank that reaches the store has spoken.
//! - The number is new. A write that was on its way to the store before does not replace the record, and no earlier promise counts for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{RankGeneration, Record};

/// How many numbers a record that is written anew leaves out. No more proposals can exist of which none of its ranks has heard.
const LEFT_OUT: u64 = 1 << 16;

/// The place of a record among others. The later record has the later view, or the later proposal of one view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the view.
    pub epoch: u32,
    /// Number of the newest proposal.
    pub number: u64,
}

impl Place {
    /// Returns the place of `record`.
    pub fn of(record: &Record) -> Self {
        Self {
            epoch: record.epoch,
            number: record.number,
        }
    }
}

/// What a rank says when the store has lost the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The place of the newest record that the rank has had.
    pub place: Place,
    /// True if the rank was in touch with the store, not longer ago than the group takes to be founded anew.
    pub touched: bool,
}

/// What a rank does about a lost record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anew {
    /// Nothing: the rank is no rank of its newest record, so another rank writes it.
    Other,
    /// Takes over a later record from the word of this rank.
    Later(RankGeneration),
    /// Waits for these ranks, which have not said what they have had.
    Misses(Vec<RankGeneration>),
    /// Nothing: no rank that has spoken was in touch, so newcomers may have founded the group anew.
    Untouched,
    /// Waits until no rank has said anything new for a lease.
    Hushes,
    /// Writes this record in the place of what the store holds.
    Write(Record),
}

/// The rules of this module, one method each. `()` follows all of them; a model may leave some out.
pub trait AnewRules {
    /// Returns the ranks that must have spoken before `record` is written: its members, and each newcomer of the open proposal.
    fn needed(&self, record: &Record) -> BTreeSet<RankGeneration> {
        let takes = record.open.iter().flat_map(|open| open.takes.iter());
        record.members.iter().chain(takes).collect()
    }

    /// The newest record is written. Returns whether the record at `word`, of another rank, takes the place of the one at `own`.
    fn is_later(&self, word: Place, own: Place) -> bool {
        word > own
    }

    /// Each of the `needed` ranks has spoken or has ended for certain. Returns whether that holds when `misses` of them have not.
    fn have_spoken(&self, misses: usize, _needed: usize) -> bool {
        misses == 0
    }

    /// Returns whether one of the ranks that have spoken was in touch.
    fn was_touched<'a>(&self, mut spoken: impl Iterator<Item = &'a Word>) -> bool {
        spoken.any(|word| word.touched)
    }

    /// Returns whether no rank has said anything new for a lease, which is `hushed`.
    fn is_hushed(&self, hushed: bool) -> bool {
        hushed
    }

    /// Returns the number of the new record. It is above `had`, the number of this rank's record, and `stands`, the number in the store.
    fn number(&self, had: u64, stands: u64) -> u64 {
        had.max(stands).saturating_add(LEFT_OUT)
    }
}

impl AnewRules for () {}

/// What a rank knows when the store has lost its newest record.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Slot and generation of this rank.
    pub own: RankGeneration,
    /// The newest record that this rank has had.
    pub record: &'a Record,
    /// The place of the record that the store holds. The default if it holds none.
    pub stands: Place,
    /// What each rank has said, this one included.
    pub words: &'a BTreeMap<RankGeneration, Word>,
    /// Ranks that have ended for certain.
    pub ended: &'a BTreeSet<RankGeneration>,
    /// True if no rank has said anything new for a lease.
    pub hushed: bool,
}

/// Returns what a rank does in the situation `at`.
pub fn anew(rules: &impl AnewRules, at: &Situation<'_>) -> Anew {
    let (record, words) = (at.record, at.words);
    let place = Place::of(record);
    let newest = words.iter().max_by_key(|(_, word)| word.place);
    if let Some((who, _)) = newest.filter(|(_, word)| rules.is_later(word.place, place)) {
        return Anew::Later(*who);
    }
    let needed = rules.needed(record);
    if !needed.contains(&at.own) {
        return Anew::Other;
    }
    let silent = |who: &&RankGeneration| !words.contains_key(*who) && !at.ended.contains(*who);
    let misses: Vec<RankGeneration> = needed.iter().filter(silent).copied().collect();
    if !rules.have_spoken(misses.len(), needed.len()) {
        return Anew::Misses(misses);
    }
    if !rules.was_touched(needed.iter().filter_map(|who| words.get(who))) {
        return Anew::Untouched;
    }
    if !rules.is_hushed(at.hushed) {
        return Anew::Hushes;
    }
    let mut new = record.clone();
    new.number = rules.number(record.number, at.stands.number);
    match new.check() {
        Ok(()) => Anew::Write(new),
        // The number is the largest possible one, so the record cannot be written with a new number.
        Err(_) => Anew::Other,
    }
}
