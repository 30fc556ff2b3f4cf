//! Oracles: pure functions that judge whether the results of a call at one rank fit the inputs of all ranks.
//!
//! The oracles know the rules of a call but none of the code that follows them, neither the reference nor the kernels. A [`Case`] holds the
//! inputs of all ranks, and which rank reached which. The functions of [`by_expert`], [`by_rank`], [`payload`] and [`combine`] compare one
//! output of one rank with the case and return the first [`Finding`]. If an order is not promised they compare sets, and [`digest`] makes
//! one number of a set that no order changes.
//!
//! ```
//! use moe_reference::oracle::by_rank::{self, ByRank};
//! use moe_reference::oracle::{Case, Input, places};
//! use moe_reference::{Homes, Returns, Shape};
//!
//! // Two ranks hold one expert each. Rank 0 has one token, which chooses the expert of rank 1.
//! let shape = Shape { hidden: 8, experts: 2, top_k: 1, max_tokens: 1, returns: Returns::Sums };
//! let sent = Input { x: vec![7; 16], experts: vec![1], weights: vec![1.0], ..Input::default() };
//! let case = Case::new(&shape, places(&Homes::blocks(2, 2)), vec![sent, Input::default()]);
//!
//! // What a kernel left at rank 1, `[ranks, max_tokens]`, in outputs that were full of 0xa5 before.
//! let mut out = ByRank {
//!     recv_x: [[7; 16], [0xa5; 16]].concat(),
//!     recv_scales: vec![],
//!     counts: vec![1, 0],
//!     src_info: vec![0, u32::MAX],
//!     recv_experts: vec![0, -1],
//!     recv_weights: vec![1.0, 0.0],
//!     poison: 0xa5,
//! };
//! assert_eq!(by_rank::check(&case, 1, &out), Ok(()));
//!
//! out.recv_x[3] = 8;
//! assert_eq!(
//!     by_rank::check(&case, 1, &out).unwrap_err().to_string(),
//!     "rank 0 row 0, token 0 of rank 0: byte 3 is 0x08, not 0x07",
//! );
//! ```

pub mod by_expert;
pub mod by_rank;
pub mod combine;
pub mod digest;
mod finding;
pub mod payload;
#[cfg(test)]
mod tests;

pub use finding::Finding;

use crate::format::Scales;
use crate::homes::number;
use crate::{Home, Homes, Shape};

/// The input of one rank to a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// The tokens as they are given to dispatch, `[tokens, bytes of a token]`.
    pub x: Vec<u8>,
    /// The scales of the tokens, if the caller gives them, `[tokens, bytes of the scales]`.
    pub scales: Vec<u8>,
    /// The choices, `[tokens, top_k]`. -1 is no choice.
    pub experts: Vec<i32>,
    /// The weights, `[tokens, top_k]`.
    pub weights: Vec<f32>,
}

/// The format in which a token arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The token arrives as it was given: BF16, opaque bytes, or FP8 of the caller.
    AsIs {
        /// The bytes of a token.
        row_bytes: usize,
        /// The bytes of its scales.
        scale_bytes: usize,
        /// True if it is FP8. Scales by expert then have the first word of all rows, then the second word of all rows, and so on.
        fp8: bool,
    },
    /// The token is given as BF16, and arrives as FP8 with a scale for each 128 channels.
    Cast(Scales),
}

/// One call of all ranks.
#[derive(Clone, Debug)]
pub struct Case {
    /// The number of elements of a token.
    pub hidden: usize,
    /// The number of choices of a token.
    pub top_k: usize,
    /// The most tokens of a rank.
    pub max_tokens: usize,
    /// The number of expert slots for which each rank has room.
    pub room: usize,
    /// The format in which tokens arrive.
    pub wire: Wire,
    /// The places that hold each expert, in the order of the table. An expert without a place is lost.
    pub places: Vec<Vec<Home>>,
    /// The input of each rank.
    pub inputs: Vec<Input>,
    /// `[source][peer]`: whether the source takes the peer for active when it dispatches.
    pub active: Vec<Vec<bool>>,
    /// `[source][peer]`: whether the rows of the source arrive at the peer.
    pub arrived: Vec<Vec<bool>>,
    /// `[source][peer]`: whether the results of these rows come back.
    pub returned: Vec<Vec<bool>>,
}

/// One token at one rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The rank from which the token comes.
    pub source: u32,
    /// The row of the token in the input of that rank.
    pub token: u32,
    /// The choices of the token at this rank: (k, local expert), in ascending k.
    pub picks: Vec<(usize, u32)>,
}

