//! The ranks that hold their leases, as far as this rank has read.

use std::collections::BTreeMap;
use std::sync::Arc;

use membership_rules::members::Members;
use membership_rules::record::RankGeneration;
use membership_rules::slots::Slots;
use rendezvous::Process;

/// What this rank keeps of a rank that holds its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// The rank runs on the machine of this rank.
    pub(super) beside: bool,
    /// The rank wants to be taken in.
    pub(super) asks: bool,
}

/// The ranks that hold their leases. Every rank keeps every other, so the facts that most ranks share take one bit for each rank.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// For each slot, the generation whose lease was read first.
    held: Members,
    /// The slots of `held` whose rank runs on the machine of this rank.
    beside: Slots,
    /// The slots of `held` whose rank wants to be taken in.
    asks: Slots,
    /// Further generations of a slot: a generation may ask while an earlier one of its slot still holds its lease.
    more: BTreeMap<RankGeneration, Holder>,
    /// The processes that this rank can watch: those of other ranks on its machine.
    near: BTreeMap<RankGeneration, Arc<Process>>,
}

impl Holders {
    /// Returns what is kept of the rank in `slot`, which is in `held`.
    fn of_slot(&self, slot: u32) -> Holder {
        Holder {
            beside: self.beside.contains(slot),
            asks: self.asks.contains(slot),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len() + self.more.len()
    }

    /// Returns what is kept of `who`, if it holds its lease.
    pub(super) fn get(&self, who: RankGeneration) -> Option<Holder> {
        if self.held.get(who.0) == Some(who.1) {
            Some(self.of_slot(who.0))
        } else {
            self.more.get(&who).copied()
        }
    }

    pub(super) fn contains(&self, who: RankGeneration) -> bool {
        self.get(who).is_some()
    }

    /// Returns whether `who` holds its lease and wants to be taken in.
    pub(super) fn asks(&self, who: RankGeneration) -> bool {
        self.get(who).is_some_and(|holder| holder.asks)
    }

    /// Returns the slots of the members of `members` that hold their leases.
    pub(super) fn among(&self, members: &Members) -> Slots {
        let mut slots = self.held.common(members);
        let more = self.more.keys();
        for who in more.filter(|who| members.get(who.0) == Some(who.1)) {
            slots.insert(who.0);
        }
        slots
    }

    /// Returns the slots of the members of `members` that hold their leases and run on the machine of this rank.
    pub(super) fn beside(&self, members: &Members) -> Slots {
        let mut slots = self.held.common(members).and(&self.beside);
        let more = self.more.iter().filter(|(_, holder)| holder.beside);
        for (who, _) in more.filter(|(who, _)| members.get(who.0) == Some(who.1)) {
            slots.insert(who.0);
        }
        slots
    }

    /// Returns the process of `who`, if this rank can watch it.
    pub(super) fn near(&self, who: RankGeneration) -> Option<&Arc<Process>> {
        self.near.get(&who)
    }

    /// Returns all processes that this rank can watch.
    pub(super) fn all_near(&self) -> impl Iterator<Item = (RankGeneration, &Arc<Process>)> {
        self.near.iter().map(|(who, process)| (*who, process))
    }

    /// Returns all holders, in the order of their slots and generations.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RankGeneration, Holder)> {
        let held = self.held.iter().map(|who| (who, self.of_slot(who.0)));
        let mut held = held.peekable();
        let mut more = self.more.iter().map(|(who, of)| (*who, *of)).peekable();
        std::iter::from_fn(move || match (held.peek(), more.peek()) {
            (Some(one), Some(other)) if other.0 < one.0 => more.next(),
            (None, _) => more.next(),
            _ => held.next(),
        })
    }

    /// Notes that `who` holds its lease. `near` is its process, if this rank can watch it.
    pub(super) fn insert(&mut self, who: RankGeneration, holder: Holder, near: Option<Process>) {
        self.remove(who);
        let (slot, generation) = who;
        if self.held.contains_key(slot) {
            self.more.insert(who, holder);
        } else {
            self.held.insert(slot, generation);
            for (set, has) in [
                (&mut self.beside, holder.beside),
                (&mut self.asks, holder.asks),
            ] {
                if has {
                    set.insert(slot);
                }
            }
        }
        if let Some(process) = near {
            self.near.insert(who, Arc::new(process));
        }
    }

    pub(super) fn remove(&mut self, who: RankGeneration) {
        let (slot, generation) = who;
        if self.held.get(slot) == Some(generation) {
            self.held.remove(slot);
            self.beside.remove(slot);
            self.asks.remove(slot);
        } else {
            self.more.remove(&who);
        }
        self.near.remove(&who);
    }

    pub(super) fn retain(&mut self, stays: impl Fn(RankGeneration) -> bool) {
        let goes: Vec<_> = self
            .iter()
            .map(|it| it.0)
            .filter(|who| !stays(*who))
            .collect();
        goes.into_iter().for_each(|who| self.remove(who));
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
        let beside = Holder {
            beside: true,
            ..plain
        };
        let mut holders = Holders::default();
        holders.insert((2, 1), plain, None);
        holders.insert((0, 7), plain, Some(Process::this()));
        holders.insert((0, 3), plain, None);
        holders.insert((2, 1), asks, None);
        let names = |of: &Holders| of.iter().map(|(who, _)| who).collect::<Vec<_>>();
        assert_eq!(names(&holders), [(0, 3), (0, 7), (2, 1)]);
        assert!(holders.asks((2, 1)) && !holders.asks((0, 7)) && !holders.asks((1, 1)));
        assert_eq!(holders.all_near().count(), 1);
        // The lease of rank 0 is read again, now without a process that can be watched.
        holders.insert((0, 7), plain, None);
        assert!(holders.near((0, 7)).is_none() && holders.contains((0, 7)));
        // The first generation of slot 0 goes before the second.
        let members = Members::from([(0, 3), (1, 1), (2, 1)]);
        let slots = |slots: &[u32]| slots.iter().copied().collect::<Slots>();
        assert_eq!(holders.among(&members), slots(&[0, 2]));
        assert_eq!(holders.beside(&members), slots(&[]));
        holders.insert((0, 3), beside, None);
        holders.insert(
            (2, 1),
            Holder {
                beside: true,
                ..asks
            },
            None,
        );
        assert_eq!(holders.beside(&members), slots(&[0, 2]));
        holders.insert((0, 3), plain, None);
        assert_eq!(holders.beside(&members), slots(&[2]));
        holders.insert((2, 1), asks, None);
        holders.remove((0, 7));
        assert_eq!(names(&holders), [(0, 3), (2, 1)]);
        holders.insert((0, 9), asks, None);
        assert_eq!(holders.get((0, 9)), Some(asks));
        assert_eq!(holders.get((0, 3)), Some(plain));
        holders.retain(|(slot, _)| slot == 2);
        assert_eq!((holders.len(), names(&holders)), (1, vec![(2, 1)]));
        holders.remove((2, 1));
        holders.remove((2, 1));
        assert_eq!(holders.get((2, 1)), None);
    }
}
