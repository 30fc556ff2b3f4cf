//! The record of a group, the one key that changes only by compare-and-set, and what ranks promise for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::members::Members;
use crate::slots::{Pairs, Slots};

/// Slot and generation.
pub type RankGeneration = (u32, u32);

/// The largest number that a proposal may have: a number above it is no number of ours.
pub const LARGEST_PROPOSAL: u64 = 1 << 63;

/// The group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the view; grows by one with each.
    pub epoch: u32,
    /// The generation of each member, by slot.
    pub members: Members,
    /// Pairs of members between which no call of this view sends.
    pub parted: Pairs,
    /// First call that runs in it.
    pub first: u32,
    /// The newest generation of each slot that ever was a member: it does not come back once it was dropped.
    pub admitted: Members,
    /// Of the last of each slot that has left: its generation, and the first call that runs without it.
    pub left: BTreeMap<u32, (u32, u32)>,
    /// Number of the newest proposal; grows for ever.
    pub number: u64,
    /// The proposal that is open.
    pub open: Option<Proposal>,
    /// How often ranks have asked to be taken in: the record is the one key that is watched.
    pub asked: u32,
}

/// The view to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposal {
    /// The slot that proposed it. Turns are counted from that slot (P9).
    pub by: u32,
    /// Members that stay.
    pub keep: Slots,
    /// Newcomers.
    pub takes: Members,
    /// Members that go by themselves, and the last call of each.
    pub leaves: BTreeMap<u32, u32>,
    /// Pairs between which no call of the new view sends: of members that stay, or of newcomers with them or with each other.
    pub parts: Pairs,
}

/// The content of a promise. The rank starts no call above `last` in the old view. Its QPs to every rank that goes or is parted
/// from it are in error. A newcomer promises no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// The last call that it has started.
    pub last: Option<u32>,
}

/// Why a record or a proposal is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its number is at the end of all numbers.
    #[error("proposal {0}; numbers are below {LARGEST_PROPOSAL}")]
    Number(u64),
    /// It keeps a rank that is no member.
    #[error("it keeps rank {0}, which is no member")]
    KeepsStranger(u32),
    /// It takes in a slot that a member has.
    #[error("it takes in slot {0}, which a member has")]
    TakesMember(u32),
    /// It takes in a generation that was a member before.
    #[error("it takes in generation {1} of slot {0}, which was a member before")]
    TakesDropped(u32, u32),
    /// It parts or lets go ranks of which one does not stay or is no member.
    #[error("it parts or lets go ranks {0} and {1}, of which one does not stay or is no member")]
    Strangers(u32, u32),
}

impl Proposal {
    /// Slots of the newcomers.
    pub fn comes(&self) -> Slots {
        self.takes.slots()
    }

    /// All of the view to be, by slot.
    pub fn all(&self) -> Slots {
        self.keep.with(&self.comes())
    }
}

impl Record {
    /// The first view of a group.
    pub fn founded(members: Members) -> Self {
        Self {
            epoch: 1,
            admitted: members.clone(),
            members,
            parted: Pairs::default(),
            first: 1,
            left: BTreeMap::new(),
            number: 0,
            open: None,
            asked: 0,
        }
    }

    /// Members, by slot.
    pub fn slots(&self) -> Slots {
        self.members.slots()
    }

    /// Returns whether this generation is a member.
    pub fn is_member(&self, slot: u32, generation: u32) -> bool {
        self.members.get(slot) == Some(generation)
    }

    /// Returns whether this generation was a member once, and is none any more.
    pub fn was_dropped(&self, slot: u32, generation: u32) -> bool {
        let newest = self.admitted.get(slot);
        newest.is_some_and(|newest| newest >= generation) && !self.is_member(slot, generation)
    }

    /// The record with `proposal` open in it.
    ///
    /// # Errors
    /// One that no rank by these rules makes.
    pub fn propose(&self, proposal: Proposal) -> Result<Self, Refused> {
        let number = self.number.checked_add(1);
        let number = number.filter(|number| *number < LARGEST_PROPOSAL);
        let next = Self {
            number: number.ok_or(Refused::Number(self.number))?,
            open: Some(proposal),
            ..self.clone()
        };
        next.check()?;
        Ok(next)
    }

