//! Compares what a step gave with the scalar reference implementation (crate `moe-reference`), element by element.
//!
//! Tokens that travel as FP8 are compared bit for bit with the output of the scalar twin of the cast. Their sums are also compared with the
//! sums that the reference makes of BF16 tokens, from which they may differ as far as the format makes them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use super::experts::expert;
use super::reference::{self, scales};
use moe_reference::oracle::combine::{FP8_LIMIT, POWER_OF_TWO_LIMIT, difference};
use moe_reference::{bf16, format};
use warpverbs::moe::{Batch, Combined, Format, MoeConfig, MoeError, Placement, Scales, Source};

/// The result of a check: the first thing that is wrong with a step, in words, or nothing.
pub(super) type Verdict = Result<(), String>;

/// Returns a token as the experts see it, in BF16 bits.
fn arrives(format: Format, token: &[u16]) -> Cow<'_, [u16]> {
    match format {
        Format::Bf16 | Format::Opaque { .. } => Cow::Borrowed(token),
        Format::Fp8(kind) => {
            let kind = scales(kind);
            let (codes, scales) = format::quantize(kind, token);
            Cow::Owned(format::dequantize(kind, &codes, &scales))
        }
    }
}

/// Returns how far sums may be from those of BF16 tokens, as [`difference`] measures it. 0 means bit for bit.
pub(crate) fn limit(format: Format) -> f64 {
    match format {
        Format::Bf16 | Format::Opaque { .. } => 0.0,
        Format::Fp8(Scales::F32) => FP8_LIMIT,
        Format::Fp8(Scales::PowerOfTwo | Scales::Ue8m0) => POWER_OF_TWO_LIMIT,
    }
}

/// The most bytes of rows that are read from the device at a time.
const MOST_READ: usize = 16 << 20;

/// Checks M1: every row that the experts of `rank` should have got arrived once, in its place, with every element. `read(expert, rows)`
/// reads rows that they got. It is called for many rows at a time, because a copy for each row takes more time than the step.
pub(super) fn dispatch(
    config: &MoeConfig,
    placement: &Placement,
    rank: u32,
    batches: &[Batch],
    got: &[Vec<Source>],
    read: impl Fn(usize, Range<usize>) -> Result<Vec<Vec<u16>>, MoeError>,
) -> Result<Verdict, MoeError> {
    let want = reference::dispatch(config, placement, batches, rank);
    let most = (MOST_READ / (2 * config.hidden as usize)).max(1);
    for (local, (want, got)) in want.iter().zip(got).enumerate() {
        let id = placement.of_rank(rank)[local];
        if want.len() != got.len() {
            let (want, got) = (want.len(), got.len());
            return Ok(Err(format!(
                "dispatch: expert {id} got {got} rows, reference {want}"
            )));
        }
        let mut rows = Vec::new();
        let count = want.len();
        for (place, (want, got)) in want.iter().zip(got).enumerate() {
            if place % most == 0 {
                rows = read(local, place..count.min(place + most))?;
            }
            if want != got {
                return Ok(Err(format!(
                    "dispatch: row {place} of expert {id} is token {} of rank {}, reference token {} of rank {}",
                    got.token, got.rank, want.token, want.rank
                )));
            }
            let sent = batches[want.rank as usize].token(config, want.token as usize);
            let sent = arrives(config.format, sent);
            if let Some(difference) = first_difference(&rows[place % most], &sent) {
                return Ok(Err(format!(
                    "dispatch: token {} of rank {} at expert {id}: {difference}",
                    want.token, want.rank
                )));
            }
        }
    }
    Ok(Ok(()))
}

/// Checks M2: the sums equal those of the reference bit for bit, and every token is valid. Returns how far the sums are from those of BF16
/// tokens, which the format limits.
pub(super) fn combine(
    config: &MoeConfig,
    placement: &Placement,
    rank: u32,
    batch: &Batch,
    got: &Combined,
) -> Result<f64, String> {
    let hidden = config.hidden as usize;
    let tokens = batch.x.chunks_exact(hidden);
    let arrived = Batch {
        x: tokens
            .flat_map(|token| arrives(config.format, token).into_owned())
            .collect(),
        ..batch.clone()
    };
    let want = reference::combine(config, placement, rank, &arrived, expert);
    let rows = got.out.chunks_exact(hidden).zip(want.chunks_exact(hidden));
    for (token, (got, want)) in rows.enumerate() {
        if let Some(difference) = first_difference(got, want) {
            return Err(format!("combine: token {token}: {difference}"));
        }
    }
    if let Some(token) = got.token_valid.iter().position(|valid| !valid) {
        return Err(format!("combine: token {token} has lost an expert"));
    }
    if config.format == Format::Bf16 {
        return Ok(0.0);
    }
    let exact = reference::combine(config, placement, rank, batch, expert);
    let numbers = |bits: &[u16]| -> Vec<f32> { bits.iter().map(|&x| bf16::to_f32(x)).collect() };
    let (far, limit) = (
        difference(&numbers(&got.out), &numbers(&exact)),
        limit(config.format),
    );
    if far <= limit {
        Ok(far)
    } else {
        Err(format!(
            "combine: {far:.1e} from the reference of BF16 tokens; the format's limit is {limit:.0e}"
        ))
    }
}

