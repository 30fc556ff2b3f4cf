//! Dispatch and combine of MoE tokens, and their scalar reference.

pub mod bf16;
mod config;
mod error;
mod layout;
pub mod reference;
mod routing;

pub use config::{Home, MAX_EXPERTS, MAX_RANKS, MoeConfig, Placement};
pub use error::MoeError;
pub use layout::{Layout, RequiredBytes, required_bytes};
pub use routing::check_routing;
