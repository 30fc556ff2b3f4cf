//! Groups of ranks without HCA and GPU, in every kind of trouble. They are fast enough for many orders of events.

mod cost;
mod gone;
mod held;
pub(super) mod limits;
mod lives;
mod lost;
mod newcomer;
mod panics;
mod told;
mod turns;
mod worlds;
