//! Dispatch and combine as scalar loops: what the kernels must equal, bit for bit.
//!
//! The order of every sum is fixed, so results do not depend on who arrives first. The rank of an expert adds
//! `weight · y` of its experts in ascending k, in f32 with each product and each sum rounded, and rounds the sum once to
//! BF16; the source adds these partial sums in the order of the ranks in f32 and rounds once to BF16.

use crate::{Batch, Homes, Shape, bf16};

/// Where a row of a dispatch output comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Rank that sent it.
    pub rank: u32,
    /// Row of that rank's input.
    pub token: u32,
}

/// The expert slots that the choices of `rank`'s batch go to, `[tokens, top_k]`, where ranks are or are not `alive`. `None`: no
/// choice, or one that nobody serves.
///
/// # Panics
/// If the batch has more tokens than a call may have.
#[must_use]
pub fn choose(
    shape: &Shape,
    homes: &Homes,
    rank: u32,
    batch: Batch<'_>,
    alive: impl Fn(u32) -> bool,
) -> Vec<Option<u32>> {
    let slot = |(index, &expert): (usize, &i32)| {
        let token = u32::try_from(index / shape.top_k).expect("at most 65,534 tokens");
        homes.choose(expert, token, rank, &alive)
    };
    batch.experts.iter().enumerate().map(slot).collect()
}

