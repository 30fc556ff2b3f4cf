//! QPs of type RC of any NIC, made and used by libibverbs alone: no DevX, no libmlx5.
//!
//! The driver of the NIC in libibverbs builds the bytes of WQEs, and rings for them when they are posted. Both ends of a connection settle
//! it as they do with `mlx5`: one may be of `mlx5` and the other of this provider.
//!
//! # Rooms
//!
//! ```text
//! rail.rs       all that is made on one NIC
//! pair.rs reaper.rs registration.rs   one QP taken through its states; a worker takes completions and sleeps; memory and keys of grants
//! lane.rs stock.rs   posting and accounting; the CQs of QPs, when they are made
//! name.rs       names of requests, by which completions name them
//! ```

mod lane;
mod name;
mod pair;
mod rail;
mod reaper;
mod registration;
mod stock;
#[cfg(test)]
mod tests;

pub(crate) use lane::VerbsLane;
pub(crate) use pair::VerbsPair;
pub(crate) use rail::VerbsRail;
pub(crate) use reaper::VerbsReaper;
pub(crate) use registration::{VerbsKey, VerbsRegistration};
