//! Dispatch and combine as scalar loops: what the kernels must equal, bit for bit.
//!
//! The order of every sum is fixed, so results do not depend on who arrives first. The rank of an expert adds
//! `weight · y` of its experts in ascending k, in f32 with each product and each sum rounded, and rounds the sum once to
//! BF16; the source adds these partial sums in the order of the ranks in f32 and rounds once to BF16.

use super::bf16;
use super::{MoeConfig, MoeError, Placement, check_routing};

/// The input of one rank's dispatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Tokens, BF16 bits, `[tokens, hidden]`.
    pub x: Vec<u16>,
    /// Chosen experts, `[tokens, top_k]`; -1 is no choice.
    pub experts: Vec<i32>,
    /// Weights of the choices, `[tokens, top_k]`.
    pub weights: Vec<f32>,
}

impl Batch {
    /// Checks lengths, number of tokens and every expert id against `config`.
    ///
    /// # Errors
    /// The first thing that is wrong, with its value and limit.
    pub fn check(&self, config: &MoeConfig) -> Result<(), MoeError> {
        self.check_lengths(config)?;
        check_routing(&self.experts, config.top_k, config.experts)
    }

    pub(super) fn check_lengths(&self, config: &MoeConfig) -> Result<(), MoeError> {
        let (hidden, top_k) = (config.hidden as usize, config.top_k as usize);
        let tokens = self.experts.len() / top_k;
        let lengths = [
            ("the routing", self.experts.len(), tokens * top_k),
            ("the weights", self.weights.len(), tokens * top_k),
            ("the tokens", self.x.len(), tokens * hidden),
        ];
        for (what, got, want) in lengths {
            if got != want {
                return Err(MoeError::Length { what, got, want });
            }
        }
        if tokens > config.max_tokens as usize {
            return Err(MoeError::Tokens {
                tokens,
                max_tokens: config.max_tokens,
            });
        }
        Ok(())
    }

    /// Number of tokens.
    #[must_use]
    pub fn tokens(&self, config: &MoeConfig) -> usize {
        self.experts.len() / config.top_k as usize
    }

    /// Token `index`, BF16 bits.
    ///
    /// # Panics
    /// If there is no such token.
    #[must_use]
    pub fn token(&self, config: &MoeConfig, index: usize) -> &[u16] {
        let hidden = config.hidden as usize;
        &self.x[index * hidden..(index + 1) * hidden]
    }

    /// The choices of token `index` that are experts: (expert, weight), in ascending k.
    fn choices(&self, config: &MoeConfig, index: usize) -> impl Iterator<Item = (i32, f32)> {
        let top_k = config.top_k as usize;
        let row = index * top_k..(index + 1) * top_k;
        let pairs = self.experts[row.clone()].iter().zip(&self.weights[row]);
        pairs
            .filter(|(expert, _)| **expert >= 0)
            .map(|(&expert, &weight)| (expert, weight))
    }
}

/// Where a row of a dispatch output comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Rank that sent it.
    pub rank: u32,
    /// Row of that rank's input.
    pub token: u32,
}

/// What `rank` receives of a dispatch: for each of its experts, in order, the sources of its rows, in order.
///
/// # Panics
/// If a batch was not checked.
#[must_use]
pub fn dispatch(
    config: &MoeConfig,
    placement: &Placement,
    batches: &[Batch],
    rank: u32,
) -> Vec<Vec<Source>> {
    let mut rows = vec![Vec::new(); placement.of_rank(rank).len()];
    for (source, batch) in (0u32..).zip(batches) {
        for token in 0..batch.tokens(config) {
            for (expert, _) in batch.choices(config, token) {
                let home = placement.homes()[expert as usize];
                if home.rank == rank {
                    let token = u32::try_from(token).expect("a call has at most 65,534 tokens");
                    rows[home.local as usize].push(Source {
                        rank: source,
                        token,
                    });
                }
            }
        }
    }
    rows
}

