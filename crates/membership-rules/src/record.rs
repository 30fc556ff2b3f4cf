//! The record of a group, which is the one key that changes only by compare-and-set, and what ranks promise for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::members::Members;
use crate::slots::{Pairs, Slots};

/// Slot and generation of a rank.
pub type RankGeneration = (u32, u32);

/// The limit of proposal numbers. Every proposal has a smaller number.
pub const LARGEST_PROPOSAL: u64 = 1 << 63;

/// The state of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the view. It grows by one with each view.
    pub epoch: u32,
    /// The generation of each member, by slot.
    pub members: Members,
    /// Pairs of members between which no call of this view sends.
    pub parted: Pairs,
    /// First call that runs in this view.
    pub first: u32,
    /// The newest generation of each slot that was ever a member. Once it is dropped it does not come back.
    pub admitted: Members,
    /// For each slot, the last generation that has left, and the first call that runs without it.
    pub left: BTreeMap<u32, (u32, u32)>,
    /// Number of the newest proposal. It only grows.
    pub number: u64,
    /// The proposal that is open.
    pub open: Option<Proposal>,
    /// How often ranks have asked to be taken in. It stands here because only the record is watched.
    pub asked: u32,
}

/// A proposal of the next view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposal {
    /// The slot that proposed it. Turns are counted from that slot (P9).
    pub by: u32,
    /// Members that stay in the next view.
    pub keep: Slots,
    /// The generation of each newcomer, by slot.
    pub takes: Members,
    /// Members that leave by their own wish, and the last call of each.
    pub leaves: BTreeMap<u32, u32>,
    /// Pairs between which no call of the new view sends. Both ends are members that stay or newcomers.
    pub parts: Pairs,
}

/// The content of a promise. The rank starts no call above `last` in the old view. Its QPs to every rank that goes or is parted
/// from it are in error. A newcomer promises no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// The last call that the rank has started. None if it is a newcomer.
    pub last: Option<u32>,
}

/// Why a record or a proposal is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The number has reached its limit.
    #[error("proposal {0}; numbers are below {LARGEST_PROPOSAL}")]
    Number(u64),
    /// The proposal keeps a rank that is no member.
    #[error("it keeps rank {0}, which is no member")]
    KeepsStranger(u32),
    /// The proposal takes in a slot that a member has.
    #[error("it takes in slot {0}, which a member has")]
    TakesMember(u32),
    /// The proposal takes in a generation that was a member before.
    #[error("it takes in generation {1} of slot {0}, which was a member before")]
    TakesDropped(u32, u32),
    /// A pair is parted, or a rank is let go, and a rank of it does not stay or is no member.
    #[error("it parts or lets go ranks {0} and {1}, of which one does not stay or is no member")]
    Strangers(u32, u32),
}

impl Proposal {
    /// Returns the slots of the newcomers.
    pub fn comes(&self) -> Slots {
        self.takes.slots()
    }

    /// Returns the slots of all members of the next view.
    pub fn all(&self) -> Slots {
        self.keep.with(&self.comes())
    }
}

impl Record {
    /// Returns the record of the first view of a group.
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

    /// Returns the slots of the members.
    pub fn slots(&self) -> Slots {
        self.members.slots()
    }

    /// Returns whether this generation is a member.
    pub fn is_member(&self, slot: u32, generation: u32) -> bool {
        self.members.get(slot) == Some(generation)
    }

    /// Returns whether this generation was a member once, and is no member any more.
    pub fn was_dropped(&self, slot: u32, generation: u32) -> bool {
        let newest = self.admitted.get(slot);
        newest.is_some_and(|newest| newest >= generation) && !self.is_member(slot, generation)
    }

    /// Returns the record with `proposal` open in it.
    ///
    /// # Errors
    /// [`Refused`] if no rank makes this proposal by the rules.
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
    /// [`Refused`] says what is wrong.
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
            // If the proposal keeps no member of the view, all slots are free for newcomers.
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
        // A newcomer may come in parted from other ranks.
        match open.parts.outside(&open.all()) {
            Some((a, b)) => Err(Refused::Strangers(a, b)),
            None => Ok(()),
        }
    }

    /// P5: returns the record of the view that `open` becomes, from call `first` on.
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

/// Returns the later of two calls. Call numbers wrap.
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
