//! A MoE layer of a few tokens, which a loaded machine runs soon enough, and what it is given.

use warpverbs::moe::MoeConfig;

use super::Traffic;

/// The layer.
pub const SHAPE: MoeConfig = MoeConfig {
    hidden: 64,
    experts: 8,
    top_k: 3,
    max_tokens: 12,
    ..MoeConfig::BF16
};

/// Every rank has tokens; some choices are missing.
pub const TRAFFIC: Traffic = Traffic {
    percent_none: 10,
    percent_empty: 0,
};
