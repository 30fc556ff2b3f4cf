//! Tokens on the host: what is given to dispatch, and numbers of small formats.

pub(in crate::moe) mod batch;
pub mod bf16;
pub(in crate::moe) mod fp8;
pub(in crate::moe) mod routing;
