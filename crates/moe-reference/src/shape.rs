//! The shape of a MoE layer, as far as results depend on it.

/// The rows that combine sends back for a token. They decide where sums are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Returns {
    /// One row for each rank: the sum over its experts.
    #[default]
    Sums,
    /// One row for each expert; the source weighs them.
    Rows,
}

/// The shape of one MoE layer. It is the same at every rank.
///
/// The layout of dispatch's rows is not part of it: the caller chooses it by the function, [`dispatch`](crate::dispatch) or
/// [`dispatch_by_rank`](crate::dispatch_by_rank). The format of tokens is not part of it either: an expert of [`combine`](crate::combine)
/// gets what arrives, and [`format`](crate::format) converts between FP8 and BF16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of elements of a token.
    pub hidden: usize,
    /// The number of experts of all ranks together.
    pub experts: usize,
    /// The most experts that a token may choose.
    pub top_k: usize,
    /// The most tokens that a rank dispatches in one call.
    pub max_tokens: usize,
    /// The rows that combine sends back.
    pub returns: Returns,
}