impl Case {
    /// Returns a case in which every rank reaches every rank.
    #[must_use]
    pub fn new(shape: &Shape, places: Vec<Vec<Home>>, inputs: Vec<Input>) -> Self {
        let all = vec![vec![true; inputs.len()]; inputs.len()];
        let room = (0u32..).take(inputs.len()).map(|rank| {
            let held = places.iter().flatten().filter(|place| place.rank == rank);
            held.count()
        });
        Self {
            hidden: shape.hidden,
            top_k: shape.top_k,
            max_tokens: shape.max_tokens,
            room: room.max().unwrap_or(0),
            wire: Wire::AsIs {
                row_bytes: shape.hidden * 2,
                scale_bytes: 0,
                fp8: false,
            },
            places,
            inputs,
            active: all.clone(),
            arrived: all.clone(),
            returned: all,
        }
    }

    /// Returns the number of ranks of the case.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the number of tokens of `rank`.
    #[must_use]
    pub fn tokens(&self, rank: usize) -> usize {
        self.inputs[rank].experts.len() / self.top_k
    }

    /// Returns the number of rows between two experts of an output by expert.
    #[must_use]
    pub fn rows_of_an_expert(&self) -> usize {
        self.ranks() * self.max_tokens
    }

    /// Returns the place that the source picks for choice `k` of a token. `None`: no choice, or an expert that no active rank holds. If the
    /// source holds the expert, it picks itself. If not, the places at active ranks take turns.
    fn pick(&self, source: usize, token: usize, k: usize) -> Option<Home> {
        let expert = usize::try_from(self.inputs[source].experts[token * self.top_k + k]).ok()?;
        let at_active = |place: &&Home| self.active[source][place.rank as usize];
        let alive: Vec<Home> = self.places[expert]
            .iter()
            .filter(at_active)
            .copied()
            .collect();
        let own = alive.iter().find(|place| place.rank as usize == source);
        own.or_else(|| alive.get((token + source) % alive.len().max(1)))
            .copied()
    }

    /// Returns the rows that arrive at `rank`, in the order (source, token).
    #[must_use]
    pub fn rows_at(&self, rank: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for source in (0..self.ranks()).filter(|&source| self.arrived[source][rank]) {
            for token in 0..self.tokens(source) {
                let picks: Vec<(usize, u32)> = (0..self.top_k)
                    .filter_map(|k| {
                        let place = self.pick(source, token, k)?;
                        (place.rank as usize == rank).then_some((k, place.local))
                    })
                    .collect();
                if !picks.is_empty() {
                    rows.push(Row {
                        source: number(source),
                        token: number(token),
                        picks,
                    });
                }
            }
        }
        rows
    }

    /// Returns the ranks to which a token of `source` goes.
    #[must_use]
    pub fn ranks_of(&self, source: usize, token: usize) -> Vec<u32> {
        let picks = (0..self.top_k).filter_map(|k| self.pick(source, token, k));
        let mut ranks: Vec<u32> = picks.map(|place| place.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Returns whether all experts of a token contribute to its sum.
    #[must_use]
    pub fn is_whole(&self, source: usize, token: usize) -> bool {
        (0..self.top_k).all(|k| {
            self.inputs[source].experts[token * self.top_k + k] < 0
                || self.contributes(source, token, k)
        })
    }

    /// Returns whether the result of a choice's expert is part of the sum.
    pub(crate) fn contributes(&self, source: usize, token: usize, k: usize) -> bool {
        self.pick(source, token, k).is_some_and(|place| {
            let peer = place.rank as usize;
            self.arrived[source][peer] && self.returned[source][peer]
        })
    }

    /// Returns the id of the expert at a place, for the experts of a test.
    #[must_use]
    pub fn expert_at(&self, rank: usize, local: u32) -> Option<u32> {
        let here = |place: &Home| place.rank as usize == rank && place.local == local;
        let at = self
            .places
            .iter()
            .position(|places| places.iter().any(here))?;
        Some(number(at))
    }
}

/// Returns the places of each expert, from the table of slots.
#[must_use]
pub fn places(homes: &Homes) -> Vec<Vec<Home>> {
    let home = |slot: &u32| homes.home(*slot);
    let of = |expert: usize| {
        let slots = homes.slots_of(i32::try_from(expert).unwrap_or(-1));
        slots.iter().map(home).collect()
    };
    (0..homes.experts()).map(of).collect()
}
