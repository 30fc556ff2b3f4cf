//! What an oracle objects to.

use std::error::Error;
use std::fmt;

/// The first difference between an output and what it should be.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// An output is shorter than its shape.
    Length {
        /// Which output.
        what: &'static str,
        /// Its elements.
        got: usize,
        /// Those of its shape.
        want: usize,
    },
    /// A count is wrong.
    Count {
        /// `expert` or `rank`.
        what: &'static str,
        /// Which one.
        index: usize,
        /// The output's count.
        got: u64,
        /// Rows that the inputs make.
        want: u64,
    },
    /// The ranges of the ranks do not divide the rows of an expert.
    Range {
        /// Local expert.
        expert: usize,
        /// The rank whose range is wrong.
        rank: usize,
        /// Its first row.
        begin: u64,
        /// After its last row.
        end: u64,
        /// Rows of the expert.
        rows: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A row is missing, came twice, or has no source that sends it.
    Rows {
        /// `expert` or `rank`.
        what: &'static str,
        /// Which one.
        index: usize,
        /// Rank that they come from.
        rank: usize,
        /// Sorted.
        got: Vec<u32>,
        /// Sorted.
        want: Vec<u32>,
    },
    /// Rows that have an order are not in it.
    Order {
        /// Source.
        rank: usize,
        /// The token of the row, by its place in the input of its source.
        token: u32,
        /// The token of the row before it.
        before: u32,
    },
    /// A byte of a row is not that of its token.
    Payload {
        /// `expert` or `rank`.
        place: &'static str,
        /// Which one.
        index: usize,
        /// Row there.
        row: usize,
        /// Source.
        rank: u32,
        /// The token of the row, by its place in the input of its source.
        token: u32,
        /// First byte that differs.
        byte: usize,
        /// Its value.
        got: u8,
        /// The token's.
        want: u8,
    },
    /// A scale is not that of its channels.
    Scale {
        /// Source.
        rank: u32,
        /// The token of the row, by its place in the input of its source.
        token: u32,
        /// Which 128 channels.
        group: usize,
        /// The output's.
        got: f64,
        /// Recomputed.
        want: f64,
    },
    /// An FP8 number is not the nearest one.
    Cast {
        /// Source.
        rank: u32,
        /// The token of the row, by its place in the input of its source.
        token: u32,
        /// The place of the number in its row.
        channel: usize,
        /// The output's.
        got: f64,
        /// The number that was cast: the input over its scale.
        want: f64,
    },
    /// Choices or weights of a row are not those of its token.
    Choice {
        /// Source.
        rank: usize,
        /// The place of the row in the output.
        row: usize,
        /// Choice.
        k: usize,
        /// `expert` or `weight`.
        what: &'static str,
        /// The output's.
        got: f64,
        /// The input's.
        want: f64,
    },
    /// Something was written where no row belongs.
    Touched {
        /// `expert` or `rank`.
        place: &'static str,
        /// Which one.
        index: usize,
        /// The place of the row in the output.
        row: usize,
        /// First byte.
        byte: usize,
        /// Rows that came.
        rows: usize,
    },
    /// A counter that is added to did not grow by what came.
    Statistic {
        /// Which statistic.
        what: &'static str,
        /// Expert or rank.
        index: usize,
        /// Growth.
        got: u64,
        /// Rows that the inputs make.
        want: u64,
    },
    /// The mask that a call gives back is wrong.
    Active {
        /// The rank that the mask judges.
        rank: usize,
        /// The output's.
        got: u32,
        /// Whether its rows came.
        want: u32,
    },
    /// A token that lost an expert is called valid, or the other way round.
    Valid {
        /// The token, by its place in the batch.
        token: usize,
        /// The output's.
        got: u8,
        /// Whether all of its experts contributed.
        want: u8,
    },
    /// A sum is not a number, though all that was added is.
    NotANumber {
        /// The token, by its place in the batch.
        token: usize,
        /// The place of the sum in its row.
        channel: usize,
        /// The output's.
        got: f32,
    },
    /// A sum is too far from the reference.
    Sum {
        /// One token, or all together.
        what: String,
        /// 1 - 2<x,y> / (|x|² + |y|²).
        got: f64,
        /// Allowed.
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

/// Refuses an output that is shorter or longer than its shape.
pub(super) fn length(what: &'static str, got: usize, want: usize) -> Result<(), Finding> {
    if got == want {
        Ok(())
    } else {
        Err(Finding::Length { what, got, want })
    }
}
