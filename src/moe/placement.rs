//! Which rank holds which expert: a table of expert slots.
//!
//! An expert slot is a place for one expert at one rank. An expert may have several slots at different ranks (replicas), or none
//! for now. Slots are numbered rank by rank, and within a rank in order.

use std::sync::Arc;

use super::MoeError;
use super::limits::MAX_EXPERT_SLOTS;

/// The place of an expert slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The rank that holds the slot.
    pub rank: u32,
    /// The place of the slot among the slots of that rank.
    pub local: u32,
}

/// The room in the tables of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) experts: u32,
    pub(super) ranks: u32,
    /// Expert slots of each rank.
    pub(super) room: u32,
}

impl Capacity {
    /// Refuses a placement of other experts or ranks, or of more experts at a rank than there is room for.
    pub(super) fn check(&self, placement: &Placement) -> Result<(), MoeError> {
        let (experts, ranks) = (placement.experts(), placement.ranks());
        let is_of_layer = experts == self.experts as usize && ranks == self.ranks as usize;
        if is_of_layer && placement.most_local() <= self.room {
            return Ok(());
        }
        Err(MoeError::Placement {
            experts,
            ranks,
            want_experts: self.experts,
            want_ranks: self.ranks,
        })
    }
}

/// Which expert each slot of each rank holds: the table that host and kernels go by. A clone shares the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement(Arc<Tables>);

#[derive(Debug, PartialEq, Eq)]
struct Tables {
    /// The place of each slot.
    homes: Vec<Home>,
    /// The slots of each expert in ascending order, which is that of their ranks.
    slots: Vec<Vec<u32>>,
    /// `[rank][place]`: the expert in each slot.
    held: Vec<Vec<u32>>,
}

impl Placement {
    /// Returns a placement with one slot for each expert, in contiguous blocks. If `ranks` does not divide `experts`, the first
    /// `experts % ranks` ranks hold one more.
    #[must_use]
    pub fn blocks(experts: u32, ranks: u32) -> Self {
        let (each, more) = (experts / ranks, experts % ranks);
        let mut next = 0;
        let block = |rank: u32| {
            let first = next;
            next += each + u32::from(rank < more);
            (first..next).collect()
        };
        Self::index(experts, (0..ranks).map(block).collect())
    }

    /// Returns a placement with one slot for each expert, in contiguous blocks over `members` in ascending order. A rank outside
    /// `members` and a member outside `0..ranks` hold nothing. If the members have fewer slots than there are experts, with `room`
    /// slots each, the experts after the last slot have none.
    #[must_use]
    pub fn spread(experts: u32, ranks: u32, members: &[u32], room: u32) -> Self {
        let mut members: Vec<u32> = members.to_vec();
        members.retain(|member| *member < ranks);
        members.sort_unstable();
        members.dedup();
        let mut held = vec![Vec::new(); ranks as usize];
        let count = u32::try_from(members.len()).expect("at most as many as there are ranks");
        if count == 0 {
            return Self::index(experts, held);
        }
        let (each, more) = (experts / count, experts % count);
        let mut next = 0;
        for (place, member) in (0u32..).zip(members) {
            let block = (each + u32::from(place < more)).min(room);
            held[member as usize] = (next..next + block).collect();
            next += block;
        }
        Self::index(experts, held)
    }

    /// Returns a placement with one slot for each expert: `rank_of` gives the rank of expert 0, 1, and so on. A rank's experts are
    /// in ascending order.
    ///
    /// # Errors
    /// A rank that is not below `ranks`. More slots than the limit.
    pub fn from_ranks(
        rank_of: impl IntoIterator<Item = u32>,
        ranks: u32,
    ) -> Result<Self, MoeError> {
        let mut held = vec![Vec::new(); ranks as usize];
        let mut experts = 0;
        for rank in rank_of {
            let Some(held) = held.get_mut(rank as usize) else {
                return Err(MoeError::Shape {
                    name: "rank of an expert",
                    value: rank,
                    least: 0,
                    most: ranks.saturating_sub(1),
                });
            };
            held.push(experts);
            experts += 1;
        }
        Self::from_slots(experts, held)
    }

