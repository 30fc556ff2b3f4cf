//! Combine as a scalar loop: what each token becomes, bit for bit, whatever the options and whichever ranks are lost.

use crate::dispatch::choose;
use crate::{Batch, Homes, Returns, Shape, bf16};

/// The options of a combine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked<'a> {
    /// Every weight counts as 1.
    pub unweighted: bool,
    /// Tokens that lost choices are scaled.
    pub renormalise: bool,
    /// The weights that are known only at combine. `None`: the weights of dispatch.
    pub weights: Option<&'a [f32]>,
}

/// The result of combine.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The sums, BF16 bits, `[tokens, hidden]`.
    pub out: Vec<u16>,
    /// For each token, true if all of its choices contributed.
    pub token_valid: Vec<bool>,
}

/// Returns the result of combine for the `batch` of `rank` if all ranks take part: BF16 bits, `[tokens, hidden]`. `expert(e, x, y)` fills
/// `y` with what expert `e` makes of token `x`. A token without a choice becomes zeros.
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

/// As `combine`, if only rows of ranks that are `seen` came back. The result also says which tokens have all that they chose.
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
) -> Expected {
    let chosen = choose(shape, homes, rank, batch, |_| true);
    combine_asked(shape, homes, batch, &chosen, seen, Asked::default(), expert)
}

/// As `combine_seen`, for the slots that the rank has [chosen](choose): a choice without a slot is not added.
///
/// # Panics
/// If the batch was not checked, or `chosen` names a slot that `homes` lacks.
#[must_use]
pub fn combine_chosen(
    shape: &Shape,
    homes: &Homes,
    batch: Batch<'_>,
    chosen: &[Option<u32>],
    expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> Vec<u16> {
    let (all, plain) = (|_| true, Asked::default());
    combine_asked(shape, homes, batch, chosen, all, plain, expert).out
}

/// Returns the result of combine for one rank's `batch`, whose choices went to the slots `chosen`. `returned(r)` says whether the rows of
/// rank r came back. `expert(e, x, y)` fills `y` with what expert `e` makes of token `x`.
///
/// # Panics
/// If the batch was not checked, or `chosen` names a slot that `homes` lacks.
#[must_use]
pub fn combine_asked(
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
            if left == 0.0 {
                total.fill(0.0)
            } else {
                total.iter_mut().for_each(|sum| *sum *= all / left)
            }
        }
        expected.out.extend(total.into_iter().map(bf16::from_f32));
        expected.token_valid.push(whole);
    }
    expected
}

/// A choice of a token that names an expert.
struct Choice {
    rank: u32,
    expert: u32,
    weight: f32,
    /// True if the row of the choice came back.
    here: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle;

    const SHAPE: Shape = Shape {
        hidden: 8,
        experts: 4,
        top_k: 3,
        max_tokens: 4,
        returns: Returns::Sums,
    };

    /// Two choices of three experts.
    const PAIRS: Shape = Shape {
        experts: 3,
        top_k: 2,
        ..SHAPE
    };

    /// Returns two tokens, of 0, 1, .. 15 quarters.
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

    fn identity(_: u32, x: &[u16], y: &mut [u16]) {
        y.copy_from_slice(x);
    }

    fn expect(
        shape: &Shape,
        asked: Asked<'_>,
        returned: impl Fn(u32) -> bool,
    ) -> (Vec<f32>, Vec<bool>) {
        let (homes, x) = (Homes::blocks(4, 2), x());
        let batch = batch(&x);
        let chosen = choose(shape, &homes, 0, batch, |_| true);
        let got = combine_asked(shape, &homes, batch, &chosen, returned, asked, scale);
        // The list has one element of each token, as a multiple of its input.
        let out = [1, 9].map(|i| bf16::to_f32(got.out[i]) / bf16::to_f32(batch.x[i]));
        (out.to_vec(), got.token_valid)
    }

