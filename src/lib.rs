//! GPU-initiated RDMA (IBGDA) runtime with MoE dispatch and combine.
//!
//! `ARCHITECTURE.md` has the module table; `tests/docs/layering` enforces it.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod abi;
pub mod config;
pub mod error;
mod fabric;
pub mod gpu;
pub mod membership;
pub mod memheap;
pub mod moe;
pub mod sys;
pub mod team;
pub mod verbs;
