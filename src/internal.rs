//! What only the tests and measurements of this workspace need of the library. It may change in any version, and programs do
//! without it.
//!
//! Methods that only tests and measurements call stand at their types, where the documentation does not show them. A group does by them
//! to its layer what [`Layer`](crate::membership::Layer) does, with the errors of the layer.

use std::sync::atomic::AtomicU32;

use crate::abi::render;

/// What the kernels of dispatch and combine share with the host, and no kernel of a program.
pub mod moe_abi {
    pub use crate::abi::layer::*;
    pub use crate::abi::moe::*;
    pub use crate::abi::moe_calls::*;
    pub use crate::abi::moe_words::*;
}

/// The host engine, and its parts.
pub mod engine {
    pub use crate::engine::parts::*;
    pub use crate::engine::*;
}

/// Queues that a thread of the host posts to.
pub mod provider {
    pub use crate::provider::mlx5::{Mlx5, Mlx5Lane, Mlx5Reaper};
    pub use crate::provider::sink::{Sink, SinkLane, SinkReaper};
    pub use crate::provider::{
        BareLanes, BareWrite, Cause, Chain, Completed, Completion, HostMemory, Lane, LocalRange,
        Posted, Provider, ProviderError, Reaper, Stop, Tag, Verb, Wake, Work, WorkerLanes,
    };
}

pub use crate::memheap::{Block, MemHeap};
pub use crate::sys::bindings;
pub use crate::team::hello::reader::RecordReader;
use crate::team::{Store, StoreError};

/// Returns the text of `kernels/include/warpverbs/abi.h`.
#[must_use]
pub fn abi_header() -> String {
    render::render()
}

/// Hands over the wake word and the kick hook of a software HCA that is linked into this program. For launches that start
/// later.
pub fn connect(wake: &'static AtomicU32, kick: extern "C" fn()) {
    crate::gpu::simt::connect(wake, kick);
}

/// Tells the ranks of a team, which meet in `store`, why `rank` has given up, for a rank that cannot tell it itself.
///
/// # Errors
/// The store's.
pub fn tell_failure(store: &dyn Store, rank: u32, message: &str) -> Result<(), StoreError> {
    crate::team::tell_failure(store, rank, message)
}

/// Takes these functions of libibverbs and libmlx5 away from this process, as if the libraries were older. Whether it was the first to
/// do so.
pub fn hide_functions(functions: &[&'static str]) -> bool {
    crate::sys::hide(functions)
}
