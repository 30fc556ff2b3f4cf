//! Compares what a step gave with the scalar reference, element by element.

use super::experts::expert;
use crate::moe::reference::{self, Batch, Source};
use crate::moe::{Combined, Moe, MoeError, Workspace, bf16};

/// What a step gave, or the first thing that is wrong with it, in words.
pub(super) type Verdict = Result<(), String>;

/// M1: every row that this rank's experts should have got is there, once, in its place, with every element.
pub(super) fn dispatch(
    moe: &Moe,
    work: &Workspace,
    batches: &[Batch],
    got: &[Vec<Source>],
) -> Result<Verdict, MoeError> {
    let config = moe.config();
    let want = reference::dispatch(config, moe.placement(), batches, moe.team().rank());
    for (local, (want, got)) in want.iter().zip(got).enumerate() {
        let id = moe.local_experts()[local];
        if want.len() != got.len() {
            let (want, got) = (want.len(), got.len());
            return Ok(Err(format!(
                "dispatch: expert {id} got {got} rows, reference {want}"
            )));
        }
        for (row, (want, got)) in want.iter().zip(got).enumerate() {
            if want != got {
                return Ok(Err(format!(
                    "dispatch: row {row} of expert {id} is token {} of rank {}, reference token {} of rank {}",
                    got.token, got.rank, want.token, want.rank
                )));
            }
            let sent = batches[want.rank as usize].token(config, want.token as usize);
            if let Some(difference) = first_difference(&work.received(local, row)?, sent) {
                return Ok(Err(format!(
                    "dispatch: token {} of rank {} at expert {id}: {difference}",
                    want.token, want.rank
                )));
            }
        }
    }
    Ok(Ok(()))
}

/// M2: combine is the reference bit for bit, and every token is valid.
pub(super) fn combine(moe: &Moe, batch: &Batch, got: &Combined) -> Verdict {
    let hidden = moe.config().hidden as usize;
    let want = reference::combine(moe.config(), moe.placement(), batch, expert);
    let rows = got.out.chunks_exact(hidden).zip(want.chunks_exact(hidden));
    for (token, (got, want)) in rows.enumerate() {
        if let Some(difference) = first_difference(got, want) {
            return Err(format!("combine: token {token}: {difference}"));
        }
    }
    match got.token_valid.iter().position(|valid| !valid) {
        Some(token) => Err(format!("combine: token {token} has lost an expert")),
        None => Ok(()),
    }
}

/// The first element that differs, in words.
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

    #[test]
    fn a_difference_names_element_and_both_values() {
        assert_eq!(first_difference(&[1, 2], &[1, 2]), None);
        let words = first_difference(&[0x3f80, 0x4000], &[0x3f80, 0x3f81]).unwrap();
        assert_eq!(
            words,
            "element 1 is 0x4000 (2), reference 0x3f81 (1.0078125)"
        );
    }
}
