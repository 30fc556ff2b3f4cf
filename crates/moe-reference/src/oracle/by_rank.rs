//! Oracle of dispatch outputs by source: `[ranks, max_tokens]`, each token once, in token order.

use super::finding::length;
use super::{Case, Finding, Row, payload};

/// The outputs of dispatch at one rank. Bytes that belong to no row hold `poison`.
#[derive(Clone, Debug)]
pub struct ByRank {
    /// The tokens, `[ranks, max_tokens, bytes]`.
    pub recv_x: Vec<u8>,
    /// The scales of the tokens, `[ranks, max_tokens, bytes]`.
    pub recv_scales: Vec<u8>,
    /// The number of rows of each rank.
    pub counts: Vec<u32>,
    /// The token of each row, `[ranks, max_tokens]`.
    pub src_info: Vec<u32>,
    /// The local expert of each choice, -1 for none, `[ranks, max_tokens, top_k]`.
    pub recv_experts: Vec<i32>,
    /// The weight of each choice, `[ranks, max_tokens, top_k]`.
    pub recv_weights: Vec<f32>,
    /// The byte with which the outputs were filled before the call.
    pub poison: u8,
}

/// Checks all outputs.
///
/// # Errors
/// The first finding, in the order of the functions below.
pub fn check(case: &Case, rank: usize, out: &ByRank) -> Result<(), Finding> {
    counts(case, rank, out)?;
    rows(case, rank, out)?;
    choices(case, rank, out)?;
    payload_and_scales(case, rank, out)?;
    untouched(case, out)
}

fn of_source(rows: &[Row], source: usize) -> Vec<&Row> {
    let from = |row: &&Row| row.source as usize == source;
    rows.iter().filter(from).collect()
}

/// Checks that every rank has as many rows here as tokens that chose an expert of this rank.
///
/// # Errors
/// [`Finding::Count`].
pub fn counts(case: &Case, rank: usize, out: &ByRank) -> Result<(), Finding> {
    length("counts", out.counts.len(), case.ranks())?;
    let rows = case.rows_at(rank);
    for (source, &got) in out.counts.iter().enumerate() {
        let (got, want) = (u64::from(got), of_source(&rows, source).len() as u64);
        if got != want {
            return Err(Finding::Count {
                what: "rank",
                index: source,
                got,
                want,
            });
        }
    }
    Ok(())
}

/// Checks that the rows of a rank are its tokens, each once, in ascending order. The caller has checked `counts`.
///
/// # Errors
/// [`Finding::Rows`], [`Finding::Order`].
pub fn rows(case: &Case, rank: usize, out: &ByRank) -> Result<(), Finding> {
    length(
        "src_info",
        out.src_info.len(),
        case.ranks() * case.max_tokens,
    )?;
    let rows = case.rows_at(rank);
    for source in 0..case.ranks() {
        let got = said(case, out, source);
        let mut sorted = got.to_vec();
        sorted.sort_unstable();
        let want: Vec<u32> = of_source(&rows, source)
            .iter()
            .map(|row| row.token)
            .collect();
        if sorted != want {
            return Err(Finding::Rows {
                what: "rank",
                index: source,
                rank: source,
                got: sorted,
                want,
            });
        }
        if let Some(pair) = got.windows(2).find(|pair| pair[0] > pair[1]) {
            return Err(Finding::Order {
                rank: source,
                token: pair[1],
                before: pair[0],
            });
        }
    }
    Ok(())
}

fn said<'a>(case: &Case, out: &'a ByRank, source: usize) -> &'a [u32] {
    &out.src_info[source * case.max_tokens..][..out.counts[source] as usize]
}

/// Checks that every row names the local experts of its token, at the place of the choice, with their weights. `rows` was checked before.
///
/// # Errors
/// [`Finding::Choice`].
pub fn choices(case: &Case, rank: usize, out: &ByRank) -> Result<(), Finding> {
    let all = case.ranks() * case.max_tokens * case.top_k;
    length("recv_experts", out.recv_experts.len(), all)?;
    length("recv_weights", out.recv_weights.len(), all)?;
    let rows = case.rows_at(rank);
    for source in 0..case.ranks() {
        for (i, row) in of_source(&rows, source).iter().enumerate() {
            for k in 0..case.top_k {
                let at = (source * case.max_tokens + i) * case.top_k + k;
                let pick = row.picks.iter().find(|(chosen, _)| *chosen == k);
                let differs = |what, got: f64, want: f64| match got == want {
                    true => Ok(()),
                    false => Err(Finding::Choice {
                        rank: source,
                        row: i,
                        k,
                        what,
                        got,
                        want,
                    }),
                };
                let want = pick.map_or(-1.0, |(_, local)| f64::from(*local));
                differs("expert", out.recv_experts[at].into(), want)?;
                if pick.is_some() {
                    let given = case.inputs[source].weights[row.token as usize * case.top_k + k];
                    differs("weight", out.recv_weights[at].into(), given.into())?;
                }
            }
        }
    }
    Ok(())
}

/// Checks that every row is its token, with its scales. The caller has checked `rows`.
///
/// # Errors
/// [`Finding::Payload`], [`Finding::Scale`], [`Finding::Cast`].
pub fn payload_and_scales(case: &Case, _: usize, out: &ByRank) -> Result<(), Finding> {
    let (row_bytes, scale_bytes) = payload::arrives(case);
    let all = case.ranks() * case.max_tokens;
    length("recv_x", out.recv_x.len(), all * row_bytes)?;
    length("recv_scales", out.recv_scales.len(), all * scale_bytes)?;
    for source in 0..case.ranks() {
        for (row, &token) in said(case, out, source).iter().enumerate() {
            let at = source * case.max_tokens + row;
            let arrived = payload::Arrived {
                place: "rank",
                index: source,
                row,
                x: &out.recv_x[at * row_bytes..][..row_bytes],
                scales: &out.recv_scales[at * scale_bytes..][..scale_bytes],
            };
            payload::check(case, source, token as usize, &arrived)?;
        }
    }
    Ok(())
}

/// Checks that rows after the last one of a rank still hold the poison.
///
/// # Errors
/// [`Finding::Touched`].
pub fn untouched(case: &Case, out: &ByRank) -> Result<(), Finding> {
    let (row_bytes, scale_bytes) = payload::arrives(case);
    for source in 0..case.ranks() {
        let rows = out.counts[source] as usize;
        for row in rows..case.max_tokens {
            let at = source * case.max_tokens + row;
            let x = out.recv_x[at * row_bytes..][..row_bytes].iter();
            let scales = &out.recv_scales[at * scale_bytes..][..scale_bytes];
            if let Some(byte) = x.chain(scales).position(|byte| *byte != out.poison) {
                return Err(Finding::Touched {
                    place: "rank",
                    index: source,
                    row,
                    byte,
                    rows,
                });
            }
        }
    }
    Ok(())
}