    #[test]
    fn combine_weighs_what_each_expert_made_and_skips_missing_choices() {
        let x = [[1.0; 8], [2.0; 8], [3.0; 8]].concat();
        let x: Vec<u16> = x.into_iter().map(bf16::from_f32).collect();
        let batch = Batch {
            x: &x,
            experts: &[0, 2, -1, 1, -1, -1],
            weights: &[0.5; 6],
        };
        let out = combine(&PAIRS, &Homes::blocks(3, 3), 0, batch, scale);
        let rows = [out[7], out[15], out[23]].map(bf16::to_f32);
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
        let of = |returns, ranks| {
            let shape = Shape { returns, ..SHAPE };
            let out = combine(&shape, &Homes::blocks(3, ranks), 0, batch, identity);
            bf16::to_f32(out[0])
        };
        assert_eq!(of(Returns::Sums, 1), 1.0 + 2.0 * small);
        assert_eq!(of(Returns::Sums, 2), 1.0);
        // The row of every expert comes back, and only the source rounds.
        assert_eq!(of(Returns::Rows, 2), 1.0 + 2.0 * small);
    }

    #[test]
    fn an_expert_that_is_nowhere_adds_nothing() {
        let x = [bf16::from_f32(1.0); 16];
        let batch = Batch {
            x: &x,
            experts: &[0, 1, 0, 2],
            weights: &[0.5; 4],
        };
        let homes = Homes::from_slots(3, vec![vec![0], vec![1, 0]]).unwrap();
        let out = combine(&PAIRS, &homes, 0, batch, identity);
        assert_eq!([out[0], out[8]].map(bf16::to_f32), [1.0, 0.5]);
    }

    #[test]
    fn rows_of_an_unseen_rank_are_not_added_and_make_their_tokens_invalid() {
        let x: Vec<u16> = (8..32).map(|i| bf16::from_f32((i / 8) as f32)).collect();
        let batch = Batch {
            x: &x,
            experts: &[0, 2, 1, -1, 2, -1],
            weights: &[0.5; 6],
        };
        let homes = Homes::blocks(3, 3);
        let got = combine_seen(&PAIRS, &homes, 0, batch, |rank| rank != 2, identity);
        let rows = [got.out[0], got.out[8], got.out[16]].map(bf16::to_f32);
        assert_eq!(rows, [0.5, 1.0, 0.0]);
        assert_eq!(got.token_valid, [false, true, false]);
        let all = combine_seen(&PAIRS, &homes, 0, batch, |_| true, identity);
        assert_eq!(all.out, combine(&PAIRS, &homes, 0, batch, identity));
        assert_eq!(all.token_valid, [true; 3]);
    }

    #[test]
    fn sums_are_those_of_the_oracle_to_rounding() {
        let (homes, x) = (Homes::blocks(4, 2), x());
        let batch = batch(&x);
        let input = oracle::Input {
            x: x.iter().flat_map(|bits| bits.to_le_bytes()).collect(),
            experts: batch.experts.to_vec(),
            weights: batch.weights.to_vec(),
            ..oracle::Input::default()
        };
        let inputs = vec![input, oracle::Input::default()];
        let mut case = oracle::Case::new(&SHAPE, oracle::places(&homes), inputs);
        let exact = |id: u32, x: &[f32], y: &mut [f32]| {
            for (y, x) in y.iter_mut().zip(x) {
                *y = x * (id + 1) as f32;
            }
        };
        for returned in [true, false] {
            case.returned[0][1] = returned;
            let weights = oracle::combine::Weights::Dispatch;
            let want = oracle::combine::reference(&case, 0, weights, true, exact);
            let chosen = choose(&SHAPE, &homes, 0, batch, |_| true);
            let asked = Asked {
                renormalise: true,
                ..Asked::default()
            };
            let here = |rank| rank == 0 || returned;
            let got = combine_asked(&SHAPE, &homes, batch, &chosen, here, asked, scale);
            oracle::combine::check(&case, &got.out, &want, oracle::combine::BF16_LIMIT).unwrap();
            let valid: Vec<u8> = got
                .token_valid
                .iter()
                .map(|valid| u8::from(*valid))
                .collect();
            oracle::combine::token_valid(&case, 0, &valid).unwrap();
        }
    }

    #[test]
    fn unweighted_counts_each_choice_once_and_later_weights_replace_earlier() {
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
    fn a_token_that_lost_a_rank_is_scaled_by_its_remaining_weight_or_zeroed() {
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
        // Without rank 0 token 1 is whole, so it is not scaled.
        assert_eq!(expect(&SHAPE, scaled, |rank| rank == 1).1, [false, true]);
    }
}
