//! A store that has lost the record, or is back with an earlier one: when a rank writes its newest record anew.
//!
//! Only a compare-and-set of the record makes a view, so the record that the last change has left counts, and no rank may know it.
//! A rank that writes a record of before makes a second group. The rules that keep it from that:
//!
//! - Each member of the record that it would write, and each newcomer of the proposal in it, has said in this store what the newest
//!   record is that it has had. A rank counts as ended only by certain evidence. Each view needs a promise of each of its members. So a
//!   later view has no living member of this one, or one of them has said so.
//! - The newest of all that was said is written. A rank says its whole record, and others take it over if theirs is earlier: the one that
//!   had it may end before the record is written.
//! - One of these ranks was in touch with the store not longer ago than the group takes to be founded anew. So it was not left out by
//!   a group of newcomers.
//! - No rank has said anything new for a lease. So a rank that reaches the store has spoken.
//! - The number is new. What was on its way to the store before does not replace it, and promises of before are none for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{RankGeneration, Record};

/// So many numbers are left out by a record that is written anew: more than there can be proposals of which none of its ranks has heard.
const LEFT_OUT: u64 = 1 << 16;

/// Which of two records is the later one: view, then proposal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the view.
    pub epoch: u32,
    /// Number of the newest proposal.
    pub number: u64,
}

impl Place {
    /// That of `record`.
    pub fn of(record: &Record) -> Self {
        Self {
            epoch: record.epoch,
            number: record.number,
        }
    }
}

/// What a rank says in a store that has lost the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The newest record that it has had.
    pub place: Place,
    /// Whether it was in touch with the store not longer ago than the group takes to be founded anew.
    pub touched: bool,
}

/// What a rank does about the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anew {
    /// It is no rank of its newest record: another one writes it.
    Other,
    /// This rank has had a later record: all take that over from its word.
    Later(RankGeneration),
    /// These have not said what they have had.
    Misses(Vec<RankGeneration>),
    /// None of those that have spoken was in touch: newcomers may have founded the group anew.
    Untouched,
    /// It waits for a lease in which no rank says anything new.
    Hushes,
    /// It writes this record, in the place of what stands there.
    Write(Record),
}

/// The rules above, one method each. `()` follows all of them; a model may leave some out.
pub trait AnewRules {
    /// The ranks that must have spoken before `record` is written: its members, and each newcomer of the open proposal.
    fn needed(&self, record: &Record) -> BTreeSet<RankGeneration> {
        let takes = record.open.iter().flat_map(|open| open.takes.iter());
        record.members.iter().chain(takes).collect()
    }

    /// The newest of all is written. Returns whether that of another, `word`, is taken over in the place of the `own` one.
    fn is_later(&self, word: Place, own: Place) -> bool {
        word > own
    }

    /// Each of the `needed` ranks has spoken or has ended for certain, so none is missed.
    fn have_spoken(&self, misses: usize, _needed: usize) -> bool {
        misses == 0
    }

    /// One rank was in touch.
    fn was_touched<'a>(&self, mut spoken: impl Iterator<Item = &'a Word>) -> bool {
        spoken.any(|word| word.touched)
    }

    /// No rank has said anything new for a lease.
    fn is_hushed(&self, hushed: bool) -> bool {
        hushed
    }

    /// The number is new: what it had, and what `stands` in the store, are below it.
    fn number(&self, had: u64, stands: u64) -> u64 {
        had.max(stands).saturating_add(LEFT_OUT)
    }
}

impl AnewRules for () {}

/// What a rank knows whose newest record the store has lost.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// This rank.
    pub own: RankGeneration,
    /// The newest record that it has had.
    pub record: &'a Record,
    /// What the store holds, the default if it holds none.
    pub stands: Place,
    /// What ranks have said, this one among them.
    pub words: &'a BTreeMap<RankGeneration, Word>,
    /// Ranks that have ended for certain.
    pub ended: &'a BTreeSet<RankGeneration>,
    /// No rank has said anything new for a lease.
    pub hushed: bool,
}

/// Returns what a rank does in this situation.
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
        // Its number is at the end of all numbers.
        Err(_) => Anew::Other,
    }
}
