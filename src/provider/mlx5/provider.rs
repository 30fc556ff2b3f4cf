//! The lanes and reapers of QPs of an mlx5 HCA, as one kind.

use super::lane::Mlx5Lane;
use super::reaper::Mlx5Reaper;
use crate::provider::Provider;

/// The provider of QPs of an mlx5 HCA.
#[derive(Debug)]
pub enum Mlx5 {}

impl Provider for Mlx5 {
    type Lane = Mlx5Lane;
    type Reaper = Mlx5Reaper;
}
