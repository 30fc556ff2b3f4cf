//! The shape of a MoE layer, its limits, and which rank holds which expert.

use super::MoeError;
use crate::abi::{MAX_HIDDEN, MAX_MOE_RANKS, MAX_MOE_TOKENS, MAX_TOP_K};

/// Most experts of a layer.
pub const MAX_EXPERTS: u32 = 4096;
/// Most ranks that share a layer.
pub const MAX_RANKS: u32 = MAX_MOE_RANKS;

/// What a token is made of on its way to the experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// BF16.
    #[default]
    Bf16,
    /// FP8 (e4m3) with one scale for each 128 channels: cast in dispatch, or given so by the caller.
    Fp8(Scales),
    /// Bytes that the library does not look into, FP4 for example.
    Opaque {
        /// Bytes of a token: a multiple of 16.
        payload_bytes: u32,
        /// Bytes of its scales: a multiple of 4, or 0.
        scale_bytes: u32,
    },
}

/// How the scales of FP8 are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scales {
    /// f32.
    #[default]
    F32,
    /// f32, rounded up to a power of two.
    PowerOfTwo,
    /// The exponent byte of such a power (UE8M0), four to a 32-bit word.
    Ue8m0,
}

/// How dispatch lays out what it received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowLayout {
    /// By local expert, `[local experts, ranks · max_tokens]`.
    #[default]
    ExpertMajor,
    /// By source, `[ranks, max_tokens]`: each token once.
    RankMajor,
}

/// What combine sends back for a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Returns {
    /// One row for each rank: the sum over its experts.
    #[default]
    Sums,
    /// One row for each expert, for callers that know the weights only at combine.
    Rows,
}

/// The shape of one MoE layer; the same at every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoeConfig {
    /// BF16 elements of a token: a multiple of 8, at most 16,384.
    pub hidden: u32,
    /// Experts of all ranks together.
    pub experts: u32,
    /// Experts that a token may choose, 1 to 32.
    pub top_k: u32,
    /// Most tokens that a rank dispatches in one call, 1 to 65,534.
    pub max_tokens: u32,
    /// What a token is made of.
    pub format: Format,
    /// How dispatch lays out what it received.
    pub layout: RowLayout,
    /// What combine sends back.
    pub returns: Returns,
}

impl MoeConfig {
    /// BF16, laid out by expert, sums sent back; the shape itself is still to be filled in.
    pub const BF16: Self = Self {
        hidden: 0,
        experts: 0,
        top_k: 0,
        max_tokens: 0,
        format: Format::Bf16,
        layout: RowLayout::ExpertMajor,
        returns: Returns::Sums,
    };

    /// Refuses a shape beyond the limits, for a team of `ranks`.
    pub fn check(&self, ranks: u32) -> Result<(), MoeError> {
        let limits = [
            ("ranks", ranks, 1, MAX_RANKS),
            ("hidden", self.hidden, 8, MAX_HIDDEN),
            ("experts", self.experts, 1, MAX_EXPERTS),
            ("top-k", self.top_k, 1, MAX_TOP_K),
            ("max_tokens", self.max_tokens, 1, MAX_MOE_TOKENS),
        ];
        for (name, value, least, most) in limits {
            if !(least..=most).contains(&value) {
                return Err(MoeError::Shape {
                    name,
                    value,
                    least,
                    most,
                });
            }
        }
        if !self.hidden.is_multiple_of(8) {
            return Err(MoeError::Hidden { value: self.hidden });
        }
        if self.top_k > self.experts {
            return Err(MoeError::Shape {
                name: "top-k",
                value: self.top_k,
                least: 1,
                most: self.experts,
            });
        }
        Ok(())
    }
}

/// Where an expert lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its rank.
    pub rank: u32,
    /// Its place among the experts of that rank.
    pub local: u32,
}

/// Which rank holds which expert: the table that host and kernels go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    homes: Vec<Home>,
    experts_of: Vec<Vec<u32>>,
}

impl Placement {
    /// Contiguous blocks; where `ranks` does not divide `experts`, the first `experts % ranks` ranks hold one more.
    #[must_use]
    pub fn blocks(experts: u32, ranks: u32) -> Self {
        let (each, more) = (experts / ranks, experts % ranks);
        let rank_of = (0..ranks).flat_map(|rank| {
            let count = each + u32::from(rank < more);
            std::iter::repeat_n(rank, count as usize)
        });
        Self::from_ranks(rank_of, ranks)
    }

