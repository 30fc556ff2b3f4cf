//! What the host engine costs.

pub(crate) mod engine;
pub mod fill;
pub(crate) mod local;
pub mod memory;
pub(crate) mod p2p;
mod pages;
pub(crate) mod patterns;
mod pieces;
pub(crate) mod regions;
pub mod served;
mod spread;
