//! A software mlx5 HCA below unmodified libibverbs and libmlx5.

pub mod device;
pub mod engine;
pub mod wire;