/// As `combine`, where only rows of the ranks of `seen` were added, so that a token that lacks an expert is not valid. Returns for each
/// such token the ranks whose experts it lacks.
pub(super) fn combine_of(
    config: &MoeConfig,
    placement: &Placement,
    rank: u32,
    batch: &Batch,
    got: &Combined,
    seen: &[u32],
) -> Result<Vec<BTreeSet<u32>>, String> {
    let hidden = config.hidden as usize;
    let there = |other: u32| seen.contains(&other);
    let want = reference::combine_seen(config, placement, rank, batch, there, expert);
    let rows = got
        .out
        .chunks_exact(hidden)
        .zip(want.out.chunks_exact(hidden));
    for (token, (got, want)) in rows.enumerate() {
        if let Some(difference) = first_difference(got, want) {
            return Err(format!(
                "combine from {seen:?}: token {token}: {difference}"
            ));
        }
    }
    let pairs = got.token_valid.iter().zip(&want.token_valid);
    match pairs.enumerate().find(|(_, (got, want))| got != want) {
        Some((token, (got, want))) => Err(format!(
            "combine from {seen:?}: token {token} is valid: {got}, reference {want}"
        )),
        None => {
            let invalid = (0..).zip(&want.token_valid).filter(|(_, valid)| !**valid);
            let lacks =
                |(token, _): (u32, &bool)| lacking(config, placement, rank, batch, token, there);
            Ok(invalid.map(lacks).collect())
        }
    }
}

/// Returns the ranks whose experts the token chose and that are not `there`.
fn lacking(
    config: &MoeConfig,
    placement: &Placement,
    rank: u32,
    batch: &Batch,
    token: u32,
    there: impl Fn(u32) -> bool,
) -> BTreeSet<u32> {
    let top_k = config.top_k as usize;
    let choices = batch
        .experts
        .iter()
        .skip(token as usize * top_k)
        .take(top_k);
    let homes = choices.filter_map(|expert| {
        let slot = placement.choose(*expert, token, rank, |_| true)?;
        Some(placement.homes()[slot as usize].rank)
    });
    homes.filter(|home| !there(*home)).collect()
}

