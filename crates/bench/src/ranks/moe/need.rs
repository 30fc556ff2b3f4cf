//! What a step needs by its routing: the least bytes, and what DeepEP's algorithm posts. All of it is computed, not measured.

use std::collections::BTreeSet;

use super::case::MoeCase;
use warpverbs::moe::{Placement, Returns};

/// What one phase puts on the wire, summed over the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Need {
    /// The number of work requests, signals among them.
    pub wqes: u64,
    /// The number of stores to a doorbell register.
    pub doorbells: u64,
    /// The number of words that announce data to a peer.
    pub signals: u64,
    /// The number of payload bytes.
    pub bytes: u64,
}

/// The number of work requests of DeepEP that share a doorbell.
const A_DOORBELL: u64 = 4;

/// Returns how many (token, expert) and how many (token, rank) pairs of all tokens have an expert at another rank.
fn pairs(case: &MoeCase) -> (u64, u64) {
    let placement = Placement::blocks(case.config.experts, case.ranks);
    let (mut experts, mut ranks) = (0, 0);
    for rank in 0..case.ranks {
        for token in case.choices(rank).chunks(case.config.top_k as usize) {
            let of = |expert: &i32| holder(&placement, *expert);
            let remote: Vec<u32> = token.iter().map(of).filter(|home| *home != rank).collect();
            experts += remote.len() as u64;
            ranks += remote.iter().collect::<BTreeSet<_>>().len() as u64;
        }
    }
    (experts, ranks)
}

fn holder(placement: &Placement, expert: i32) -> u32 {
    (0u32..)
        .take(placement.ranks())
        .find(|rank| placement.of_rank(*rank).contains(&expert.unsigned_abs()))
        .expect("every expert has a rank")
}

/// Returns what DeepEP posts in one phase, for BF16. It posts a work request for each token and expert of another rank. It posts a signal
/// for each expert of another rank (dispatch) or for each rank (combine).
pub(super) fn deepep(case: &MoeCase) -> Need {
    let rows = pairs(case).0;
    // Each rank signals every expert of the others, or each expert signals every other rank. The number is the same.
    let experts = u64::from(case.config.experts);
    let signals = experts * u64::from(case.ranks) - experts;
    let wqes = rows + signals;
    Need {
        wqes,
        doorbells: wqes.div_ceil(A_DOORBELL),
        signals,
        bytes: rows * u64::from(case.config.hidden) * 2,
    }
}

/// Returns the least payload bytes of one phase, for BF16: one copy of a token for each other rank that it goes to. Each rank sends back
/// one partial sum, or one row for each of its experts.
#[must_use]
pub fn lower_bound(case: &MoeCase, combine: bool) -> u64 {
    let (experts, ranks) = pairs(case);
    let rows = match case.config.returns {
        Returns::Rows if combine => experts,
        _ => ranks,
    };
    rows * u64::from(case.config.hidden) * 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::moe::Routing;
    use warpverbs::moe::MoeConfig;

    fn case(ranks: u32) -> MoeCase {
        MoeCase {
            ranks,
            config: MoeConfig::BF16
                .with_hidden(7168)
                .with_experts(256)
                .with_top_k(8)
                .with_max_tokens(128),
            routing: Routing::Uniform,
            seed: 1,
        }
    }

    #[test]
    fn one_rank_alone_needs_nothing() {
        assert_eq!(
            (deepep(&case(1)), lower_bound(&case(1), false)),
            (Need::default(), 0)
        );
    }

    #[test]
    fn a_copy_per_expert_takes_half_as_much_again_as_a_copy_per_rank() {
        let (ours, theirs) = (lower_bound(&case(8), false), deepep(&case(8)));
        // 8 * (1 - (7/8)^8) = 5.25 of 8 ranks are expected, of which 7/8 are others.
        assert!(theirs.bytes * 100 > ours * 145 && theirs.bytes * 100 < ours * 160);
        assert_eq!(theirs.signals, 8 * 256 - 256);
        assert_eq!(theirs.wqes - theirs.signals, theirs.bytes / 14_336);
        assert_eq!(theirs.doorbells, theirs.wqes.div_ceil(4));
    }
}
