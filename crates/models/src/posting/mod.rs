//! A model of the posting protocol with weak memory: every interleaving of a few threads that post to one ring.
//!
//! It has the protocol of `kernels/include/warpverbs/detail/sq.cuh`, one memory access at a time: admission by `claim`, `resv`, the parked
//! doorbell token with bounded service, selective signalling, hold-back and flush, wait, errors, guards and recovery. It has shared,
//! exclusive and block-owned queues, batches of a warp, and a collapsed and a wide CQ. Doorbells go with and without a record, through a
//! mailbox, and to queues in host memory. Every thread has a store buffer that is not FIFO. Stores to different words, doorbell stores
//! among them, become visible in any order until a fence. Read-modify-writes act at once and drain nothing. A fence whose scope does not
//! reach the NIC drains nothing for the NIC, and a release fence is cumulative (`modes`).

mod admission;
mod completion;
mod configuration;
mod device;
mod guard;
mod layout;
mod model;
mod modes;
mod property;
mod serve;
mod state;
mod thread;

pub use configuration::{Admission, Configuration, Cq, Flags, Nic, Op, Recovery, op, puts};
pub use model::Move;
pub use property::{Expect, Mutant, Property};

type Violation = crate::explore::Broken<Property>;