/// Returns the first element that differs, in words, or None.
fn first_difference(got: &[u16], want: &[u16]) -> Option<String> {
    let pairs = got.iter().zip(want);
    let (element, (got, want)) = pairs
        .enumerate()
        .find(|(_, (a, b))| !bf16::same(**a, **b))?;
    Some(format!(
        "element {element} is {got:#06x} ({}), reference {want:#06x} ({})",
        bf16::to_f32(*got),
        bf16::to_f32(*want)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: MoeConfig = MoeConfig::BF16
        .with_hidden(8)
        .with_experts(2)
        .with_top_k(1)
        .with_max_tokens(3);

    fn batch(first: f32) -> Batch {
        let value = |i: u32| bf16::from_f32(first + f32::from(u8::try_from(i).unwrap()));
        Batch {
            x: (0..24).map(value).collect(),
            experts: vec![0, 1, 0],
            weights: vec![1.0; 3],
        }
    }

    /// Checks what rank 0 of two got, after `change` has spoiled it.
    fn dispatched(change: impl Fn(&mut Vec<Vec<Source>>, &mut Vec<u16>)) -> Verdict {
        let (placement, batches) = (Placement::blocks(2, 2), [batch(1.0), batch(40.0)]);
        let mut got = reference::dispatch(&SHAPE, &placement, &batches, 0);
        let rows = got[0].iter().map(|source| {
            let (batch, token) = (&batches[source.rank as usize], source.token as usize);
            batch.token(&SHAPE, token)
        });
        let mut rows = rows.collect::<Vec<_>>().concat();
        change(&mut got, &mut rows);
        let read = |_: usize, range: Range<usize>| {
            let rows = rows.chunks_exact(8).map(<[u16]>::to_vec);
            Ok(rows.skip(range.start).take(range.len()).collect())
        };
        dispatch(&SHAPE, &placement, 0, &batches, &got, read).unwrap()
    }

    #[test]
    fn a_dispatch_is_compared_row_by_row_and_element_by_element() {
        dispatched(|_, _| ()).unwrap();
        let lost = dispatched(|got, _| got[0].truncate(3));
        assert_eq!(
            lost.unwrap_err(),
            "dispatch: expert 0 got 3 rows, reference 4"
        );
        let swapped = dispatched(|got, _| got[0].swap(0, 1));
        assert_eq!(
            swapped.unwrap_err(),
            "dispatch: row 0 of expert 0 is token 2 of rank 0, reference token 0 of rank 0"
        );
        let torn = dispatched(|_, rows| rows[3 * 8 + 5] = 0x4000);
        assert_eq!(
            torn.unwrap_err(),
            "dispatch: token 2 of rank 1 at expert 0: element 5 is 0x4000 (2), reference 0x4274 (61)"
        );
    }

    #[test]
    fn a_combine_is_compared_element_by_element_and_must_be_valid() {
        let (placement, batch) = (Placement::blocks(2, 2), batch(1.0));
        let right = Combined {
            out: reference::combine(&SHAPE, &placement, 0, &batch, expert),
            token_valid: vec![true; 3],
        };
        let verdict = |got: &Combined| combine(&SHAPE, &placement, 0, &batch, got);
        assert_eq!(verdict(&right), Ok(0.0));
        let mut wrong = right.clone();
        wrong.out[8 + 7] ^= 1;
        let words = verdict(&wrong).unwrap_err();
        assert!(
            words.starts_with("combine: token 1: element 7 is 0x"),
            "{words}"
        );
        let mut invalid = right;
        invalid.token_valid[2] = false;
        assert_eq!(
            verdict(&invalid).unwrap_err(),
            "combine: token 2 has lost an expert"
        );
    }

    #[test]
    fn a_token_lacks_the_ranks_that_are_not_seen_and_hold_an_expert_of_it() {
        let (placement, batch) = (Placement::blocks(2, 2), batch(1.0));
        let of = |seen: &[u32]| {
            let there = |rank: u32| seen.contains(&rank);
            let want = reference::combine_seen(&SHAPE, &placement, 0, &batch, there, expert);
            let got = Combined {
                out: want.out,
                token_valid: want.token_valid,
            };
            combine_of(&SHAPE, &placement, 0, &batch, &got, seen).unwrap()
        };
        assert_eq!(of(&[0, 1]), []);
        assert_eq!(of(&[0]), [[1].into()]);
        assert_eq!(of(&[]), [[0].into(), [1].into(), [0].into()]);
    }

    #[test]
    fn fp8_equals_its_own_reference_exactly_and_that_of_bf16_within_its_limit() {
        let config = SHAPE.with_hidden(128).with_format(Format::Fp8(Scales::F32));
        let value = |i: u16| bf16::from_f32(1.0 + f32::from(i % 97) / 13.0);
        let batch = Batch {
            x: (0..3 * 128).map(value).collect(),
            experts: vec![0, 1, 0],
            weights: vec![1.0; 3],
        };
        let placement = Placement::blocks(2, 1);
        let cast = Batch {
            x: batch
                .x
                .chunks(128)
                .flat_map(|token| arrives(config.format, token).into_owned())
                .collect(),
            ..batch.clone()
        };
        assert_ne!(cast.x, batch.x);
        let sums = |of: &Batch| Combined {
            out: reference::combine(&config, &placement, 0, of, expert),
            token_valid: vec![true; 3],
        };
        let verdict = |got: &Combined| combine(&config, &placement, 0, &batch, got);
        let far = verdict(&sums(&cast)).unwrap();
        assert!(far > 0.0 && far <= FP8_LIMIT, "{far}");
        // The sums are those of tokens that dispatch did not cast.
        let words = verdict(&sums(&batch)).unwrap_err();
        assert!(words.starts_with("combine: token 0: element"), "{words}");
    }

    #[test]
    fn two_nans_are_the_same() {
        assert_eq!(first_difference(&[0x7fc0, 2], &[0xffff, 2]), None);
    }
}
