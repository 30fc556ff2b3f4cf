//! The reference of the other layouts and ways to combine: rank-major, rows of all experts, unweighted, renormalised, with lost
//! choices and ranks whose rows did not come back. Scalar loops, as in [`mod@reference`](super::reference).
//!
//! Where the row of every expert goes back, the source adds `weight · y` in ascending k, in f32 with each product and each sum
//! rounded, and rounds once to BF16. Where a rank returns one row for a token, that row is the sum over its experts as in
//! [`mod@reference`](super::reference), made by the library or, in the rank-major layout, by the caller. A renormalised token that
//! lost a choice is multiplied by (sum of all weights) / (sum of those that are left), in f32, before it is rounded; each sum is
//! in ascending k, and a token of which nothing is left is zeros.

use crate::{Batch, Homes, Returns, Shape, bf16};

/// One row of a rank-major output.
#[derive(Clone, Debug, PartialEq)]
pub struct RankRow {
    /// Row of its rank's input.
    pub token: u32,
    /// By k: local number of the expert at this rank, -1 for a choice that lives elsewhere or is none.
    pub experts: Vec<i32>,
    /// By k: weight; 0 where `experts` is -1.
    pub weights: Vec<f32>,
}

/// What `rank` receives by rank, `chosen[r]` being the slots that rank r's choices go to (see
/// [`reference::choose`](super::reference::choose)).
///
/// # Panics
/// If there is no such slot.
#[must_use]
pub fn dispatch_by_rank(
    shape: &Shape,
    homes: &Homes,
    batches: &[Batch<'_>],
    chosen: &[Vec<Option<u32>>],
    rank: u32,
) -> Vec<Vec<RankRow>> {
    let top_k = shape.top_k;
    let local = |slot: Option<u32>| {
        let home = homes.home(slot?);
        (home.rank == rank).then(|| i32::try_from(home.local).expect("at most 4096"))
    };
    let of_source = |(batch, chosen): (&Batch<'_>, &Vec<Option<u32>>)| {
        let mut rows = Vec::new();
        let tokens = chosen
            .chunks_exact(top_k)
            .zip(batch.weights.chunks_exact(top_k));
        for (token, (slots, weights)) in (0u32..).zip(tokens) {
            let experts: Vec<Option<i32>> = slots.iter().map(|&slot| local(slot)).collect();
            if experts.iter().all(Option::is_none) {
                continue;
            }
            let weights = experts.iter().zip(weights);
            rows.push(RankRow {
                token,
                weights: weights
                    .map(|(e, &w)| if e.is_some() { w } else { 0.0 })
                    .collect(),
                experts: experts.into_iter().map(|e| e.unwrap_or(-1)).collect(),
            });
        }
        rows
    };
    batches.iter().zip(chosen).map(of_source).collect()
}

/// What a combine is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked<'a> {
    /// Every weight counts as 1.
    pub unweighted: bool,
    /// Tokens that lost choices are scaled.
    pub renormalise: bool,
    /// Weights that are known only now; `None`: those of dispatch.
    pub weights: Option<&'a [f32]>,
}

/// What combine gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// BF16 bits, `[tokens, hidden]`.
    pub out: Vec<u16>,
    /// Whether all choices of a token contributed.
    pub token_valid: Vec<bool>,
}

/// One choice of a token that is an expert.
struct Choice {
    rank: u32,
    expert: u32,
    weight: f32,
    /// Whether its row came back.
    here: bool,
}

