//! What programs reach through libibverbs and libmlx5, and what a program may send past them.

// Programs of one file share it, so it stands beside them, where the compiler does not look for modules of this one.
#[path = "../rdma_core/mod.rs"]
mod rdma_core;

mod attributes;
mod devx_events;
mod engine_libmlx5;
mod malformed_ioctls;
mod memory;
mod queues;
mod raw_wqe;
