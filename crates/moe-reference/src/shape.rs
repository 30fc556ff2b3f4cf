//! The shape of a MoE layer, as far as results depend on it.

/// What combine sends back for a token. It decides where sums are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Returns {
    /// One row for each rank: the sum over its experts.
    #[default]
    Sums,
    /// One row for each expert; the source weighs them.
    Rows,
}

/// The shape of one MoE layer; the same at every rank.
///
/// How dispatch lays out its rows is not part of it: that is which function is asked, [`dispatch`](crate::dispatch) or
/// [`dispatch_by_rank`](crate::dispatch_by_rank). What tokens are made of is not either: an expert of
/// [`combine`](crate::combine) is given what arrives, and [`format`](crate::format) makes FP8 and back of BF16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Elements of a token.
    pub hidden: usize,
    /// Experts of all ranks together.
    pub experts: usize,
    /// Experts that a token may choose.
    pub top_k: usize,
    /// Most tokens that a rank dispatches in one call.
    pub max_tokens: usize,
    /// What combine sends back.
    pub returns: Returns,
}
