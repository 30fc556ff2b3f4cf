//! What a rank keeps of the keys that it has read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use membership_rules::anew::{Place, Word};
use membership_rules::record::{Promise, RankGeneration, Record};
use rendezvous::Count;

use crate::membership::holders::Holders;
use crate::membership::stored::{Goodbye, Had, StoredRow};

/// What this rank has read from the store.
#[derive(Debug, Default)]
pub(in crate::membership) struct Kept {
    pub(in crate::membership) record: Option<Arc<Record>>,
    /// The bytes of the record in the store.
    pub(super) text: Vec<u8>,
    /// The generations that hold their leases.
    pub(in crate::membership) members: Holders,
    pub(in crate::membership) rows: BTreeMap<RankGeneration, Arc<StoredRow>>,
    /// The promises, by proposal and rank.
    pub(in crate::membership) promises: BTreeMap<(u64, RankGeneration), Promise>,
    pub(in crate::membership) goodbyes: BTreeMap<RankGeneration, Goodbye>,
    pub(in crate::membership) over: BTreeSet<RankGeneration>,
    /// The store's revision at the last look, up to which the keys that it asked for are known.
    pub(super) since: u64,
    /// The store's revision at the last look at all keys.
    pub(super) since_all: u64,
    /// The store's revision at the look before this rank first saw the open proposal. No promise for that proposal is older.
    pub(super) since_number: u64,
    /// The keys, besides the record, for which the last look has asked.
    pub(super) named: BTreeSet<String>,
    pub(super) count: Option<Count>,
    /// Keys whose value cannot be read, and that were reported for it.
    pub(super) told: BTreeSet<String>,
    /// Keys were read, or a view came, since the driver last called [`Reader::drop_kept`](super::look::Reader::drop_kept).
    pub(in crate::membership) is_new: bool,
    /// The store does not hold the record that this rank keeps.
    pub(in crate::membership) lost: Option<Lost>,
    /// The ranks whose leases say that the store has lost their record.
    pub(super) losing: BTreeSet<RankGeneration>,
    /// What ranks say of a record that the store has lost.
    pub(in crate::membership) words: Words,
    /// The record is in the store again, and the driver has not seen that yet.
    pub(in crate::membership) found_again: bool,
    /// The newest generation of each slot that this rank has seen and that was never a member.
    pub(super) seen: BTreeMap<u32, u32>,
}

impl Kept {
    /// Returns the place of the record that this rank keeps, and how often ranks had asked in that record.
    pub(in crate::membership) fn place(&self) -> Option<(Place, u32)> {
        let record = self.record.as_deref()?;
        Some((Place::of(record), record.asked))
    }

    /// Returns the store's revision of the last look at changes.
    pub(in crate::membership) fn since(&self) -> u64 {
        self.since
    }

    /// Returns the promises for the proposal of `number`, in the order of their slots.
    pub(in crate::membership) fn promises_for(
        &self,
        number: u64,
    ) -> impl Iterator<Item = (RankGeneration, &Promise)> {
        let all = (number, (0, 0))..=(number, (u32::MAX, u32::MAX));
        let of_it = self.promises.range(all);
        of_it.map(|((_, who), promise)| (*who, promise))
    }

    /// Returns how many leases there are and when the newest was taken. The result changes when a lease is taken or goes.
    pub(in crate::membership) fn count(&self) -> Option<(u64, u64)> {
        self.count.map(|count| (count.keys, count.newest_created))
    }
}

/// What this rank has read of the `had` keys of others.
#[derive(Debug, Default)]
pub(in crate::membership) struct Words {
    /// The word of each rank, and whether it was written while this rank looked.
    all: BTreeMap<RankGeneration, (Had, bool)>,
}

impl Words {
    pub(super) fn insert(&mut self, who: RankGeneration, had: Had) {
        let before = self.all.get(&who);
        let is_new = before.is_some_and(|(before, is_new)| *is_new || *before != had);
        self.all.insert(who, (had, is_new));
    }

    pub(super) fn retain(&mut self, stays: impl Fn(RankGeneration) -> bool) {
        self.all.retain(|who, _| stays(*who));
    }

    /// Returns the word of `who`, if this rank has read one.
    pub(super) fn get(&self, who: RankGeneration) -> Option<&Had> {
        self.all.get(&who).map(|(had, _)| had)
    }

    /// Returns the rank that names the newest record.
    pub(super) fn newest(&self) -> Option<RankGeneration> {
        let newest = self.all.iter();
        let newest = newest.max_by_key(|(_, (had, _))| had.word().place);
        newest.map(|(who, _)| *who)
    }

    /// Returns the words of ranks that live: those that were written while this rank looked.
    pub(in crate::membership) fn living(&self) -> BTreeMap<RankGeneration, &Had> {
        let living = self.all.iter().filter(|(_, (_, is_new))| *is_new);
        living.map(|(who, (had, _))| (*who, had)).collect()
    }
}

/// What a rank knows of the loss while the store does not hold the record that the rank keeps.
#[derive(Debug)]
pub(in crate::membership) struct Lost {
    pub(in crate::membership) since: Instant,
    /// This rank was in touch with the store shortly before the loss.
    pub(in crate::membership) touched: bool,
    /// The earlier record that stands in the store, with its bytes.
    pub(super) stands: Option<(Place, Vec<u8>)>,
    /// An event has said that the record is lost.
    pub(in crate::membership) noticed: bool,
    /// This rank has written its part of the lost keys into the store again.
    pub(in crate::membership) restored: bool,
    /// What ranks said last, and since when they have said that. None after a gap.
    pub(in crate::membership) hush: Option<(BTreeMap<RankGeneration, Word>, Instant)>,
    /// When this rank made its last turn.
    pub(in crate::membership) turned: Instant,
    /// An event has said why no rank writes the record.
    pub(in crate::membership) told: bool,
}

impl Lost {
    /// Returns the place of the record that stands in the store. Returns the first place of all if no record stands there.
    pub(in crate::membership) fn stands(&self) -> Place {
        self.stands.as_ref().map_or_else(Place::default, |it| it.0)
    }
}