/// The result of combine for one rank's `batch`, whose choices went to the slots `chosen`, where `returned(r)` says whether the
/// rows of rank r came back. `expert(e, x, y)` fills `y` with what expert `e` makes of token `x`.
///
/// # Panics
/// If the batch was not checked, or there is no such slot.
#[must_use]
pub fn combine(
    shape: &Shape,
    homes: &Homes,
    batch: Batch<'_>,
    chosen: &[Option<u32>],
    returned: impl Fn(u32) -> bool,
    asked: Asked<'_>,
    mut expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> Expected {
    let (hidden, top_k) = (shape.hidden, shape.top_k);
    let by_expert = shape.returns == Returns::Rows;
    let given = asked.weights.unwrap_or(batch.weights);
    let mut expected = Expected {
        out: Vec::with_capacity(batch.x.len()),
        token_valid: Vec::new(),
    };
    let mut y = vec![0u16; hidden];
    for token in 0..batch.tokens(shape) {
        let mut choices = Vec::new();
        for k in token * top_k..(token + 1) * top_k {
            if batch.experts[k] < 0 {
                continue;
            }
            let home = chosen[k].map(|slot| homes.home(slot).rank);
            choices.push(Choice {
                rank: home.unwrap_or(u32::MAX),
                expert: batch.experts[k].unsigned_abs(),
                weight: if asked.unweighted { 1.0 } else { given[k] },
                here: home.is_some_and(&returned),
            });
        }
        let whole = choices.iter().all(|choice| choice.here);
        let all = choices.iter().fold(0f32, |sum, choice| sum + choice.weight);
        choices.retain(|choice| choice.here);
        let left = choices.iter().fold(0f32, |sum, choice| sum + choice.weight);

        let mut total = vec![0f32; hidden];
        let mut add = |choices: &[Choice], total: &mut [f32]| {
            for choice in choices {
                expert(choice.expert, batch.token(shape, token), &mut y);
                for (sum, &y) in total.iter_mut().zip(&y) {
                    *sum += choice.weight * bf16::to_f32(y);
                }
            }
        };
        if by_expert {
            add(&choices, &mut total);
        } else {
            choices.sort_by_key(|choice| choice.rank);
            for of_rank in choices.chunk_by(|a, b| a.rank == b.rank) {
                let mut row = vec![0f32; hidden];
                add(of_rank, &mut row);
                for (sum, row) in total.iter_mut().zip(row) {
                    *sum += bf16::to_f32(bf16::from_f32(row));
                }
            }
        }
        if asked.renormalise && !whole {
            match left == 0.0 {
                true => total.fill(0.0),
                false => total.iter_mut().for_each(|sum| *sum *= all / left),
            }
        }
        expected.out.extend(total.into_iter().map(bf16::from_f32));
        expected.token_valid.push(whole);
    }
    expected
}

#[cfg(test)]
mod tests {
    use super::super::reference::{self, choose};
    use super::*;

    const SHAPE: Shape = Shape {
        hidden: 8,
        experts: 4,
        top_k: 3,
        max_tokens: 4,
        returns: Returns::Sums,
    };

    /// Two tokens, of 0, 1, .. 15 quarters.
    fn x() -> [u16; 16] {
        std::array::from_fn(|i| bf16::from_f32(i as f32 / 4.0))
    }

    fn batch(x: &[u16]) -> Batch<'_> {
        Batch {
            x,
            experts: &[0, 3, 1, -1, 2, -1],
            weights: &[0.5, 0.25, 0.125, 9.0, 2.0, 9.0],
        }
    }

    fn scale(id: u32, x: &[u16], y: &mut [u16]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = bf16::from_f32(bf16::to_f32(x) * (id + 1) as f32);
        }
    }

    fn expect(
        shape: &Shape,
        asked: Asked<'_>,
        returned: impl Fn(u32) -> bool,
    ) -> (Vec<f32>, Vec<bool>) {
        let (homes, x) = (Homes::blocks(4, 2), x());
        let batch = batch(&x);
        let chosen = choose(shape, &homes, 0, batch, |_| true);
        let got = combine(shape, &homes, batch, &chosen, returned, asked, scale);
        // One element of each token, as a multiple of what it was.
        let out = [1, 9].map(|i| bf16::to_f32(got.out[i]) / bf16::to_f32(batch.x[i]));
        (out.to_vec(), got.token_valid)
    }

    #[test]
    fn with_everybody_there_it_is_the_plain_reference() {
        let (homes, x) = (Homes::blocks(4, 2), x());
        let batch = batch(&x);
        let chosen = choose(&SHAPE, &homes, 0, batch, |_| true);
        let got = combine(
            &SHAPE,
            &homes,
            batch,
            &chosen,
            |_| true,
            Asked::default(),
            scale,
        );
        assert_eq!(got.out, reference::combine(&SHAPE, &homes, 0, batch, scale));
        assert_eq!(got.token_valid, [true, true]);
    }

    #[test]
    fn unweighted_counts_every_choice_once_and_later_weights_replace_those_of_dispatch() {
        let rows = Shape {
            returns: Returns::Rows,
            ..SHAPE
        };
        let unweighted = Asked {
            unweighted: true,
            ..Asked::default()
        };
        assert_eq!(
            expect(&SHAPE, unweighted, |_| true),
            (vec![7.0, 3.0], vec![true, true])
        );
        let late = [1.0, 0.5, 2.0, 0.0, 0.25, 0.0];
        let asked = Asked {
            weights: Some(&late),
            ..Asked::default()
        };
        assert_eq!(
            expect(&rows, asked, |_| true),
            (vec![7.0, 0.75], vec![true, true])
        );
    }

    #[test]
    fn a_token_that_lost_a_rank_is_scaled_by_the_weight_left_and_zeros_if_nothing_is_left() {
        let scaled = Asked {
            renormalise: true,
            ..Asked::default()
        };
        // Rank 1 holds experts 2 and 3: token 0 keeps 0.5 · 1 + 0.125 · 2 of weight 0.625 out of 0.875; token 1 keeps nothing.
        let (out, valid) = expect(&SHAPE, Asked::default(), |rank| rank == 0);
        assert_eq!((out, valid), (vec![0.75, 0.0], vec![false, false]));
        let (out, valid) = expect(&SHAPE, scaled, |rank| rank == 0);
        assert!((out[0] - 0.75 * 0.875 / 0.625).abs() < 0.01, "{out:?}");
        assert_eq!((out[1], valid), (0.0, vec![false, false]));
        // Rank 0 lost: token 1 is whole, so it is not scaled.
        assert_eq!(expect(&SHAPE, scaled, |rank| rank == 1).1, [false, true]);
    }

    #[test]
    fn a_rank_keeps_each_token_once_with_the_choices_that_live_there() {
        let (homes, x) = (Homes::blocks(4, 2), x());
        let batches = [batch(&x), Batch::default()];
        let chosen = batches.map(|batch| choose(&SHAPE, &homes, 0, batch, |_| true));
        let rows = dispatch_by_rank(&SHAPE, &homes, &batches, &chosen, 1);
        let row = |token, experts: [i32; 3], weights: [f32; 3]| RankRow {
            token,
            experts: experts.to_vec(),
            weights: weights.to_vec(),
        };
        assert_eq!(
            rows[0],
            [
                row(0, [-1, 1, -1], [0.0, 0.25, 0.0]),
                row(1, [-1, 0, -1], [0.0, 2.0, 0.0])
            ]
        );
        assert!(rows[1].is_empty());
    }
}