/// The result of combine for one rank's `batch`: BF16 bits, `[tokens, hidden]`. `expert(e, x, y)` fills `y` with what expert
/// `e` makes of token `x`. A token without a choice becomes zeros.
///
/// # Panics
/// If the batch was not checked.
#[must_use]
pub fn combine(
    config: &MoeConfig,
    placement: &Placement,
    batch: &Batch,
    mut expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> Vec<u16> {
    let hidden = config.hidden as usize;
    let mut out = vec![0u16; batch.tokens(config) * hidden];
    let mut y = vec![0u16; hidden];
    let mut partial = vec![0f32; hidden];
    let mut total = vec![0f32; hidden];
    for (token, out) in out.chunks_exact_mut(hidden).enumerate() {
        let mut ranks: Vec<u32> = batch
            .choices(config, token)
            .map(|(expert, _)| placement.homes()[expert as usize].rank)
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        total.fill(0.0);
        for rank in ranks {
            partial.fill(0.0);
            for (id, weight) in batch.choices(config, token) {
                if placement.homes()[id as usize].rank == rank {
                    expert(id.unsigned_abs(), batch.token(config, token), &mut y);
                    for (sum, &y) in partial.iter_mut().zip(&y) {
                        *sum += weight * bf16::to_f32(y);
                    }
                }
            }
            for (sum, &partial) in total.iter_mut().zip(&partial) {
                *sum += bf16::to_f32(bf16::from_f32(partial));
            }
        }
        for (out, &sum) in out.iter_mut().zip(&total) {
            *out = bf16::from_f32(sum);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: MoeConfig = MoeConfig {
        hidden: 8,
        experts: 3,
        top_k: 2,
        max_tokens: 4,
        ..MoeConfig::BF16
    };

    fn batch(experts: &[i32], first: f32) -> Batch {
        let tokens = experts.len() / 2;
        Batch {
            x: (0..tokens * 8)
                .map(|i| bf16::from_f32(first + (i / 8) as f32))
                .collect(),
            experts: experts.to_vec(),
            weights: vec![0.5; experts.len()],
        }
    }

    #[test]
    fn rows_come_in_the_order_of_rank_and_token() {
        let batches = [
            batch(&[0, 2, 1, 0], 1.0),
            batch(&[], 0.0),
            batch(&[-1, 2, 0, -1], 5.0),
        ];
        let placement = Placement::blocks(3, 2);
        let source = |rank, token| Source { rank, token };
        assert_eq!(
            dispatch(&SHAPE, &placement, &batches, 0),
            [
                vec![source(0, 0), source(0, 1), source(2, 1)],
                vec![source(0, 1)]
            ]
        );
        assert_eq!(
            dispatch(&SHAPE, &placement, &batches, 1),
            [vec![source(0, 0), source(2, 0)]]
        );
    }

    #[test]
    fn combine_weighs_what_each_expert_made_and_skips_missing_choices() {
        let batch = batch(&[0, 2, -1, 1, -1, -1], 1.0);
        let placement = Placement::blocks(3, 3);
        let out = combine(&SHAPE, &placement, &batch, |expert, x, y| {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = bf16::from_f32(bf16::to_f32(x) * (expert + 1) as f32);
            }
        });
        let rows: Vec<f32> = out
            .chunks_exact(8)
            .map(|row| bf16::to_f32(row[7]))
            .collect();
        assert_eq!(rows, [0.5 * 1.0 + 0.5 * 3.0, 0.5 * 2.0 * 2.0, 0.0]);
    }

    #[test]
    fn each_rank_rounds_its_partial_sum_to_bf16_before_they_are_added() {
        // 1 + 2^-8 is halfway between two BF16 numbers and rounds to 1; the second rank's 2^-8 is then added to 1 in f32.
        let small = 1.0 / 256.0;
        let batch = Batch {
            x: vec![bf16::from_f32(1.0); 8],
            experts: vec![0, 1, 2],
            weights: vec![1.0, small, small],
        };
        let config = MoeConfig { top_k: 3, ..SHAPE };
        let identity = |_: u32, x: &[u16], y: &mut [u16]| y.copy_from_slice(x);
        let together = combine(&config, &Placement::blocks(3, 1), &batch, identity);
        let apart = combine(&config, &Placement::blocks(3, 2), &batch, identity);
        assert_eq!(bf16::to_f32(together[0]), 1.0 + 2.0 * small);
        assert_eq!(bf16::to_f32(apart[0]), 1.0);
    }

    #[test]
    fn a_batch_of_the_wrong_size_is_refused() {
        let mut bad = batch(&[0, 1], 1.0);
        bad.x.pop();
        assert_eq!(
            bad.check(&SHAPE).unwrap_err().to_string(),
            "the tokens has 7 elements; its shape needs 8"
        );
        let many = batch(&[0, 1, 0, 1, 0, 1, 0, 1, 0, 1], 1.0);
        assert_eq!(
            many.check(&SHAPE).unwrap_err().to_string(),
            "5 tokens in a call; max_tokens is 4"
        );
    }
}
