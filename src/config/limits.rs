//! Limits that variables and checks share.

/// The largest number of ranks of a team.
pub(crate) const MAX_RANKS: u32 = 1024;
/// The largest number of QPs to one peer.
pub(crate) const MAX_QPS_PER_PEER: u32 = 64;
/// The number of windows of a team if the configuration says nothing.
pub(crate) const MAX_WINDOWS: u32 = 16;
/// The largest number of windows that a team may be given room for. More than 300 MoE layers need no more.
pub(crate) const MOST_WINDOWS: u32 = 1024;
/// The limits of the bytes of notices that a host engine keeps of one peer.
pub(crate) const INBOX: [u64; 2] = [1 << 17, 1 << 30];
/// log2 of the longest CQ that the PRM has.
pub(crate) const MOST_LOG_ENTRIES: u8 = 22;
