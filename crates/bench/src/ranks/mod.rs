//! What ranks cost: a MoE step, a rank that returns, a group and its store.

pub(crate) mod group;
pub mod moe;
pub mod rejoin;
mod resident;
mod together;
