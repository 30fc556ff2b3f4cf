//! The traits of queues that a thread of the host posts to, and the providers that implement them.
//!
//! A [`Lane`] is one send queue, used by one thread. Its `post` takes as many WQEs of a chain as fit, and says why it stopped. A [`Reaper`]
//! is where the WQEs of many lanes complete; the thread of the lanes uses it. Every WQE that a lane has taken is accounted for once: as
//! done, or as failed with its cause. This holds for unsignalled WQEs too, and when the lane is in error.
//!
//! The provider `mlx5` posts to QPs of an HCA, which are made by DevX, with the segments of mlx5-prm. `verbs` posts to QPs of any NIC by
//! libibverbs. `ofi` posts to endpoints of libfabric. `sink` has no HCA: its WQEs complete once they are rung for, which shows what the
//! rest of an engine costs. `local` copies between the memory of this process and that of a peer on this machine. `host` has all that an
//! engine needs of its NICs, whichever provider drives them. `rc` has what the two ends of an RC connection tell each other. `memory` is
//! host memory that HCAs of this process and of peers read and write, and `gpu_memory` is such memory of a GPU. `files` knows which host
//! memory may lose pages because its file is truncated.

mod carried;
mod chain;
mod error;
mod files;
mod gpu_memory;
mod host;
pub(crate) mod local;
mod memory;
pub(crate) mod mlx5;
pub(crate) mod ofi;
mod queue;
pub(crate) mod rc;
pub(crate) mod shape;
pub(crate) mod sink;
pub(crate) mod verbs;
mod wake;

pub use chain::{BareWrite, Chain, LocalRange, Tag, Verb, Work};
pub use error::ProviderError;
pub use file_memory::Mappings;
pub use gpu_memory::{AnyMemory, GpuMemory};
pub use host::{BareLanes, EngineDevice};
pub(crate) use host::{
    Host, HostKey, HostLane, HostOffer, HostPair, HostPort, HostRail, HostReaper, HostRegistration,
    HostTerms, Naming, RC,
};
pub use memory::HostMemory;
pub use ofi::{OfiDevice, OfiError, OfiWish};
pub use queue::{
    Cause, Completed, Completion, Lane, LibfabricCause, Posted, Provider, Reaper, Stop, WorkerLanes,
};
pub(crate) use queue::{Counted, CounterCount, LaneCounts};
pub use wake::Wake;
pub(crate) use wake::Watched;