    /// Returns a placement with the slots of `held`: the experts of each rank, by rank and place. An expert may be at several
    /// ranks, or at none.
    ///
    /// # Errors
    /// An expert that is not below `experts`, or is twice at one rank. More slots than the limit.
    pub fn from_slots(experts: u32, held: Vec<Vec<u32>>) -> Result<Self, MoeError> {
        let slots: usize = held.iter().map(Vec::len).sum();
        if slots > MAX_EXPERT_SLOTS as usize {
            return Err(MoeError::Shape {
                name: "number of expert slots",
                value: u32::try_from(slots).unwrap_or(u32::MAX),
                least: 0,
                most: MAX_EXPERT_SLOTS,
            });
        }
        for (rank, held) in held.iter().enumerate() {
            let mut seen = vec![false; experts as usize];
            for &expert in held {
                match seen.get_mut(expert as usize) {
                    Some(seen) if *seen => return Err(MoeError::ReplicaTwice { rank, expert }),
                    Some(seen) => *seen = true,
                    None => {
                        return Err(MoeError::SlotExpert {
                            rank,
                            expert,
                            experts,
                        });
                    }
                }
            }
        }
        Ok(Self::index(experts, held))
    }

    /// Makes the tables of `held`, whose experts are below `experts`.
    fn index(experts: u32, held: Vec<Vec<u32>>) -> Self {
        let mut homes = Vec::new();
        let mut slots = vec![Vec::new(); experts as usize];
        let mut slot = 0;
        for (rank, held) in (0u32..).zip(&held) {
            for (local, &expert) in (0u32..).zip(held) {
                homes.push(Home { rank, local });
                slots[expert as usize].push(slot);
                slot += 1;
            }
        }
        Self(Arc::new(Tables { homes, slots, held }))
    }

    /// Returns the number of experts, those without a slot included.
    #[must_use]
    pub fn experts(&self) -> usize {
        self.0.slots.len()
    }

