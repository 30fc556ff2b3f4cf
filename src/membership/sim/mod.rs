//! Groups without HCA and GPU. Their threads, rules and store are those of a real group. Their QPs are entries of a table, and the calls of
//! their layer send one word to each member. Tests run them in every kind of trouble, and `wv bench group` counts what they cost.

mod cut_store;
mod layer;
mod look;
mod world;

#[cfg(test)]
pub(super) use cut_store::CutStore;
pub use look::looks;
pub use rendezvous::{Asked, Counted, Process};
#[cfg(test)]
pub(super) use world::LOOK;
pub use world::{Rank, World, WorldConfig};
#[cfg(test)]
pub(super) use world::{founder, lock};
