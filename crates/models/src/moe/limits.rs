//! The limit of the models of MoE.

/// The most states that a model may have.
pub(super) const MOST_STATES: usize = 6_000_000;
