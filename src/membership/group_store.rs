//! What a group keeps in the store, and one look at all of it.
//!
//! ```text
//! group/record            the group, changed by compare-and-set only
//! group/promise/P/S.G     the promise of slot S, generation G, for proposal P
//! group/member/S.G        lease: lives; its process
//! group/asks/S.G          wants to be taken in
//! group/leaves/S.G        wants to leave; its view, and the last call that it starts in it
//! group/rows/S.G          whom it does not reach, and to which newcomers it is connected
//! group/taken/S.G         has, or had, its group
//! generation/S            newest generation of slot S
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rendezvous::{Lease, Patient, Process, Store, StoreError, repeat};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::GroupError;
use super::event::GroupView;
use super::presence::RankGeneration;
use super::record::{Goodbye, GroupRecord, Promise};
use crate::team::remove_below;

const RECORD: &str = "group/record";
/// A call of the store is repeated for this long: longer than an etcd needs to choose another leader.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a rank tells the others of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    /// Whom it has not reached for so long that it counts.
    pub(super) suspects: BTreeSet<RankGeneration>,
    /// Whom it has not reached for so long that one of both has to go, whatever others say.
    pub(super) overdue: BTreeSet<RankGeneration>,
    /// Whom it does not reach now, for however short a time.
    pub(super) doubts: BTreeSet<RankGeneration>,
    /// Leavers with whom it has finished every call that they are part of. A leaver that has finished them names itself.
    pub(super) done: BTreeSet<RankGeneration>,
    /// To whom it is connected, of those who were not there when it joined.
    pub(super) reached: BTreeSet<RankGeneration>,
}

/// All that one look has found.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) record: Option<GroupRecord>,
    pub(super) promises: BTreeMap<u32, Promise>,
    pub(super) held: BTreeSet<RankGeneration>,
    pub(super) asks: BTreeSet<RankGeneration>,
    pub(super) leaves: BTreeMap<RankGeneration, Goodbye>,
    pub(super) rows: BTreeMap<RankGeneration, Row>,
}

/// The way of one generation to the store.
#[derive(Clone, Debug)]
pub(super) struct GroupStore {
    store: Arc<dyn Store>,
    own: RankGeneration,
    slots: u32,
}

impl GroupStore {
    pub(super) fn new(store: Arc<dyn Store>, own: RankGeneration, slots: u32) -> Self {
        let store = Arc::new(Patient::new(store, PATIENCE));
        Self { store, own, slots }
    }

    /// Takes the place of this generation, once. A founder has drawn no generation: from now on that is the newest.
    pub(super) fn enter(&self) -> Result<(), GroupError> {
        let (rank, generation) = self.own;
        let counter = generation_key(rank);
        let text = generation.to_string();
        self.store
            .compare_and_set(&counter, None, text.as_bytes())?;
        match self
            .store
            .compare_and_set(&key("taken", self.own), None, b"1")?
        {
            true => Ok(()),
            false => Err(GroupError::Taken { rank, generation }),
        }
    }

    /// The lease that says that this rank lives; none if its key is still held, by what it was before the store was away.
    pub(super) fn take_lease(&self, ttl: Duration) -> Result<Option<Lease>, StoreError> {
        let process = serde_json::to_vec(&Process::this()).expect("plain words");
        Lease::take(&self.store, &key("member", self.own), &process, ttl)
    }

    /// The process of another generation; none if its lease is gone.
    pub(super) fn process(&self, of: RankGeneration) -> Result<Option<Process>, GroupError> {
        self.read(&key("member", of))
    }

    /// Everything, as it is now. Of two keys that one rank has changed, what is seen of the second was not before the first.
    pub(super) fn look(&self) -> Result<Look, GroupError> {
        let mut look = Look {
            asks: self.rank_generations("asks")?,
            held: self.rank_generations("member")?,
            ..Look::default()
        };
        for who in self.rank_generations("rows")? {
            if let Some(row) = self.read(&key("rows", who))? {
                look.rows.insert(who, row);
            }
        }
        look.record = self.record()?;
        // Behind the record: of a proposal that lets a rank go, everybody knows that the rank wants to.
        for who in self.rank_generations("leaves")? {
            if let Some(goodbye) = self.read(&key("leaves", who))? {
                look.leaves.insert(who, goodbye);
            }
        }
        if let Some(record) = &look.record
            && let Some(proposed) = &record.proposed
        {
            for (&slot, &generation) in proposed {
                let key = promise_key(record.proposal, (slot, generation));
                if let Some(promise) = self.read(&key)? {
                    look.promises.insert(slot, promise);
                }
            }
        }
        Ok(look)
    }

