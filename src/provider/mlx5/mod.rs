//! QPs of an mlx5 HCA, made by DevX, whose WQEs this process writes with the segments of mlx5-prm.
//!
//! The file `wqe` builds the bytes, and `lane` posts and accounts. The file `reaper` takes CQEs and sleeps, alone or, by a `hub`, with
//! other workers. The file `rail` makes all of it on one HCA. A `stock` gives QPs their memory and CQs, when they are made. The file `pair`
//! takes one QP through its states. In `bare` a thread posts without an engine, for measurements.

mod bare;
mod hub;
mod lane;
mod pair;
mod rail;
mod reaper;
mod shape;
mod stock;
#[cfg(test)]
mod tests;
mod wqe;

pub use bare::{BareLanes, BareWrite};
pub use lane::Mlx5Lane;
pub(crate) use pair::{Offer, Pair};
pub(crate) use rail::{Mlx5Rail, Registration};
pub use reaper::Mlx5Reaper;
pub(crate) use shape::RailShape;

use super::Provider;

/// The provider of QPs of an mlx5 HCA.
#[derive(Debug)]
pub enum Mlx5 {}

impl Provider for Mlx5 {
    type Lane = Mlx5Lane;
    type Reaper = Mlx5Reaper;
}
