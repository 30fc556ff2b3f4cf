//! Hands objects that a program has opened by rdma-sys, cust or cudarc to Warpverbs with their types. Each of these crates has a
//! feature of its name. A program that has anything else hands over addresses: `Context::adopt`, `Pd::adopt`, `Gpu::wrap_stream`,
//! `Gpu::wrap_memory` of the crate `warpverbs` take them from any binding.
//!
//! Nothing that is handed over is closed here. [`Lent`] borrows it, so that a program which drops it too early does not compile.
//! docs/interop.md says what each feature needs to build.

#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "cust")]
pub mod cust;
mod lent;
#[cfg(feature = "rdma-sys")]
pub mod rdma_sys;

pub use lent::Lent;