    pub(super) fn record(&self) -> Result<Option<GroupRecord>, GroupError> {
        let record: Option<GroupRecord> = self.read(RECORD)?;
        if let Some(record) = &record
            && let Some(reason) = self.wrong(record)
        {
            return Err(GroupError::Record {
                key: RECORD.to_owned(),
                reason,
            });
        }
        Ok(record)
    }

    /// Why a record cannot be.
    fn wrong(&self, record: &GroupRecord) -> Option<String> {
        let sets = [
            Some(&record.members),
            record.proposed.as_ref(),
            Some(&record.admitted),
        ];
        let beyond = |slot: &&u32| **slot >= self.slots;
        let slot = sets
            .into_iter()
            .flatten()
            .flat_map(|set| set.keys())
            .find(beyond);
        match slot {
            Some(slot) => Some(format!("slot {slot}; there are {}", self.slots)),
            None => (record.epoch == 0 || record.members.is_empty()).then(|| "no view".to_owned()),
        }
    }

    /// Puts `new` in the place of `old`. Whether it did; if not, or after an error, look again.
    pub(super) fn replace(
        &self,
        old: Option<&GroupRecord>,
        new: &GroupRecord,
    ) -> Result<bool, StoreError> {
        let text = |record| serde_json::to_vec(record).expect("numbers");
        let old = old.map(text);
        self.store
            .compare_and_set(RECORD, old.as_deref(), &text(new))
    }

    pub(super) fn promise(&self, proposal: u64, promise: &Promise) -> Result<(), StoreError> {
        let text = serde_json::to_vec(promise).expect("numbers");
        self.store.put(&promise_key(proposal, self.own), &text)
    }

    /// Promises that nobody needs any more.
    pub(super) fn forget_promise(&self, proposal: u64) -> Result<(), StoreError> {
        self.store
            .remove(&promise_key(proposal, self.own))
            .map(drop)
    }

    pub(super) fn ask(&self) -> Result<(), StoreError> {
        self.store.put(&key("asks", self.own), b"1")
    }

    pub(super) fn leave(&self, goodbye: Goodbye) -> Result<(), StoreError> {
        let text = serde_json::to_vec(&goodbye).expect("numbers");
        self.store.put(&key("leaves", self.own), &text)
    }

    pub(super) fn tell(&self, row: &Row) -> Result<(), StoreError> {
        let text = serde_json::to_vec(row).expect("numbers");
        self.store.put(&key("rows", self.own), &text)
    }

    /// This rank, or one that was dropped, wants nothing any more.
    pub(super) fn clear(&self, who: RankGeneration) -> Result<(), StoreError> {
        for kind in ["asks", "leaves", "rows"] {
            self.store.remove(&key(kind, who))?;
        }
        Ok(())
    }

    /// Removes everything of generations that were members once, or came before one that was, and are none any more; and all
    /// promises up to the view of `record`, for which no proposal is open.
    pub(super) fn tidy(&self, record: &GroupRecord) -> Result<(), StoreError> {
        for kind in ["asks", "leaves", "rows", "taken"] {
            for who in self.rank_generations(kind)? {
                if record.was_dropped(who.0, who.1) {
                    self.store.remove(&key(kind, who))?;
                }
            }
        }
        for proposal in self.store.list("group/promise")? {
            let over = proposal.parse().is_ok_and(|of: u64| of <= record.proposal);
            if over && record.proposed.is_none() {
                remove_below(self.store.as_ref(), &format!("group/promise/{proposal}"))?;
            }
        }
        Ok(())
    }

    pub(super) fn answered(&self) -> Result<(), StoreError> {
        self.store.remove(&key("asks", self.own)).map(drop)
    }

