//! The limit of the models of the host engine.

/// The most states that a model may have.
pub(super) const MOST_STATES: usize = 3_000_000;