    /// Checks a record that was read. A rank that reads a record calls this first, and changes no record that is refused.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), Refused> {
        if self.number >= LARGEST_PROPOSAL {
            return Err(Refused::Number(self.number));
        }
        let members = self.slots();
        if let Some((a, b)) = self.parted.outside(&members) {
            return Err(Refused::Strangers(a, b));
        }
        let Some(open) = &self.open else {
            return Ok(());
        };
        if let Some(stranger) = open.keep.without(&members).first() {
            return Err(Refused::KeepsStranger(stranger));
        }
        for (slot, generation) in open.takes.iter() {
            // When the proposal keeps no member of the view, its slots are free.
            if members.contains(slot) && !open.keep.is_empty() {
                return Err(Refused::TakesMember(slot));
            }
            let newest = self.admitted.get(slot);
            if newest.is_some_and(|newest| newest >= generation) {
                return Err(Refused::TakesDropped(slot, generation));
            }
        }
        let goes = open.leaves.keys();
        let odd = |slot: &&u32| !members.contains(**slot) || open.keep.contains(**slot);
        if let Some(&stranger) = goes.into_iter().find(odd) {
            return Err(Refused::Strangers(stranger, stranger));
        }
        // A newcomer may come parted from some.
        match open.parts.outside(&open.all()) {
            Some((a, b)) => Err(Refused::Strangers(a, b)),
            None => Ok(()),
        }
    }

    /// P5: the view that `open` becomes, from call `first` on.
    pub fn commit(&self, open: &Proposal, first: u32) -> Self {
        let kept = self.members.iter().filter(|it| open.keep.contains(it.0));
        let mut members: Members = kept.collect();
        members.extend(open.takes.iter());
        let mut admitted = self.admitted.clone();
        admitted.extend(open.takes.iter());
        let mut left = self.left.clone();
        let goes = |slot: &u32| Some((*slot, (self.members.get(*slot)?, first)));
        left.extend(open.leaves.keys().filter_map(goes));
        Self {
            epoch: self.epoch + 1,
            members,
            parted: open.parts.clone(),
            first,
            admitted,
            left,
            number: self.number,
            open: None,
            asked: self.asked,
        }
    }
}

/// The later of two calls. Call numbers wrap.
pub fn later(a: u32, b: u32) -> u32 {
    if newer(b, a) { b } else { a }
}

/// Returns whether call `a` is newer than call `b`.
pub fn newer(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::founded(Members::from([(0, 1), (1, 1), (2, 1)]))
    }

    #[test]
    fn a_proposal_of_the_largest_number_is_refused() {
        let last = Record {
            number: LARGEST_PROPOSAL - 1,
            ..record()
        };
        let keep = Proposal {
            keep: last.slots(),
            ..Proposal::default()
        };
        let refused = last.propose(keep.clone());
        assert_eq!(refused, Err(Refused::Number(LARGEST_PROPOSAL - 1)));
        for number in [LARGEST_PROPOSAL, u64::MAX] {
            let read = Record { number, ..record() };
            assert_eq!(read.check(), Err(Refused::Number(number)));
            assert_eq!(read.propose(keep.clone()), Err(Refused::Number(number)));
        }
        let before = Record {
            number: LARGEST_PROPOSAL - 2,
            ..record()
        };
        let next = before.propose(keep).unwrap();
        assert_eq!(next.number, LARGEST_PROPOSAL - 1);
    }

    #[test]
    fn a_proposal_that_no_rank_makes_is_refused() {
        let refused = |change: fn(&mut Proposal)| {
            let mut proposal = Proposal {
                keep: [0, 1].into_iter().collect(),
                ..Proposal::default()
            };
            change(&mut proposal);
            record().propose(proposal).err()
        };
        assert_eq!(refused(|_| ()), None);
        let keeps = refused(|it| it.keep.insert(3));
        assert_eq!(keeps, Some(Refused::KeepsStranger(3)));
        let takes = refused(|it| it.takes.extend([(2, 2)]));
        assert_eq!(takes, Some(Refused::TakesMember(2)));
        let parts = refused(|it| it.parts.insert(1, 2));
        assert_eq!(parts, Some(Refused::Strangers(1, 2)));
        let comes_parted = refused(|it| {
            it.takes.extend([(3, 1)]);
            it.parts.insert(1, 3);
        });
        assert_eq!(comes_parted, None);
        let goes = refused(|it| it.leaves.extend([(1, 4)]));
        assert_eq!(goes, Some(Refused::Strangers(1, 1)));
        let mut dropped = record();
        dropped.members.remove(2);
        let again = Proposal {
            keep: dropped.slots(),
            takes: Members::from([(2, 1)]),
            ..Proposal::default()
        };
        let refused = dropped.propose(again).err();
        assert_eq!(refused, Some(Refused::TakesDropped(2, 1)));
    }
}
