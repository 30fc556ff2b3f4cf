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

#[cfg(test)]
mod model;

use std::collections::{BTreeMap, BTreeSet};

use super::record::{RankGeneration, Record};

/// So many numbers are left out by a record that is written anew: more than there can be proposals of which none of its ranks has heard.
const LEFT_OUT: u64 = 1 << 16;

/// Which of two records is the later one: view, then proposal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Number of the view.
    pub(crate) epoch: u32,
    /// Number of the newest proposal.
    pub(crate) number: u64,
}

impl Place {
    /// That of `record`.
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            epoch: record.epoch,
            number: record.number,
        }
    }
}

/// What a rank says in a store that has lost the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The newest record that it has had.
    pub(crate) place: Place,
    /// Whether it was in touch with the store not longer ago than the group takes to be founded anew.
    pub(crate) touched: bool,
}

/// What a rank does about the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Anew {
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

/// A rule that a test may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnewRule {
    /// Each member has spoken.
    AllSpeak,
    /// And each newcomer of the open proposal.
    NewcomersSpeak,
    /// The newest of all is written.
    Newest,
    /// One rank was in touch.
    Touched,
    /// No rank has said anything new for a lease.
    Hush,
    /// The number is new.
    NewNumber,
    /// A rank that is not heard has not ended.
    Certain,
    /// A rank that has never promised is no member, whatever its generation.
    #[cfg(test)]
    Namesake,
    /// The newest generations are noted before the record is there.
    #[cfg(test)]
    Generations,
}

/// The ranks that must have spoken before `record` is written.
fn needed(record: &Record, follows: impl Fn(AnewRule) -> bool) -> BTreeSet<RankGeneration> {
    let mut needed: BTreeSet<RankGeneration> = record.members.iter().collect();
    if let Some(open) = record
        .open
        .as_ref()
        .filter(|_| follows(AnewRule::NewcomersSpeak))
    {
        needed.extend(open.takes.iter());
    }
    needed
}

/// What `own` does, whose newest record is `record`. The store holds one of `stands`, the default if it holds none. `ended` have ended
/// for certain. `hushed`: no rank has said anything new for a lease.
pub(crate) fn anew(
    own: RankGeneration,
    record: &Record,
    stands: Place,
    words: &BTreeMap<RankGeneration, Word>,
    ended: &BTreeSet<RankGeneration>,
    hushed: bool,
    follows: impl Fn(AnewRule) -> bool,
) -> Anew {
    let place = Place::of(record);
    let newest = words.iter().max_by_key(|(_, word)| word.place);
    let later = newest.filter(|(_, word)| word.place > place);
    if let Some((who, _)) = later.filter(|_| follows(AnewRule::Newest)) {
        return Anew::Later(*who);
    }
    let needed = needed(record, &follows);
    if !needed.contains(&own) {
        return Anew::Other;
    }
    let silent = |who: &&RankGeneration| !words.contains_key(*who) && !ended.contains(*who);
    let misses: Vec<RankGeneration> = needed.iter().filter(silent).copied().collect();
    let most = !follows(AnewRule::AllSpeak) && 2 * misses.len() < needed.len();
    if !misses.is_empty() && !most && follows(AnewRule::Certain) {
        return Anew::Misses(misses);
    }
    let mut spoken = needed.iter().filter_map(|who| words.get(who));
    if follows(AnewRule::Touched) && !spoken.any(|word| word.touched) {
        return Anew::Untouched;
    }
    if !hushed && follows(AnewRule::Hush) {
        return Anew::Hushes;
    }
    let mut new = record.clone();
    if follows(AnewRule::NewNumber) {
        new.number = record.number.max(stands.number).saturating_add(LEFT_OUT);
    }
    match new.check() {
        Ok(()) => Anew::Write(new),
        // Its number is at the end of all numbers.
        Err(_) => Anew::Other,
    }
}
