//! The inputs of a demo, and its inputs and outputs as `.npy` files.

pub(crate) mod dump;
mod generate;
pub(crate) mod input;
mod npy;
