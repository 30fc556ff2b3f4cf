//! Oracle of dispatch outputs by local expert: `[experts, ranks · max_tokens]`.

use super::finding::length;
use super::{Case, Finding, Row, payload};

/// The outputs of dispatch at one rank. Bytes that belong to no row hold `poison`.
#[derive(Clone, Debug)]
pub struct ByExpert {
    /// The tokens, `[room, ranks · max_tokens, bytes]`.
    pub recv_x: Vec<u8>,
    /// The scales of the tokens: of FP8 `[room, words, ranks · max_tokens]` of 4 bytes, else in the layout of `recv_x`.
    pub recv_scales: Vec<u8>,
    /// The number of rows of each expert.
    pub counts: Vec<u32>,
    /// The token of each row, `[room, ranks · max_tokens]`.
    pub src_info: Vec<u32>,
    /// begin << 32 | count of the rows of each rank, `[room, ranks]`.
    pub layout_range: Vec<u64>,
    /// The byte with which the outputs were filled before the call.
    pub poison: u8,
}

/// Checks all outputs.
///
/// # Errors
/// The first finding, in the order of the functions below.
pub fn check(case: &Case, rank: usize, out: &ByExpert) -> Result<(), Finding> {
    counts(case, rank, out)?;
    ranges(case, rank, out)?;
    rows(case, rank, out)?;
    payload_and_scales(case, rank, out)?;
    untouched(case, rank, out)
}

/// Returns the number of expert slots that `rank` holds.
fn held(case: &Case, rank: usize) -> usize {
    let places = case.places.iter().flatten();
    places.filter(|place| place.rank as usize == rank).count()
}

/// Returns the tokens of one source that chose local expert `expert`, in token order.
fn tokens_of(rows: &[Row], source: usize, expert: usize) -> Vec<u32> {
    let chose = |row: &&Row| {
        let mut picks = row.picks.iter();
        row.source as usize == source && picks.any(|(_, local)| *local as usize == expert)
    };
    rows.iter().filter(chose).map(|row| row.token).collect()
}

/// Checks that every expert has exactly the rows that chose it.
///
/// # Errors
/// [`Finding::Count`].
pub fn counts(case: &Case, rank: usize, out: &ByExpert) -> Result<(), Finding> {
    let experts = held(case, rank);
    length("counts", out.counts.len(), case.room)?;
    let rows = case.rows_at(rank);
    for (expert, &got) in out.counts.iter().enumerate().take(experts) {
        let chose = |row: &&Row| {
            let mut picks = row.picks.iter();
            picks.any(|(_, local)| *local as usize == expert)
        };
        let (got, want) = (u64::from(got), rows.iter().filter(chose).count() as u64);
        if got != want {
            return Err(Finding::Count {
                what: "expert",
                index: expert,
                got,
                want,
            });
        }
    }
    Ok(())
}

/// Checks that the rows of a rank lie together, and that the ranges of the ranks divide the rows of an expert among them.
///
/// # Errors
/// [`Finding::Range`].
pub fn ranges(case: &Case, rank: usize, out: &ByExpert) -> Result<(), Finding> {
    let ranks = case.ranks();
    length("layout_range", out.layout_range.len(), case.room * ranks)?;
    for expert in 0..held(case, rank) {
        let rows = u64::from(out.counts[expert]);
        let mut spans: Vec<(u64, u64, usize)> = (0..ranks)
            .map(|source| {
                let (begin, count) = range(case, out, expert, source);
                (begin, begin + count, source)
            })
            .collect();
        spans.sort_unstable();
        let mut next = 0;
        for (begin, end, source) in spans {
            let why = match () {
                () if begin == end => continue,
                () if begin < next => "which another rank's overlaps",
                () if begin > next => "which leaves rows to no expert",
                () if end > rows => "which goes beyond them",
                () => "",
            };
            if !why.is_empty() {
                return Err(Finding::Range {
                    expert,
                    rank: source,
                    begin,
                    end,
                    rows,
                    why,
                });
            }
            next = end;
        }
        if next != rows {
            return Err(Finding::Range {
                expert,
                rank: ranks,
                begin: next,
                end: rows,
                rows,
                why: "which no rank has",
            });
        }
    }
    Ok(())
}

fn range(case: &Case, out: &ByExpert, expert: usize, source: usize) -> (u64, u64) {
    let word = out.layout_range[expert * case.ranks() + source];
    (word >> 32, word & u64::from(u32::MAX))
}

/// Returns the first row of a range, and the tokens of its rows by `src_info`.
fn said<'a>(case: &Case, out: &'a ByExpert, expert: usize, source: usize) -> (usize, &'a [u32]) {
    let (begin, count) = range(case, out, expert, source);
    let (begin, count) = (index(begin), index(count));
    let at = expert * case.rows_of_an_expert() + begin;
    (begin, &out.src_info[at..at + count])
}

fn index(value: u64) -> usize {
    usize::try_from(value).expect("32 bits")
}

