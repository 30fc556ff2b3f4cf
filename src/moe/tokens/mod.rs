//! Tokens on the host: the input of dispatch, and numbers of small formats.

pub(in crate::moe) mod batch;
pub mod bf16;
pub(in crate::moe) mod fp8;
pub(in crate::moe) mod routing;