    pub(super) fn wait(&self, timeout: Duration) {
        self.store.wait_for_change(timeout);
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, GroupError> {
        let Some(text) = self.store.try_get(key)? else {
            return Ok(None);
        };
        let value = serde_json::from_slice(&text).map_err(|error| GroupError::Record {
            key: key.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Some(value))
    }

    /// The generations that have a key of this kind. A name that is none is not ours.
    fn rank_generations(&self, kind: &str) -> Result<BTreeSet<RankGeneration>, StoreError> {
        let parse = |name: &String| -> Option<RankGeneration> {
            let (slot, generation) = name.split_once('.')?;
            let slot = slot.parse().ok().filter(|slot| *slot < self.slots)?;
            Some((slot, generation.parse().ok()?))
        };
        let names = self.store.list(&format!("group/{kind}"))?;
        Ok(names.iter().filter_map(parse).collect())
    }
}

/// The next generation of `slot`: each is given once, so that two processes are never taken for one.
///
/// # Errors
/// The store's; a counter that cannot be.
pub fn next_generation(store: &dyn Store, slot: u32) -> Result<u32, GroupError> {
    let key = generation_key(slot);
    loop {
        let until = Instant::now() + PATIENCE;
        let text = repeat(until, || store.try_get(&key))?;
        let newest = match &text {
            None => 0,
            Some(text) => parse_generation(&key, text)?,
        };
        let next = newest.checked_add(1).ok_or_else(|| GroupError::Record {
            key: key.clone(),
            reason: format!("generation {newest}; there is none behind it"),
        })?;
        let next_text = next.to_string();
        let set = || store.compare_and_set(&key, text.as_deref(), next_text.as_bytes());
        if repeat(until, set)? {
            return Ok(next);
        }
    }
}

/// The newest view of the group that meets in `store`, of `slots` ranks: whom a rank that wants to come in finds there. None
/// before the founders have met.
///
/// # Errors
/// The store's; a record that cannot be.
pub fn newest_view(store: &Arc<dyn Store>, slots: u32) -> Result<Option<GroupView>, GroupError> {
    let record = GroupStore::new(Arc::clone(store), (0, 0), slots).record()?;
    Ok(record.as_ref().map(GroupView::from))
}

fn generation_key(slot: u32) -> String {
    format!("generation/{slot}")
}

fn parse_generation(key: &str, text: &[u8]) -> Result<u32, GroupError> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| GroupError::Record {
        key: key.to_owned(),
        reason: format!("'{}' is no generation", String::from_utf8_lossy(text)),
    })
}

fn key(kind: &str, (slot, generation): RankGeneration) -> String {
    format!("group/{kind}/{slot}.{generation}")
}

fn promise_key(proposal: u64, who: RankGeneration) -> String {
    key(&format!("promise/{proposal}"), who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rendezvous::MemoryStore;

    #[test]
    fn each_generation_of_a_slot_is_given_once() {
        let store = MemoryStore::new();
        let given: Vec<u32> = std::thread::scope(|scope| {
            let take = || {
                (0..20)
                    .map(|_| next_generation(&store, 3).unwrap())
                    .collect()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            let all = threads
                .into_iter()
                .flat_map(|thread| -> Vec<u32> { thread.join().unwrap() });
            let mut all: Vec<u32> = all.collect();
            all.sort_unstable();
            all
        });
        assert_eq!(given, (1..=80).collect::<Vec<u32>>());
        assert_eq!(next_generation(&store, 4).unwrap(), 1);
    }

    #[test]
    fn a_counter_or_a_record_that_cannot_be_is_refused_with_its_key() {
        let store = Arc::new(MemoryStore::new());
        store.put("generation/0", b"x").unwrap();
        let error = next_generation(store.as_ref(), 0).unwrap_err().to_string();
        assert_eq!(
            error,
            "the group's record 'generation/0' cannot be: 'x' is no generation"
        );
        store.put("generation/0", b"4294967295").unwrap();
        let error = next_generation(store.as_ref(), 0).unwrap_err().to_string();
        assert!(
            error.ends_with("generation 4294967295; there is none behind it"),
            "{error}"
        );

        let of_group = GroupStore::new(Arc::clone(&store) as Arc<dyn Store>, (0, 1), 2);
        let record = GroupRecord::founded([(0, 1), (2, 1)].into());
        store
            .put(RECORD, &serde_json::to_vec(&record).unwrap())
            .unwrap();
        let error = of_group.look().unwrap_err().to_string();
        assert_eq!(
            error,
            "the group's record 'group/record' cannot be: slot 2; there are 2"
        );
        store.put(RECORD, b"{").unwrap();
        assert!(matches!(of_group.look(), Err(GroupError::Record { .. })));
    }

    #[test]
    fn a_generation_has_one_group() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let store = GroupStore::new(store, (1, 2), 2);
        store.enter().unwrap();
        let error = store.enter().unwrap_err().to_string();
        assert!(
            error.starts_with("generation 2 of rank 1 has had its group"),
            "{error}"
        );
    }
}
