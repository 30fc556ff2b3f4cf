//! A MoE layer of a few tokens, which a loaded machine runs soon enough, and what it is given.

use warpverbs::moe::MoeConfig;

use super::Traffic;

/// The layer.
pub const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(8)
    .with_top_k(3)
    .with_max_tokens(12);

/// Every rank has tokens; some choices are missing.
pub const TRAFFIC: Traffic = Traffic {
    percent_none: 10,
    percent_empty: 0,
};
