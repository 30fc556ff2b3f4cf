//! The ranks that hold their leases, as far as this rank has read.

use std::collections::BTreeMap;
use std::sync::Arc;

use rendezvous::Process;

use super::rules::record::RankGeneration;

/// What this rank keeps of one that holds its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// It runs on the machine of this rank.
    pub(super) beside: bool,
    /// It wants to be taken in.
    pub(super) asks: bool,
}

/// All of them, in the order of their slots: 12 bytes each, since every rank keeps every other.
#[derive(Debug, Default)]
pub(super) struct Holders {
    held: Vec<(RankGeneration, Holder)>,
    /// The processes that this rank can watch: others of its machine.
    near: BTreeMap<RankGeneration, Arc<Process>>,
}

impl Holders {
    fn find(&self, who: RankGeneration) -> Result<usize, usize> {
        self.held.binary_search_by_key(&who, |(held, _)| *held)
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// What is kept of `who`, if it holds its lease.
    pub(super) fn get(&self, who: RankGeneration) -> Option<Holder> {
        let at = self.find(who).ok()?;
        self.held.get(at).map(|(_, holder)| *holder)
    }

    pub(super) fn contains(&self, who: RankGeneration) -> bool {
        self.find(who).is_ok()
    }

    /// Whether `who` holds its lease and wants to be taken in.
    pub(super) fn asks(&self, who: RankGeneration) -> bool {
        self.get(who).is_some_and(|holder| holder.asks)
    }

    /// The process of `who`, where this rank can watch it.
    pub(super) fn near(&self, who: RankGeneration) -> Option<&Arc<Process>> {
        self.near.get(&who)
    }

    /// All processes that this rank can watch.
    pub(super) fn all_near(&self) -> impl Iterator<Item = (RankGeneration, &Arc<Process>)> {
        self.near.iter().map(|(who, process)| (*who, process))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RankGeneration, Holder)> {
        self.held.iter().copied()
    }

    /// `who` holds its lease; `near` is its process where this rank can watch it.
    pub(super) fn insert(&mut self, who: RankGeneration, holder: Holder, near: Option<Process>) {
        self.remove(who);
        if let Err(at) = self.find(who) {
            self.held.insert(at, (who, holder));
        }
        if let Some(process) = near {
            self.near.insert(who, Arc::new(process));
        }
    }

    pub(super) fn remove(&mut self, who: RankGeneration) {
        if let Ok(at) = self.find(who) {
            self.held.remove(at);
        }
        self.near.remove(&who);
    }

    /// Gives back the memory that no holder needs.
    pub(super) fn shrink(&mut self) {
        self.held.shrink_to_fit();
    }

    pub(super) fn retain(&mut self, stays: impl Fn(RankGeneration) -> bool) {
        self.held.retain(|(who, _)| stays(*who));
        self.near.retain(|who, _| stays(*who));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_stand_in_the_order_of_their_slots_and_go_with_their_processes() {
        let plain = Holder {
            beside: false,
            asks: false,
        };
        let asks = Holder {
            asks: true,
            ..plain
        };
        let mut holders = Holders::default();
        holders.insert((2, 1), plain, None);
        holders.insert((0, 7), plain, Some(Process::this()));
        holders.insert((0, 3), plain, None);
        holders.insert((2, 1), asks, None);
        let names: Vec<RankGeneration> = holders.iter().map(|(who, _)| who).collect();
        assert_eq!(names, [(0, 3), (0, 7), (2, 1)]);
        assert!(holders.asks((2, 1)) && !holders.asks((0, 7)) && !holders.asks((1, 1)));
        assert_eq!(holders.all_near().count(), 1);
        // Read again, and not near any more.
        holders.insert((0, 7), plain, None);
        assert!(holders.near((0, 7)).is_none() && holders.contains((0, 7)));
        holders.retain(|(slot, _)| slot == 2);
        assert_eq!(holders.len(), 1);
        holders.remove((2, 1));
        holders.remove((2, 1));
        assert_eq!(holders.get((2, 1)), None);
    }
}
