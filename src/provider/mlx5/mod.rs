//! QPs of an mlx5 HCA, made by DevX, whose WQEs this process writes with the segments of mlx5-prm.
//!
//! # Rooms
//!
//! ```text
//! provider.rs   the kind of these lanes and reapers
//! rail.rs       all that is made on one HCA
//! pair.rs reaper.rs   one QP taken through its states; a worker takes completions and sleeps
//! lane.rs hub.rs   posting and accounting; CQs that all workers share
//! wqe.rs consumers.rs   bytes of WQEs; what takes CQEs off CQs
//! stock.rs      memory and CQs for QPs, when they are made
//! ```

mod consumers;
mod hub;
mod lane;
mod pair;
mod provider;
mod rail;
mod reaper;
mod stock;
#[cfg(test)]
mod tests;
mod wqe;

pub use lane::Mlx5Lane;
pub(crate) use pair::Pair;
pub use provider::Mlx5;
pub(crate) use rail::{Mlx5Rail, Registration};
pub use reaper::Mlx5Reaper;