/// What `rank` receives of a dispatch in which everybody takes part: for each of its expert slots, in order, the sources of its
/// rows, in order.
///
/// # Panics
/// If a batch was not checked.
#[must_use]
pub fn dispatch(
    shape: &Shape,
    homes: &Homes,
    batches: &[Batch<'_>],
    rank: u32,
) -> Vec<Vec<Source>> {
    let chosen = (0u32..).zip(batches);
    let chosen: Vec<_> = chosen
        .map(|(source, &batch)| choose(shape, homes, source, batch, |_| true))
        .collect();
    dispatch_chosen(shape, homes, &chosen, rank)
}

/// The same for the slots that each rank has chosen.
///
/// # Panics
/// If there is no such slot.
#[must_use]
pub fn dispatch_chosen(
    shape: &Shape,
    homes: &Homes,
    chosen: &[Vec<Option<u32>>],
    rank: u32,
) -> Vec<Vec<Source>> {
    let mut rows = vec![Vec::new(); homes.of_rank(rank).len()];
    for (source, chosen) in (0u32..).zip(chosen) {
        for (token, slots) in (0u32..).zip(chosen.chunks_exact(shape.top_k)) {
            let served = slots.iter().flatten();
            for home in served.map(|&slot| homes.home(slot)) {
                if home.rank == rank {
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

/// The result of combine for the `batch` of `rank` where everybody takes part: BF16 bits, `[tokens, hidden]`. `expert(e, x, y)`
/// fills `y` with what expert `e` makes of token `x`. A token without a choice becomes zeros.
///
/// # Panics
/// If the batch was not checked.
#[must_use]
pub fn combine(
    shape: &Shape,
    homes: &Homes,
    rank: u32,
    batch: Batch<'_>,
    expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> Vec<u16> {
    let chosen = choose(shape, homes, rank, batch, |_| true);
    combine_chosen(shape, homes, batch, &chosen, expert)
}

/// The same where only what the ranks that are `seen` hold came back, and which tokens have all that they chose.
///
/// # Panics
/// If the batch was not checked.
#[must_use]
pub fn combine_seen(
    shape: &Shape,
    homes: &Homes,
    rank: u32,
    batch: Batch<'_>,
    seen: impl Fn(u32) -> bool,
    expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> (Vec<u16>, Vec<bool>) {
    let mut chosen = choose(shape, homes, rank, batch, |_| true);
    let mut valid = vec![true; batch.tokens(shape)];
    for (place, (slot, expert)) in chosen.iter_mut().zip(batch.experts).enumerate() {
        *slot = slot.filter(|at| seen(homes.home(*at).rank));
        valid[place / shape.top_k] &= slot.is_some() || *expert < 0;
    }
    let out = combine_chosen(shape, homes, batch, &chosen, expert);
    (out, valid)
}

/// The same for the slots that the rank has chosen: what nobody serves is not added.
///
/// # Panics
/// If there is no such slot.
#[must_use]
pub fn combine_chosen(
    shape: &Shape,
    homes: &Homes,
    batch: Batch<'_>,
    chosen: &[Option<u32>],
    mut expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> Vec<u16> {
    let (hidden, top_k) = (shape.hidden, shape.top_k);
    let mut out = vec![0u16; batch.tokens(shape) * hidden];
    let mut y = vec![0u16; hidden];
    let mut partial = vec![0f32; hidden];
    let mut total = vec![0f32; hidden];
    for (token, out) in out.chunks_exact_mut(hidden).enumerate() {
        // (rank, expert, weight) of the choices that are served, by rank and in the order of k.
        let row = token * top_k..(token + 1) * top_k;
        let choices = chosen[row.clone()].iter().zip(&batch.experts[row.clone()]);
        let mut choices: Vec<(u32, u32, f32)> = choices
            .zip(&batch.weights[row])
            .filter_map(|((slot, expert), weight)| {
                let home = homes.home((*slot)?);
                Some((home.rank, expert.unsigned_abs(), *weight))
            })
            .collect();
        choices.sort_by_key(|(rank, ..)| *rank);
        total.fill(0.0);
        for of_rank in choices.chunk_by(|(a, ..), (b, ..)| a == b) {
            partial.fill(0.0);
            for &(_, id, weight) in of_rank {
                expert(id, batch.token(shape, token), &mut y);
                for (sum, &y) in partial.iter_mut().zip(&y) {
                    *sum += weight * bf16::to_f32(y);
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
    use crate::Returns;

    const SHAPE: Shape = Shape {
        hidden: 8,
        experts: 3,
        top_k: 2,
        max_tokens: 4,
        returns: Returns::Sums,
    };

    /// Tokens, choices and weights of a batch.
    type Arrays = (Vec<u16>, Vec<i32>, Vec<f32>);

    fn arrays(experts: &[i32], first: f32) -> Arrays {
        let tokens = experts.len() / 2;
        let x = (0..tokens * 8).map(|i| bf16::from_f32(first + (i / 8) as f32));
        (x.collect(), experts.to_vec(), vec![0.5; experts.len()])
    }

    fn batch((x, experts, weights): &Arrays) -> Batch<'_> {
        Batch {
            x,
            experts,
            weights,
        }
    }

    #[test]
    fn rows_come_in_the_order_of_rank_and_token() {
        let arrays = [
            arrays(&[0, 2, 1, 0], 1.0),
            arrays(&[], 0.0),
            arrays(&[-1, 2, 0, -1], 5.0),
        ];
        let batches = arrays.each_ref().map(batch);
        let homes = Homes::blocks(3, 2);
        let source = |rank, token| Source { rank, token };
        assert_eq!(
            dispatch(&SHAPE, &homes, &batches, 0),
            [
                vec![source(0, 0), source(0, 1), source(2, 1)],
                vec![source(0, 1)]
            ]
        );
        assert_eq!(
            dispatch(&SHAPE, &homes, &batches, 1),
            [vec![source(0, 0), source(2, 0)]]
        );
    }

    #[test]
    fn combine_weighs_what_each_expert_made_and_skips_missing_choices() {
        let arrays = arrays(&[0, 2, -1, 1, -1, -1], 1.0);
        let batch = batch(&arrays);
        let homes = Homes::blocks(3, 3);
        let out = combine(&SHAPE, &homes, 0, batch, |expert, x, y| {
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
            x: &[bf16::from_f32(1.0); 8],
            experts: &[0, 1, 2],
            weights: &[1.0, small, small],
        };
        let shape = Shape { top_k: 3, ..SHAPE };
        let identity = |_: u32, x: &[u16], y: &mut [u16]| y.copy_from_slice(x);
        let together = combine(&shape, &Homes::blocks(3, 1), 0, batch, identity);
        let apart = combine(&shape, &Homes::blocks(3, 2), 1, batch, identity);
        assert_eq!(bf16::to_f32(together[0]), 1.0 + 2.0 * small);
        assert_eq!(bf16::to_f32(apart[0]), 1.0);
    }

    #[test]
    fn a_replica_at_the_own_rank_gets_the_token_and_an_expert_that_is_nowhere_adds_nothing() {
        let arrays = [arrays(&[0, 1, 0, 2], 1.0), arrays(&[0, 2], 3.0)];
        let batches = arrays.each_ref().map(batch);
        let homes = Homes::from_slots(3, vec![vec![0], vec![1, 0]]).unwrap();
        let source = |rank, token| Source { rank, token };
        assert_eq!(
            dispatch(&SHAPE, &homes, &batches, 0),
            [[source(0, 0), source(0, 1)]]
        );
        assert_eq!(
            dispatch(&SHAPE, &homes, &batches, 1),
            [[source(0, 0)], [source(1, 0)]]
        );
        let identity = |_: u32, x: &[u16], y: &mut [u16]| y.copy_from_slice(x);
        let out = combine(&SHAPE, &homes, 0, batches[0], identity);
        assert_eq!([out[0], out[8]].map(bf16::to_f32), [1.0, 1.0]);
    }

    #[test]
    fn what_a_rank_that_is_not_seen_holds_is_not_added_and_its_tokens_are_not_valid() {
        let arrays = arrays(&[0, 2, 1, -1, 2, -1], 1.0);
        let batch = batch(&arrays);
        let homes = Homes::blocks(3, 3);
        let identity = |_: u32, x: &[u16], y: &mut [u16]| y.copy_from_slice(x);
        let (out, valid) = combine_seen(&SHAPE, &homes, 0, batch, |rank| rank != 2, identity);
        let rows: Vec<f32> = out
            .chunks_exact(8)
            .map(|row| bf16::to_f32(row[0]))
            .collect();
        assert_eq!(
            (rows, valid),
            (vec![0.5, 1.0, 0.0], vec![false, true, false])
        );
        let all = combine_seen(&SHAPE, &homes, 0, batch, |_| true, identity);
        let whole = combine(&SHAPE, &homes, 0, batch, identity);
        assert_eq!(all, (whole, vec![true; 3]));
    }
}
