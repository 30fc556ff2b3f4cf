//! Hands objects that a program has opened by rdma-sys, cust or cudarc to Warpverbs with their types. Each of these crates has a
//! feature of its name. A program that has anything else hands over addresses: `Context::adopt`, `Pd::adopt`, `Gpu::wrap_stream`,
//! `Gpu::wrap_memory` of the crate `warpverbs` take them from any binding.
//!
//! Nothing that is handed over is closed here. [`Lent`] borrows it, so that a program which drops it too early does not compile.
//! docs/interop.md says what each feature needs to build.
//!
//! Two of these crates are old, and each is the newest that its registry has (looked up in November 2026):
//!
//! - rdma-sys 0.3.0 is of February 2023. Its bindings are made of the installed headers when it is built. The tests check the offsets of
//!   the fields that Warpverbs reads, and QPs of a program beside a team on the software HCA.
//! - cust 0.3.2 is of February 2022 and declares the driver of CUDA 11.4. The tests check that its contexts, streams and memory are found and left as they
//!   were, on a driver without a GPU. No test runs it with a driver of NVIDIA.

#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "cust")]
pub mod cust;
mod lent;
#[cfg(feature = "rdma-sys")]
pub mod rdma_sys;

pub use lent::Lent;