/// Checks that every expert has the tokens that chose it, each once, under the rank that sent them. The caller has checked `ranges`.
///
/// # Errors
/// [`Finding::Rows`].
pub fn rows(case: &Case, rank: usize, out: &ByExpert) -> Result<(), Finding> {
    let want_len = case.room * case.rows_of_an_expert();
    length("src_info", out.src_info.len(), want_len)?;
    let expected = case.rows_at(rank);
    for expert in 0..held(case, rank) {
        for source in 0..case.ranks() {
            let mut got = said(case, out, expert, source).1.to_vec();
            got.sort_unstable();
            let want = tokens_of(&expected, source, expert);
            if got != want {
                return Err(Finding::Rows {
                    what: "expert",
                    index: expert,
                    rank: source,
                    got,
                    want,
                });
            }
        }
    }
    Ok(())
}

/// Checks that every row is its token, with its scales. The caller has checked `rows`.
///
/// # Errors
/// [`Finding::Payload`], [`Finding::Scale`], [`Finding::Cast`].
pub fn payload_and_scales(case: &Case, rank: usize, out: &ByExpert) -> Result<(), Finding> {
    let room = case.rows_of_an_expert();
    let (row_bytes, scale_bytes) = payload::arrives(case);
    length("recv_x", out.recv_x.len(), case.room * room * row_bytes)?;
    length(
        "recv_scales",
        out.recv_scales.len(),
        case.room * room * scale_bytes,
    )?;
    for expert in 0..held(case, rank) {
        for source in 0..case.ranks() {
            let (begin, tokens) = said(case, out, expert, source);
            for (row, &token) in (begin..).zip(tokens) {
                let at = (expert * room + row) * row_bytes;
                let arrived = payload::Arrived {
                    place: "expert",
                    index: expert,
                    row,
                    x: &out.recv_x[at..at + row_bytes],
                    scales: &scales_of(case, out, expert, row),
                };
                payload::check(case, source, token as usize, &arrived)?;
            }
        }
    }
    Ok(())
}

/// Returns the scales of a row. The words of FP8 scales lie `ranks · max_tokens` words apart.
#[must_use]
pub fn scales_of(case: &Case, out: &ByExpert, expert: usize, row: usize) -> Vec<u8> {
    let (room, (_, bytes)) = (case.rows_of_an_expert(), payload::arrives(case));
    if !payload::scales_are_transposed(case) {
        let at = (expert * room + row) * bytes;
        return out.recv_scales[at..at + bytes].to_vec();
    }
    let words = bytes / 4;
    let word = |word: usize| {
        let at = ((expert * words + word) * room + row) * 4;
        out.recv_scales[at..at + 4].to_vec()
    };
    (0..words).flat_map(word).collect()
}

/// Checks that rows after the last one of an expert still hold the poison.
///
/// # Errors
/// [`Finding::Touched`].
pub fn untouched(case: &Case, rank: usize, out: &ByExpert) -> Result<(), Finding> {
    let room = case.rows_of_an_expert();
    let (row_bytes, _) = payload::arrives(case);
    for expert in 0..case.room {
        let rows = if expert < held(case, rank) {
            out.counts[expert] as usize
        } else {
            0
        };
        for row in rows..room {
            let at = (expert * room + row) * row_bytes;
            let bytes = out.recv_x[at..at + row_bytes].iter();
            let scales = scales_of(case, out, expert, row);
            let mut all = bytes.chain(&scales);
            if let Some(byte) = all.position(|byte| *byte != out.poison) {
                return Err(Finding::Touched {
                    place: "expert",
                    index: expert,
                    row,
                    byte,
                    rows,
                });
            }
        }
    }
    Ok(())
}

/// Checks that the statistic of each expert has grown by the number of rows that came.
///
/// # Errors
/// [`Finding::Statistic`].
pub fn statistics(case: &Case, rank: usize, before: &[u64], after: &[u64]) -> Result<(), Finding> {
    let rows = case.rows_at(rank);
    length("statistics", after.len(), before.len())?;
    for (expert, (before, after)) in before.iter().zip(after).enumerate() {
        let of = |source| tokens_of(&rows, source, expert).len() as u64;
        let want = (0..case.ranks()).map(of).sum();
        let got = after.wrapping_sub(*before);
        if got != want {
            return Err(Finding::Statistic {
                what: "expert",
                index: expert,
                got,
                want,
            });
        }
    }
    Ok(())
}

/// Checks the mask that dispatch returns: 1 for the ranks whose rows have arrived.
///
/// # Errors
/// [`Finding::Active`].
pub fn active(case: &Case, rank: usize, got: &[u32]) -> Result<(), Finding> {
    length("active", got.len(), case.ranks())?;
    for (source, &got) in got.iter().enumerate() {
        let want = u32::from(case.arrived[source][rank]);
        if got != want {
            return Err(Finding::Active {
                rank: source,
                got,
                want,
            });
        }
    }
    Ok(())
}
