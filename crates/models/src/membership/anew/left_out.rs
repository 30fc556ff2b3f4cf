//! The rules for writing a record anew, by name, and what a rank does if some of them are left out.

use std::collections::BTreeSet;

use membership_rules::anew::{AnewRules, Place, Word};
use membership_rules::record::{RankGeneration, Record};

/// A rule that can be left out. For the last two, the world of the model follows them or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnewRule {
    /// Each member of the record has spoken.
    AllSpeak,
    /// Each newcomer of the open proposal has spoken as well.
    NewcomersSpeak,
    /// The newest record that was named is written.
    Newest,
    /// One of the ranks that have spoken was in touch with the store.
    Touched,
    /// No rank has said anything new for a lease.
    Hush,
    /// The number of the record is new.
    NewNumber,
    /// Only certain evidence ends a rank, so a rank that is not heard has not ended.
    Certain,
    /// A rank that has never promised is no member, whatever its generation.
    Namesake,
    /// The newest generations are noted in the store before the record is there.
    Generations,
}

/// All rules without some that are left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftOut(pub(super) &'static [AnewRule]);

impl LeftOut {
    pub(super) fn follows(self, rule: AnewRule) -> bool {
        !self.0.contains(&rule)
    }
}

impl AnewRules for LeftOut {
    fn needed(&self, record: &Record) -> BTreeSet<RankGeneration> {
        if self.follows(AnewRule::NewcomersSpeak) {
            ().needed(record)
        } else {
            record.members.iter().collect()
        }
    }

    fn is_later(&self, word: Place, own: Place) -> bool {
        self.follows(AnewRule::Newest) && ().is_later(word, own)
    }

    fn have_spoken(&self, misses: usize, needed: usize) -> bool {
        let most = !self.follows(AnewRule::AllSpeak) && 2 * misses < needed;
        most || !self.follows(AnewRule::Certain) || ().have_spoken(misses, needed)
    }

    fn was_touched<'a>(&self, spoken: impl Iterator<Item = &'a Word>) -> bool {
        !self.follows(AnewRule::Touched) || ().was_touched(spoken)
    }

    fn is_hushed(&self, hushed: bool) -> bool {
        !self.follows(AnewRule::Hush) || ().is_hushed(hushed)
    }

    fn number(&self, had: u64, stands: u64) -> u64 {
        if self.follows(AnewRule::NewNumber) {
            ().number(had, stands)
        } else {
            had
        }
    }
}
