//! Queues that a thread of the host posts to, whatever stands behind them: traits, and the providers.
//!
//! A [`Lane`] is one send queue, used by one thread. It takes the WQEs of a chain as far as it can, and says why it stopped. A
//! [`Reaper`] is where the WQEs of many lanes complete, used by the same thread. Every WQE that a lane has taken is accounted for
//! once: as done, or as failed with its cause. This holds for unsignalled WQEs too, and when the lane is in error.
//!
//! `mlx5` posts to QPs of an HCA, made by DevX, with the segments of mlx5-prm. `sink` has no HCA: what is rung for completes, which
//! shows what all the rest costs. `local` copies between the memory of this process and that of a peer on this machine; `host` has QPs and
//! such copies beside each other. `memory` is host memory that HCAs of this process and of peers read and write, and `gpu_memory`
//! that of a GPU. `files` knows which memory of the host may lose pages, because its file is truncated.

mod chain;
mod error;
mod files;
mod gpu_memory;
mod host;
pub(crate) mod local;
mod memory;
pub(crate) mod mlx5;
mod queue;
pub(crate) mod sink;
mod wake;

pub use chain::{Chain, LocalRange, Tag, Verb, Work};
pub use error::ProviderError;
pub use file_memory::Mappings;
pub use gpu_memory::{AnyMemory, GpuMemory};
pub(crate) use host::{Host, HostLane};
pub use memory::HostMemory;
pub use queue::{Cause, Completed, Completion, Lane, Posted, Provider, Reaper, Stop};
pub use wake::Wake;
pub(crate) use wake::Watched;
