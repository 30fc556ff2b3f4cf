//! Parameters of the kernels in `kernels/`, rendered to `kernels/abi.h`.

pub mod conformance;
pub mod kernels;
pub mod ops;
mod render;
pub mod team;

pub use render::render;
