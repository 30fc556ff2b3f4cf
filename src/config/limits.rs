//! Limits that variables and checks share.

/// Most ranks of a team.
pub(crate) const MAX_RANKS: u32 = 1024;
/// Most QPs to one peer.
pub(crate) const MAX_QPS_PER_PEER: u32 = 64;
/// Windows of a team for which nothing else is said.
pub(crate) const MAX_WINDOWS: u32 = 16;
/// Most windows that a team may be given room for: more than 300 MoE layers need.
pub(crate) const MOST_WINDOWS: u32 = 1024;
/// Notices of one peer that a host engine keeps, bytes.
pub(crate) const INBOX: [u64; 2] = [1 << 17, 1 << 30];
/// log2 of the longest CQ that the PRM has.
pub(crate) const MOST_LOG_ENTRIES: u8 = 22;
