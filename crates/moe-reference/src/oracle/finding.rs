//! The findings of an oracle.

use std::error::Error;
use std::fmt;

/// The first difference between an output and what it should be.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// An output with another length than its shape.
    Length {
        /// The name of the output.
        what: &'static str,
        /// The number of its elements.
        got: usize,
        /// The number of elements of its shape.
        want: usize,
    },
    /// A wrong count.
    Count {
        /// `expert` or `rank`.
        what: &'static str,
        /// The number of the expert or rank.
        index: usize,
        /// The output's count.
        got: u64,
        /// The number of rows by the inputs.
        want: u64,
    },
    /// Ranges of the ranks that do not divide the rows of an expert.
    Range {
        /// The local expert.
        expert: usize,
        /// The rank whose range is wrong.
        rank: usize,
        /// The first row of the range.
        begin: u64,
        /// The row after the last row of the range.
        end: u64,
        /// The number of rows of the expert.
        rows: u64,
        /// What is wrong with the range.
        why: &'static str,
    },
    /// A row that is missing, came twice, or has no source that sends it.
    Rows {
        /// `expert` or `rank`.
        what: &'static str,
        /// The number of the expert or rank.
        index: usize,
        /// The rank from which the rows come.
        rank: usize,
        /// The tokens of the rows in the output, sorted.
        got: Vec<u32>,
        /// The tokens of the rows by the inputs, sorted.
        want: Vec<u32>,
    },
    /// Rows that must be in order and are not.
    Order {
        /// The source.
        rank: usize,
        /// The token of the row, by its place in the input of its source.
        token: u32,
        /// The token of the row before it.
        before: u32,
    },
    /// A byte of a row that differs from its token.
    Payload {
        /// `expert` or `rank`.
        place: &'static str,
        /// The number of the expert or rank.
        index: usize,
        /// The row in the output of the expert or rank.
        row: usize,
        /// The source.
        rank: u32,
        /// The token of the row, by its place in the input of its source.
        token: u32,
        /// The first byte that differs.
        byte: usize,
        /// The value of the byte.
        got: u8,
        /// The value of the byte in the token.
        want: u8,
    },
    /// A scale that does not fit its channels.
    Scale {
        /// The source.
        rank: u32,
        /// The token of the row, by its place in the input of its source.
        token: u32,
        /// The number of the group of 128 channels.
        group: usize,
        /// The scale in the output.
        got: f64,
        /// The scale that was computed again.
        want: f64,
    },
    /// An FP8 number that is not the nearest one.
    Cast {
        /// The source.
        rank: u32,
        /// The token of the row, by its place in the input of its source.
        token: u32,
        /// The place of the number in its row.
        channel: usize,
        /// The number in the output.
        got: f64,
        /// The number that was cast: the input over its scale.
        want: f64,
    },
    /// A choice or a weight of a row that differs from its token.
    Choice {
        /// The source.
        rank: usize,
        /// The place of the row in the output.
        row: usize,
        /// The index of the choice.
        k: usize,
        /// `expert` or `weight`.
        what: &'static str,
        /// The value in the output.
        got: f64,
        /// The value in the input.
        want: f64,
    },
    /// Bytes that were written where no row belongs.
    Touched {
        /// `expert` or `rank`.
        place: &'static str,
        /// The number of the expert or rank.
        index: usize,
        /// The place of the row in the output.
        row: usize,
        /// The first byte that was written.
        byte: usize,
        /// The number of rows that came.
        rows: usize,
    },
    /// A statistic that did not grow by what came.
    Statistic {
        /// The name of the statistic.
        what: &'static str,
        /// The expert or the rank.
        index: usize,
        /// How much it grew.
        got: u64,
        /// The number of rows by the inputs.
        want: u64,
    },
    /// A wrong mask that a call returns.
    Active {
        /// The rank that the mask judges.
        rank: usize,
        /// The value in the output.
        got: u32,
        /// 1 if the rows of the rank came, else 0.
        want: u32,
    },
    /// A token that lost an expert and is called valid, or the other way round.
    Valid {
        /// The token, by its place in the batch.
        token: usize,
        /// The value in the output.
        got: u8,
        /// 1 if all of its experts contributed, else 0.
        want: u8,
    },
    /// A sum that is not a finite number, although all that was added is finite.
    NotANumber {
        /// The token, by its place in the batch.
        token: usize,
        /// The place of the sum in its row.
        channel: usize,
        /// The value in the output.
        got: f32,
    },
    /// A sum that is too far from the reference.
    Sum {
        /// What is compared: one token, or all together.
        what: String,
        /// The difference: 1 - 2<x,y> / (|x|² + |y|²).
        got: f64,
        /// The largest allowed difference.
        limit: f64,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { what, got, want } => {
                write!(f, "{what} has {got} elements; its shape needs {want}")
            }
            Self::Count {
                what,
                index,
                got,
                want,
            } => write!(
                f,
                "{what} {index} counts {got} rows; the inputs make it {want}"
            ),
            Self::Range {
                expert,
                rank,
                begin,
                end,
                rows,
                why,
            } => write!(
                f,
                "expert {expert}: the range of rank {rank} is {begin}..{end} of {rows} rows, {why}"
            ),
            Self::Rows {
                what,
                index,
                rank,
                got,
                want,
            } => write!(
                f,
                "{what} {index}: of rank {rank} the tokens are {got:?}; the inputs make them {want:?}"
            ),
            Self::Order {
                rank,
                token,
                before,
            } => write!(f, "rank {rank}: token {token} is behind token {before}"),
            Self::Payload {
                place,
                index,
                row,
                rank,
                token,
                byte,
                got,
                want,
            } => write!(
                f,
                "{place} {index} row {row}, token {token} of rank {rank}: byte {byte} is {got:#04x}, not {want:#04x}"
            ),
            Self::Scale {
                rank,
                token,
                group,
                got,
                want,
            } => write!(
                f,
                "token {token} of rank {rank}: scale {group} is {got:e}; its channels make it {want:e}"
            ),
            Self::Cast {
                rank,
                token,
                channel,
                got,
                want,
            } => write!(
                f,
                "token {token} of rank {rank}: channel {channel} is {got}; nearest to {want}"
            ),
            Self::Choice {
                rank,
                row,
                k,
                what,
                got,
                want,
            } => write!(
                f,
                "rank {rank} row {row}, choice {k}: {what} is {got}, not {want}"
            ),
            Self::Touched {
                place,
                index,
                row,
                byte,
                rows,
            } => write!(
                f,
                "{place} {index} row {row}: byte {byte} was touched, though only {rows} rows came"
            ),
            Self::Statistic {
                what,
                index,
                got,
                want,
            } => write!(f, "{what} {index} grew by {got}; the inputs make it {want}"),
            Self::Active { rank, got, want } => {
                write!(f, "rank {rank} is {got} in the mask, not {want}")
            }
            Self::Valid { token, got, want } => {
                write!(f, "token {token} is called {got}, not {want}")
            }
            Self::NotANumber {
                token,
                channel,
                got,
            } => write!(f, "token {token}, channel {channel} is {got}"),
            Self::Sum { what, got, limit } => write!(
                f,
                "{what} differs by {got:.3e} from the reference; {limit:.1e} is allowed"
            ),
        }
    }
}

impl Error for Finding {}

/// Refuses an output whose length is not that of its shape.
pub(super) fn length(what: &'static str, got: usize, want: usize) -> Result<(), Finding> {
    if got == want {
        Ok(())
    } else {
        Err(Finding::Length { what, got, want })
    }
}
