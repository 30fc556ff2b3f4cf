//! The host engine, in two models: one striped transfer, and the ids of its slots.
//!
//! `transfer` has workers that pull slices from one account word, post chains, reap, retry and fail, while a user cancels and
//! polls. `slots` has a slot that is used again while an old id is polled. `account` is the word itself: the model runs on any
//! that has its transitions.

pub mod account;
pub mod slots;
pub mod transfer;

/// Most states of a model.
const MOST_STATES: usize = 3_000_000;
