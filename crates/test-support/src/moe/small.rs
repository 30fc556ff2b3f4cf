//! A MoE layer of a few tokens, which also a loaded machine runs soon enough, and the traffic for it.

use warpverbs::moe::MoeConfig;

use super::traffic::Traffic;

/// The shape of the layer.
pub const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(8)
    .with_top_k(3)
    .with_max_tokens(12);

/// Traffic in which every rank has tokens, and some choices are missing.
pub const TRAFFIC: Traffic = Traffic {
    percent_none: 10,
    percent_empty: 0,
};
