//! Which rank holds which expert, and to which of several places a token goes.

use std::error::Error;
use std::fmt;

/// The place of an expert slot, which holds one expert at one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The rank that holds the slot.
    pub rank: u32,
    /// The index of the slot among those of the rank.
    pub local: u32,
}

/// The places of all experts. An expert may have slots at several ranks (replicas), or none at the moment. Slots are numbered rank by rank,
/// and in a rank by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Homes {
    /// The place of each slot.
    homes: Vec<Home>,
    /// The slots of each expert, in ascending order, which is the order of their ranks.
    slots: Vec<Vec<u32>>,
    /// The experts of each rank, by the index of the slot.
    held: Vec<Vec<u32>>,
}

impl Homes {
    /// Returns a table with one slot for each expert, in contiguous blocks. If `ranks` does not divide `experts`, the first
    /// `experts % ranks` ranks hold one more.
    ///
    /// # Panics
    /// If `ranks` is 0, or `experts` is 2^32 or more.
    #[must_use]
    pub fn blocks(experts: usize, ranks: usize) -> Self {
        let ids: Vec<u32> = (0..number(experts)).collect();
        let (each, more) = (experts / ranks, experts % ranks);
        let (long, short) = ids.split_at((each + 1) * more);
        let mut held: Vec<Vec<u32>> = long.chunks(each + 1).map(<[u32]>::to_vec).collect();
        held.extend(short.chunks(each.max(1)).map(<[u32]>::to_vec));
        held.resize(ranks, Vec::new());
        Self::index(experts, held)
    }

    /// Returns the table in which the slots of each rank hold these experts, by rank and index of the slot.
    ///
    /// # Errors
    /// An expert that is not below `experts`, or that is twice at one rank.
    pub fn from_slots(experts: usize, held: Vec<Vec<u32>>) -> Result<Self, HomesError> {
        for (rank, held) in held.iter().enumerate() {
            for (place, &expert) in held.iter().enumerate() {
                if expert as usize >= experts {
                    return Err(HomesError::Expert {
                        rank,
                        expert,
                        experts,
                    });
                }
                if held[..place].contains(&expert) {
                    return Err(HomesError::Twice { rank, expert });
                }
            }
        }
        Ok(Self::index(experts, held))
    }

    /// Returns the table of `held`, whose experts are below `experts`.
    fn index(experts: usize, held: Vec<Vec<u32>>) -> Self {
        let (mut homes, mut slots) = (Vec::new(), vec![Vec::new(); experts]);
        for (rank, held) in held.iter().enumerate() {
            for (local, &expert) in held.iter().enumerate() {
                slots[expert as usize].push(number(homes.len()));
                homes.push(Home {
                    rank: number(rank),
                    local: number(local),
                });
            }
        }
        Self { homes, slots, held }
    }

    /// Returns the number of ranks, including ranks without a slot.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.held.len()
    }

    /// Returns the number of experts, including experts without a slot.
    #[must_use]
    pub fn experts(&self) -> usize {
        self.slots.len()
    }

    /// Returns the place of slot `slot`.
    ///
    /// # Panics
    /// If `slot` is not below the number of slots.
    #[must_use]
    pub fn home(&self, slot: u32) -> Home {
        self.homes[slot as usize]
    }

    /// Returns the numbers of the slots that hold `expert`, in ascending order. The list is empty for an expert that does not exist.
    #[must_use]
    pub fn slots_of(&self, expert: i32) -> &[u32] {
        let slots = usize::try_from(expert).map(|expert| self.slots.get(expert));
        slots.ok().flatten().map_or(&[], Vec::as_slice)
    }

    /// Returns the experts in the slots of `rank`, by index of the slot. The list is empty for a rank that does not exist.
    #[must_use]
    pub fn of_rank(&self, rank: u32) -> &[u32] {
        self.held.get(rank as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns the slot that a choice of `expert` by token `token` of `rank` goes to, among slots at ranks that are `alive`. It is the
    /// rank's own slot if the rank has one. If not, it is slot (`token` + `rank`) modulo the number of slots, so that slots take turns.
    /// `None`: no living rank holds the expert.
    pub fn choose(
        &self,
        expert: i32,
        token: u32,
        rank: u32,
        alive: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut there = Vec::new();
        for &slot in self.slots_of(expert) {
            let home = self.home(slot);
            if !alive(home.rank) {
                continue;
            }
            if home.rank == rank {
                return Some(slot);
            }
            there.push(slot);
        }
        match there.len() {
            0 => None,
            places => Some(there[(token as usize + rank as usize) % places]),
        }
    }
}

/// An invalid table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HomesError {
    /// A slot for an expert that does not exist.
    Expert {
        /// The rank of the slot.
        rank: usize,
        /// The id that the slot names.
        expert: u32,
        /// The number of experts of the layer. Ids are below it.
        experts: usize,
    },
    /// Two slots of one rank that hold the same expert.
    Twice {
        /// The rank that holds both slots.
        rank: usize,
        /// The expert that both slots hold.
        expert: u32,
    },
}

