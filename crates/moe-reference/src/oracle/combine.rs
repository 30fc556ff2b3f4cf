//! Oracle of combine. Its sums are in f32, over the ranks in ascending order, and within a rank over the choices in ascending k, without
//! rounding in between. It also judges which tokens are whole.

use super::finding::length;
use super::payload::{bf16, values};
use super::{Case, Finding, Wire};

/// The largest [`difference`] of a result from [`reference()`].
pub const BF16_LIMIT: f64 = 1e-5;
/// As `BF16_LIMIT`, if tokens are sent as FP8.
pub const FP8_LIMIT: f64 = 9e-4;
/// As `FP8_LIMIT`, with scales that are powers of two.
pub const POWER_OF_TWO_LIMIT: f64 = 7e-3;
/// The factor by which one token may differ more than all tokens together.
const ONE_TOKEN: f64 = 4.0;

/// The weights of the sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weights<'a> {
    /// The weights that were given to dispatch.
    Dispatch,
    /// A weight of 1 for every choice.
    Ones,
    /// The weights that were given at combine, `[tokens, top_k]`.
    Given(&'a [f32]),
}

/// Returns what combine should give `rank`, `[tokens, hidden]`. `expert(e, x, y)` fills `y`, and does not add to it, with what expert `e`
/// makes of the token. Results that do not come back are left out. With `renormalise` a sum is multiplied by the sum of all weights over
/// the sum of the weights of its results.
#[must_use]
pub fn reference(
    case: &Case,
    rank: usize,
    weights: Weights<'_>,
    renormalise: bool,
    mut expert: impl FnMut(u32, &[f32], &mut [f32]),
) -> Vec<f32> {
    let (hidden, top_k) = (case.hidden, case.top_k);
    let input = &case.inputs[rank];
    let mut out = vec![0f32; case.tokens(rank) * hidden];
    let mut y = vec![0f32; hidden];
    for (token, sum) in out.chunks_exact_mut(hidden).enumerate() {
        let x: Vec<f32> = token_of(case, rank, token);
        let weight_of = |k: usize| match weights {
            Weights::Dispatch => input.weights[token * top_k + k],
            Weights::Ones => 1.0,
            Weights::Given(given) => given[token * top_k + k],
        };
        let (mut there, mut all) = (0f32, 0f32);
        for k in 0..top_k {
            if input.experts[token * top_k + k] >= 0 {
                all += weight_of(k);
            }
        }
        for peer in case.ranks_of(rank, token) {
            for k in 0..top_k {
                let here = case
                    .pick(rank, token, k)
                    .is_some_and(|place| place.rank == peer);
                if !here || !case.contributes(rank, token, k) {
                    continue;
                }
                let weight = weight_of(k);
                there += weight;
                expert(input.experts[token * top_k + k].unsigned_abs(), &x, &mut y);
                for (sum, y) in sum.iter_mut().zip(&y) {
                    *sum += weight * y;
                }
            }
        }
        if renormalise && there != all && there != 0.0 {
            sum.iter_mut().for_each(|sum| *sum *= all / there);
        }
    }
    out
}

/// Returns the elements of a token in f32, as it was given.
fn token_of(case: &Case, rank: usize, token: usize) -> Vec<f32> {
    let input = &case.inputs[rank];
    let (row_bytes, scale_bytes) = match case.wire {
        Wire::AsIs {
            row_bytes,
            scale_bytes,
            ..
        } => (row_bytes, scale_bytes),
        Wire::Cast(_) => {
            let pairs = input.x[token * case.hidden * 2..][..case.hidden * 2].chunks_exact(2);
            return pairs
                .map(|pair| bf16(u16::from_le_bytes([pair[0], pair[1]])))
                .collect();
        }
    };
    let x = &input.x[token * row_bytes..][..row_bytes];
    values(case, x, &input.scales[token * scale_bytes..][..scale_bytes])
}

/// Returns 1 - 2<x,y> / (|x|² + |y|²). It is 0 for equal vectors, also for two vectors of zeros.
#[must_use]
pub fn difference(x: &[f32], y: &[f32]) -> f64 {
    let (mut product, mut squares) = (0f64, 0f64);
    for (&x, &y) in x.iter().zip(y) {
        let (x, y) = (f64::from(x), f64::from(y));
        product += x * y;
        squares += x * x + y * y;
    }
    if squares == 0.0 {
        0.0
    } else {
        1.0 - 2.0 * product / squares
    }
}

/// Checks that `out`, BF16 bits `[tokens, hidden]`, is the sums of `want` up to `limit`.
///
/// # Errors
/// [`Finding::NotANumber`], as poison gives it; [`Finding::Sum`].
pub fn check(case: &Case, out: &[u16], want: &[f32], limit: f64) -> Result<(), Finding> {
    length("the sums", out.len(), want.len())?;
    let got: Vec<f32> = out.iter().map(|&bits| bf16(bits)).collect();
    if let Some(at) = got.iter().position(|got| !got.is_finite()) {
        return Err(Finding::NotANumber {
            token: at / case.hidden,
            channel: at % case.hidden,
            got: got[at],
        });
    }
    let within = |what: &dyn Fn() -> String, got: &[f32], want: &[f32], limit: f64| {
        let difference = difference(got, want);
        if difference <= limit {
            Ok(())
        } else {
            Err(Finding::Sum {
                what: what(),
                got: difference,
                limit,
            })
        }
    };
    let tokens = got
        .chunks_exact(case.hidden)
        .zip(want.chunks_exact(case.hidden));
    for (token, (got, want)) in tokens.enumerate() {
        within(&|| format!("token {token}"), got, want, limit * ONE_TOKEN)?;
    }
    within(&|| "all tokens together".to_owned(), &got, want, limit)
}

/// Checks that `token_valid` of `rank` is 1 for exactly the tokens all of whose experts contributed.
///
/// # Errors
/// [`Finding::Valid`].
pub fn token_valid(case: &Case, rank: usize, got: &[u8]) -> Result<(), Finding> {
    length("token_valid", got.len(), case.tokens(rank))?;
    for (token, &got) in got.iter().enumerate() {
        let want = u8::from(case.is_whole(rank, token));
        if got != want {
            return Err(Finding::Valid { token, got, want });
        }
    }
    Ok(())
}
