//! The results of the calls of a workspace.

/// The result of a combine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combined {
    /// The sums, as BF16 bits, `[tokens, hidden]`.
    pub out: Vec<u16>,
    /// For each token: whether all its experts have contributed.
    pub token_valid: Vec<bool>,
}

/// Counters over all calls of a workspace so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Number of rows of each local expert.
    pub rows: Vec<u64>,
    /// Nanoseconds that dispatch has waited for each rank.
    pub dispatch_wait_ns: Vec<u64>,
    /// As `dispatch_wait_ns`, for combine.
    pub combine_wait_ns: Vec<u64>,
}