    /// Expert e lives at the e-th rank of `rank_of`; a rank numbers its experts in their order.
    ///
    /// # Panics
    /// If a rank is not below `ranks`.
    #[must_use]
    pub fn from_ranks(rank_of: impl IntoIterator<Item = u32>, ranks: u32) -> Self {
        let mut experts_of = vec![Vec::new(); ranks as usize];
        let homes = (0u32..)
            .zip(rank_of)
            .map(|(expert, rank)| {
                let held: &mut Vec<u32> = &mut experts_of[rank as usize];
                held.push(expert);
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "fewer than there are expert numbers"
                )]
                let local = held.len() as u32 - 1;
                Home { rank, local }
            })
            .collect();
        Self { homes, experts_of }
    }

    /// Experts of all ranks.
    #[must_use]
    pub fn experts(&self) -> usize {
        self.homes.len()
    }

    /// Ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.experts_of.len()
    }

    /// Where `expert` lives; `None` if there is no such expert.
    #[must_use]
    pub fn home(&self, expert: i32) -> Option<Home> {
        let index = usize::try_from(expert).ok()?;
        self.homes.get(index).copied()
    }

    /// The experts of `rank`, in the order of their local numbers; none for a rank that does not exist.
    #[must_use]
    pub fn of_rank(&self, rank: u32) -> &[u32] {
        self.experts_of
            .get(rank as usize)
            .map_or(&[], Vec::as_slice)
    }

    /// Every expert's home, by expert number.
    #[must_use]
    pub fn homes(&self) -> &[Home] {
        &self.homes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: MoeConfig = MoeConfig {
        hidden: 384,
        experts: 64,
        top_k: 8,
        max_tokens: 128,
        ..MoeConfig::BF16
    };

    #[test]
    fn the_first_ranks_hold_one_expert_more_where_the_division_has_a_rest() {
        let placement = Placement::blocks(10, 4);
        assert_eq!(placement.of_rank(0), [0, 1, 2]);
        assert_eq!(placement.of_rank(1), [3, 4, 5]);
        assert_eq!(placement.of_rank(2), [6, 7]);
        assert_eq!(placement.of_rank(3), [8, 9]);
        assert_eq!(placement.home(7), Some(Home { rank: 2, local: 1 }));
        assert_eq!((placement.home(-1), placement.home(10)), (None, None));
    }

    #[test]
    fn fewer_experts_than_ranks_leaves_ranks_without_one() {
        let placement = Placement::blocks(2, 5);
        assert_eq!(placement.of_rank(1), [1]);
        assert!(placement.of_rank(4).is_empty());
    }

    #[test]
    fn a_table_may_scatter_the_experts() {
        let placement = Placement::from_ranks([1, 0, 1, 1], 2);
        assert_eq!(placement.of_rank(1), [0, 2, 3]);
        assert_eq!(placement.home(3), Some(Home { rank: 1, local: 2 }));
    }

    #[test]
    fn a_shape_beyond_a_limit_is_refused_by_name_value_and_limit() {
        let message = |shape: MoeConfig| shape.check(4).unwrap_err().to_string();
        assert_eq!(SHAPE.check(4).ok(), Some(()));
        assert_eq!(
            message(MoeConfig {
                hidden: 380,
                ..SHAPE
            }),
            "hidden is 380, which is not a multiple of 8"
        );
        assert_eq!(
            message(MoeConfig { top_k: 33, ..SHAPE }),
            "top-k is 33; it must be 1 to 32"
        );
        assert_eq!(
            message(MoeConfig {
                max_tokens: 65_535,
                ..SHAPE
            }),
            "max_tokens is 65535; it must be 1 to 65534"
        );
        assert_eq!(
            message(MoeConfig {
                experts: 4,
                ..SHAPE
            }),
            "top-k is 8; it must be 1 to 4"
        );
        assert_eq!(
            SHAPE.check(0).unwrap_err().to_string(),
            "ranks is 0; it must be 1 to 1024"
        );
    }
}