impl fmt::Display for HomesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expert {
                rank,
                expert,
                experts,
            } => write!(
                f,
                "a slot of rank {rank} holds expert {expert}; it must be below {experts}"
            ),
            Self::Twice { rank, expert } => write!(f, "rank {rank} holds expert {expert} twice"),
        }
    }
}

impl Error for HomesError {}

/// Returns a number of ranks, slots, tokens or experts in 32 bits, which it always fits.
pub(crate) fn number(value: usize) -> u32 {
    u32::try_from(value).expect("fewer than 2^32 ranks, slots, tokens and experts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ranks_hold_one_expert_more_where_the_division_has_a_rest() {
        let homes = Homes::blocks(10, 4);
        let of = |homes: &Homes| -> Vec<Vec<u32>> {
            let ranks = 0..number(homes.ranks());
            ranks.map(|rank| homes.of_rank(rank).to_vec()).collect()
        };
        assert_eq!(
            of(&homes),
            [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7], vec![8, 9]]
        );
        assert_eq!(homes.home(7), Home { rank: 2, local: 1 });
        assert_eq!(homes.slots_of(7), [7]);
        assert!(homes.slots_of(-1).is_empty() && homes.slots_of(10).is_empty());
        assert_eq!(of(&Homes::blocks(2, 4)), [vec![0], vec![1], vec![], vec![]]);
        assert_eq!(of(&Homes::blocks(4, 2)), [[0, 1], [2, 3]]);
    }

    #[test]
    fn a_choice_goes_to_the_own_replica_or_takes_turns_among_those_alive() {
        let held = vec![vec![0, 1], vec![1, 2], vec![2, 1]];
        let homes = Homes::from_slots(4, held).unwrap();
        assert_eq!(homes.slots_of(1), [1, 2, 5]);
        let choose = |expert, token, rank| homes.choose(expert, token, rank, |_| true);
        assert_eq!(choose(1, 7, 2), Some(5));
        assert_eq!(
            [0, 1, 2].map(|token| choose(2, token, 0)),
            [Some(3), Some(4), Some(3)]
        );
        assert_eq!((choose(3, 0, 0), choose(-1, 0, 0)), (None, None));
        let without_1 = |expert, token| homes.choose(expert, token, 1, |rank| rank != 1);
        assert_eq!([0, 1].map(|t| without_1(1, t)), [Some(5), Some(1)]);
        assert_eq!([0, 1].map(|t| without_1(2, t)), [Some(4), Some(4)]);
        assert_eq!(homes.choose(0, 0, 1, |rank| rank != 0), None);
    }

    #[test]
    fn a_table_that_cannot_be_is_refused_by_what_is_wrong_with_it() {
        let message = |held| Homes::from_slots(4, held).unwrap_err().to_string();
        assert_eq!(
            message(vec![vec![3], vec![0, 4]]),
            "a slot of rank 1 holds expert 4; it must be below 4"
        );
        assert_eq!(
            message(vec![vec![3], vec![0, 3, 0]]),
            "rank 1 holds expert 0 twice"
        );
    }
}
