//! Counts how often things have happened to one generation of a rank in its group.

use membership_rules::members::Members;

use super::event::{GroupEventKind, GroupView};

/// How often things have happened since the group was started, and how many pairs are parted now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupCounters {
    /// Number of views that the kernels of this rank were given.
    pub views: u64,
    /// Number of proposals that this rank has put into the store.
    pub proposals: u64,
    /// Number of proposals that this rank has promised.
    pub promises: u64,
    /// How often this rank has begun to suspect another.
    pub suspicions: u64,
    /// How often QPs to a rank were connected: to newcomers, and to ranks from which this one was parted.
    pub connections: u64,
    /// How often the store stopped answering.
    pub store_losses: u64,
    /// Number of pairs of members that the newest view parts.
    pub parted: u64,
    /// Number of pairs that a view has parted and the view before had not.
    pub partings: u64,
    /// Number of parted pairs that a later view has united.
    pub unions: u64,
}

/// The counters of a group, and the part of the newest view from which they follow.
#[derive(Debug, Default)]
pub(super) struct Counting {
    counters: GroupCounters,
    /// The pairs that the newest view parts.
    parted: Vec<(u32, u32)>,
    members: Members,
}

impl Counting {
    pub(super) fn counters(&self) -> GroupCounters {
        self.counters
    }

    pub(super) fn count(&mut self, what: &GroupEventKind) {
        let counters = &mut self.counters;
        match what {
            GroupEventKind::Viewed(view) => self.view(view),
            GroupEventKind::Proposed { .. } => counters.proposals += 1,
            GroupEventKind::Promised { .. } => counters.promises += 1,
            GroupEventKind::Suspected { .. } => counters.suspicions += 1,
            GroupEventKind::Connected { .. } => counters.connections += 1,
            GroupEventKind::StoreLost { .. } => counters.store_losses += 1,
            _ => {}
        }
    }

    fn view(&mut self, view: &GroupView) {
        let parted = std::mem::replace(&mut self.parted, view.parted.clone());
        let members = std::mem::replace(&mut self.members, view.members.clone());
        // A slot with another generation does not stay. A rank that is late sees only some of the views, so both can be in one step.
        let stays = |slot: u32| view.members.get(slot) == members.get(slot);
        let both_stay = |pair: &(u32, u32)| stays(pair.0) && stays(pair.1);
        let new = view.parted.iter();
        let new = new.filter(|pair| !parted.contains(pair) || !both_stay(pair));
        let united = parted.iter();
        let united = united.filter(|pair| !view.parted.contains(pair) && both_stay(pair));
        let counters = &mut self.counters;
        counters.views += 1;
        counters.parted = view.parted.len() as u64;
        counters.partings += new.count() as u64;
        counters.unions += united.count() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Cause;

    #[test]
    fn pairs_are_counted_when_views_part_them_and_when_views_unite_them() {
        let mut counting = Counting::default();
        let mut view = |members: &[(u32, u32)], parted: &[(u32, u32)]| {
            counting.count(&GroupEventKind::Viewed(GroupView {
                epoch: 1,
                first: 1,
                members: members.iter().copied().collect(),
                parted: parted.to_vec(),
            }));
            let of = counting.counters();
            (of.views, of.parted, of.partings, of.unions)
        };
        let all = [(0, 1), (1, 1), (2, 1), (3, 1)];
        assert_eq!(view(&all, &[]), (1, 0, 0, 0));
        assert_eq!(view(&all, &[(0, 1), (2, 3)]), (2, 2, 2, 0));
        assert_eq!(view(&all, &[(0, 1), (1, 2)]), (3, 2, 3, 1));
        assert_eq!(view(&all[1..], &[(1, 2)]), (4, 1, 3, 1), "rank 0 has gone");
        assert_eq!(view(&all[1..], &[]), (5, 0, 3, 2));
        // This rank has missed the view without rank 1.
        assert_eq!(view(&all[1..], &[(1, 2), (1, 3)]), (6, 2, 5, 2));
        let again = [(1, 2), (2, 1), (3, 1)];
        assert_eq!(view(&again, &[(1, 3)]), (7, 1, 6, 2));
        assert_eq!(view(&again, &[]), (8, 0, 6, 3));
    }

    #[test]
    fn events_are_counted_by_their_kind() {
        let mut counting = Counting::default();
        let cause = Cause::Unheard;
        for what in [
            GroupEventKind::Suspected { rank: 1, cause },
            GroupEventKind::Trusted { rank: 1 },
            GroupEventKind::Promised {
                proposal: 1,
                last: None,
            },
            GroupEventKind::StoreLost {
                error: String::new(),
            },
        ] {
            counting.count(&what);
        }
        let wanted = GroupCounters {
            suspicions: 1,
            promises: 1,
            store_losses: 1,
            ..GroupCounters::default()
        };
        assert_eq!(counting.counters(), wanted);
    }
}