    /// Returns the number of ranks, those without a slot included.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.0.held.len()
    }

    /// Returns the place of every slot, by number.
    #[must_use]
    pub fn homes(&self) -> &[Home] {
        &self.0.homes
    }

    /// Returns the numbers of the slots that hold `expert`, in ascending order; none for an expert that does not exist.
    #[must_use]
    pub fn slots_of(&self, expert: i32) -> &[u32] {
        let index = usize::try_from(expert).ok();
        index
            .and_then(|index| self.0.slots.get(index))
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the experts in the slots of `rank`, by place; none for a rank that does not exist.
    #[must_use]
    pub fn of_rank(&self, rank: u32) -> &[u32] {
        self.0.held.get(rank as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of slots of the rank that has most.
    #[must_use]
    pub fn most_local(&self) -> u32 {
        let most = self.0.held.iter().map(Vec::len).max().unwrap_or(0);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Returns the slot that serves a choice of `expert` by token `token` of `rank`, out of those at ranks that are `alive`. If the
    /// rank itself has a slot of the expert, it is that one; otherwise the slots take turns. Returns `None` if no living rank holds
    /// the expert.
    pub fn choose(
        &self,
        expert: i32,
        token: u32,
        rank: u32,
        alive: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let rank_of = |slot: u32| self.0.homes[slot as usize].rank;
        let there = self.slots_of(expert).iter().copied();
        let there: Vec<u32> = there.filter(|&slot| alive(rank_of(slot))).collect();
        let own = there.iter().copied().find(|&slot| rank_of(slot) == rank);
        let turn = || there.get((token as usize + rank as usize).checked_rem(there.len())?);
        own.or_else(|| turn().copied())
    }

    /// Returns a text that is the same for equal tables only: the table itself if it is short, otherwise a digest.
    pub(super) fn fingerprint(&self) -> String {
        if self.0.homes.len() <= 64 {
            return format!("{:?}", self.0.held);
        }
        let mut digest = 0xcbf2_9ce4_8422_2325u64;
        for (home, &expert) in self.0.homes.iter().zip(self.0.held.iter().flatten()) {
            for word in [home.rank, expert] {
                for byte in word.to_le_bytes() {
                    digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                }
            }
        }
        format!("{} slots, digest {digest:016x}", self.0.homes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ranks_hold_one_expert_more_where_the_division_has_a_rest() {
        let placement = Placement::blocks(10, 4);
        assert_eq!(placement.of_rank(0), [0, 1, 2]);
        assert_eq!(placement.of_rank(1), [3, 4, 5]);
        assert_eq!(placement.of_rank(2), [6, 7]);
        assert_eq!(placement.of_rank(3), [8, 9]);
        assert_eq!(placement.homes()[7], Home { rank: 2, local: 1 });
        assert_eq!(placement.slots_of(7), [7]);
        assert!(placement.slots_of(-1).is_empty() && placement.slots_of(10).is_empty());
        assert_eq!(placement.most_local(), 3);
    }

    #[test]
    fn fewer_experts_than_ranks_leaves_ranks_without_one() {
        let placement = Placement::blocks(2, 5);
        assert_eq!(placement.of_rank(1), [1]);
        assert!(placement.of_rank(4).is_empty());
    }

    #[test]
    fn experts_are_spread_over_the_members_as_far_as_there_is_room() {
        let all = Placement::spread(10, 4, &[3, 0, 2, 1, 0], 3);
        assert_eq!(all, Placement::blocks(10, 4));
        let two = Placement::spread(10, 4, &[3, 1], 5);
        let of = |placement: &Placement| -> Vec<Vec<u32>> {
            (0..4)
                .map(|rank| placement.of_rank(rank).to_vec())
                .collect()
        };
        assert_eq!(
            of(&two),
            [vec![], vec![0, 1, 2, 3, 4], vec![], vec![5, 6, 7, 8, 9]]
        );
        let full = Placement::spread(10, 4, &[3, 1], 3);
        assert_eq!(of(&full), [vec![], vec![0, 1, 2], vec![], vec![3, 4, 5]]);
        assert!(full.slots_of(6).is_empty() && full.slots_of(9).is_empty());
        let nobody = Placement::spread(10, 4, &[4], 3);
        assert_eq!((nobody.homes().len(), nobody.experts()), (0, 10));
    }

    #[test]
    fn a_table_may_scatter_the_experts() {
        let placement = Placement::from_ranks([1, 0, 1, 1], 2).unwrap();
        assert_eq!(placement.of_rank(1), [0, 2, 3]);
        assert_eq!(placement.slots_of(3), [3]);
        assert_eq!(placement.slots_of(1), [0]);
        assert_eq!(placement.homes()[3], Home { rank: 1, local: 2 });
    }

    #[test]
    fn a_choice_goes_to_the_own_replica_or_takes_turns_among_those_alive() {
        let held = vec![vec![0, 1], vec![1, 2], vec![2, 1]];
        let placement = Placement::from_slots(4, held).unwrap();
        assert_eq!(placement.slots_of(1), [1, 2, 5]);
        let choose = |expert, token, rank| placement.choose(expert, token, rank, |_| true);
        assert_eq!(choose(1, 7, 2), Some(5));
        assert_eq!(
            [0, 1, 2].map(|token| choose(2, token, 0)),
            [Some(3), Some(4), Some(3)]
        );
        assert_eq!((choose(3, 0, 0), choose(-1, 0, 0)), (None, None));
        let without_1 = |expert, token| placement.choose(expert, token, 1, |rank: u32| rank != 1);
        assert_eq!([0, 1].map(|t| without_1(1, t)), [Some(5), Some(1)]);
        assert_eq!([0, 1].map(|t| without_1(2, t)), [Some(4), Some(4)]);
        assert_eq!(placement.choose(0, 0, 1, |rank| rank != 0), None);
    }

    #[test]
    fn a_table_that_cannot_be_is_refused_by_what_is_wrong_with_it() {
        let message = |experts, held| {
            Placement::from_slots(experts, held)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            message(4, vec![vec![3], vec![0, 4]]),
            "a slot of rank 1 holds expert 4; the layer has 4 experts"
        );
        assert_eq!(
            message(4, vec![vec![3], vec![0, 3, 0]]),
            "rank 1 holds expert 0 twice"
        );
        assert_eq!(
            Placement::from_ranks([0, 2], 2).unwrap_err().to_string(),
            "rank of an expert is 2; it must be 0 to 1"
        );
        let many = |more: u32| {
            let mut held = vec![(0..4096).collect::<Vec<u32>>(); 16];
            held.push((0..more).collect());
            Placement::from_slots(4096, held)
        };
        assert_eq!(many(0).unwrap().homes().len(), 65_536);
        assert_eq!(
            many(1).unwrap_err().to_string(),
            "number of expert slots is 65537; it must be 0 to 65536"
        );
    }

    #[test]
    fn equal_tables_only_have_equal_fingerprints() {
        let large = |swap: bool| {
            let mut first: Vec<u32> = (0..50).collect();
            if swap {
                first.swap(3, 4);
            }
            Placement::from_slots(50, vec![first, (0..50).collect()]).unwrap()
        };
        assert_eq!(large(false).fingerprint(), large(false).fingerprint());
        assert_ne!(large(false).fingerprint(), large(true).fingerprint());
        assert_eq!(Placement::blocks(3, 2).fingerprint(), "[[0, 1], [2]]");
    }
}
