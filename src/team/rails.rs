//! Which rails carry what is posted to a peer. If a rail carries nothing between two ranks, what is posted to a QP of that rail
//! goes by a QP of another rail.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A set of rails of a team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::team) struct RailSet(u32);

impl RailSet {
    pub(in crate::team) const EMPTY: Self = Self(0);

    /// Returns the set of rails 0 to `count` - 1.
    pub(in crate::team) const fn first(count: u32) -> Self {
        Self(1u32.unbounded_shl(count).wrapping_sub(1))
    }

    pub(in crate::team) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(in crate::team) const fn contains(self, rail: u32) -> bool {
        1u32.unbounded_shl(rail) & self.0 != 0
    }

    pub(in crate::team) fn insert(&mut self, rail: u32) {
        self.0 |= 1u32.unbounded_shl(rail);
    }

    pub(in crate::team) const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(in crate::team) const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns the rails of the set, in ascending order.
    pub(in crate::team) fn iter(self) -> impl Iterator<Item = u32> {
        (0..u32::BITS).filter(move |rail| self.contains(*rail))
    }
}

impl fmt::Display for RailSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The rails between two ranks, and which of them carry traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::team) struct Carriers {
    /// The number of rails that have QPs.
    rails: u32,
    without: RailSet,
}

impl Carriers {
    /// Returns the carriers if all rails below `rails` but those in `without` carry. If no rail would be left, all of them carry.
    pub(in crate::team) fn but(rails: u32, without: RailSet) -> Self {
        let left = RailSet::first(rails).without(without);
        let without = if left.is_empty() {
            RailSet::EMPTY
        } else {
            without
        };
        Self { rails, without }
    }

    /// Returns the rails that are left out.
    pub(in crate::team) const fn without(self) -> RailSet {
        self.without
    }

    /// Returns whether QPs of `rail` are connected.
    pub(in crate::team) const fn carries(self, rail: u32) -> bool {
        !self.without.contains(rail)
    }

    /// Returns the rail that carries what is posted to QPs of `rail`: `rail` itself if it carries. Otherwise the rails that carry
    /// take the places of the rails left out in turn.
    pub(in crate::team) fn of(self, rail: u32) -> u32 {
        if self.carries(rail) {
            return rail;
        }
        let left = RailSet::first(self.rails).without(self.without);
        let turn = self.without.iter().take_while(|of| *of < rail).count();
        let turn = turn.checked_rem(left.iter().count()).unwrap_or(0);
        left.iter().nth(turn).unwrap_or(rail)
    }

    /// Returns the number of the QP that carries what is posted to QP `i`; each peer has `qps` QPs.
    pub(in crate::team) fn qp(self, i: u32, qps: u32) -> u32 {
        let rails = self.rails.max(1);
        let (rail, turn) = (i % rails, i / rails);
        match self.of(rail) {
            carrier if carrier == rail => i,
            carrier => carrier + turn % qps.saturating_sub(carrier).div_ceil(rails).max(1) * rails,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::MAX_RAILS;

    fn set(rails: &[u32]) -> RailSet {
        let mut set = RailSet::EMPTY;
        rails.iter().for_each(|rail| set.insert(*rail));
        set
    }

    #[test]
    fn what_is_posted_goes_round_rails_that_are_left_out_by_others_in_turn() {
        let of = |without: &[u32]| {
            let carriers = Carriers::but(4, set(without));
            let qps: Vec<u32> = (0..8).map(|i| carriers.qp(i, 8)).collect();
            ([0, 1, 2, 3].map(|rail| carriers.of(rail)), qps)
        };
        assert_eq!(of(&[]), ([0, 1, 2, 3], vec![0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(of(&[1]), ([0, 0, 2, 3], vec![0, 0, 2, 3, 4, 4, 6, 7]));
        assert_eq!(of(&[0, 3]), ([1, 1, 2, 2], vec![1, 1, 2, 2, 5, 5, 6, 6]));
        assert_eq!(of(&[0, 1, 3]), ([2; 4], vec![2, 2, 2, 2, 6, 6, 6, 6]));
        assert_eq!(of(&[0, 1, 2, 3]), of(&[]), "none would be left");
    }

    #[test]
    fn every_qp_leads_to_one_that_is_there_and_whose_rail_carries() {
        for rails in 1..=6u32 {
            for qps in rails..=13 {
                for bits in 0..1 << rails {
                    let carriers = Carriers::but(rails, RailSet(bits));
                    for i in 0..qps {
                        let to = carriers.qp(i, qps);
                        assert!(to < qps, "{carriers:?} {i} {to}");
                        assert!(carriers.carries(to % rails), "{carriers:?} {i} {to}");
                        assert_eq!(to % rails, carriers.of(i % rails));
                        assert_eq!(carriers.qp(to, qps), to);
                    }
                }
            }
        }
    }

    #[test]
    fn rail_sets_hold_the_most_rails_and_rails_without_qps_stay_unchanged() {
        let all = RailSet::first(MAX_RAILS);
        assert_eq!(all.iter().count(), MAX_RAILS as usize);
        assert!(!all.contains(MAX_RAILS) && !all.contains(u32::MAX));
        let carriers = Carriers::but(2, set(&[0]));
        assert_eq!([0, 1, 2, 15].map(|rail| carriers.of(rail)), [1, 1, 2, 15]);
        assert_eq!(Carriers::default().qp(0, 0), 0);
        assert_eq!(set(&[0, 3]).to_string(), "[0, 3]");
    }
}
