//! What the calls of a workspace give.

/// What combine gave back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combined {
    /// BF16 bits, `[tokens, hidden]`.
    pub out: Vec<u16>,
    /// Whether all experts of a token have contributed.
    pub token_valid: Vec<bool>,
}

/// What the calls of a workspace have added up so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Rows of each local expert.
    pub rows: Vec<u64>,
    /// Nanoseconds that dispatch has waited for each rank.
    pub dispatch_wait_ns: Vec<u64>,
    /// As `dispatch_wait_ns`, for combine.
    pub combine_wait_ns: Vec<u64>,
}
