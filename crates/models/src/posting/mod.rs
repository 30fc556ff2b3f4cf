//! A model of the posting protocol with weak memory: every interleaving of a few threads that post to one ring.
//!
//! It has the protocol of `kernels/include/warpverbs/detail/sq.cuh`, one memory access at a time: admission by `claim`, `resv`, the parked
//! doorbell token with bounded service, selective signalling, hold-back and flush, wait, errors, guards and recovery. It has shared,
//! exclusive and block-owned queues, batches of a warp, and a collapsed and a wide CQ. Doorbells go with and without a record, through a
//! mailbox, and to queues in host memory. Every thread has a store buffer that is not FIFO. Stores to different words, doorbell stores
//! among them, become visible in any order until a fence. Read-modify-writes act at once and drain nothing. A fence whose scope does not
//! reach the NIC drains nothing for the NIC, and a release fence is cumulative (`modes`).
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! model.rs         the first state, who may move, and what holds at rest
//! thread.rs        the steps of a thread, by the place where it is
//! device.rs admission.rs serve.rs guard.rs   the NIC and the host; ring space; the holder of the token; guards
//! post.rs          WQEs and their publication
//! completion.rs modes.rs   looks at the CQ; fences, lanes, blocks, mailboxes
//! step.rs cq.rs moves.rs layout.rs   how steps are written down; entries of the CQ; who moves; where words lie
//! configuration.rs state.rs   what is searched; what a state remembers
//! property.rs      what must hold, and defects that break it
//! ```

mod admission;
mod completion;
mod configuration;
mod cq;
mod device;
mod guard;
mod layout;
mod model;
mod modes;
mod moves;
mod post;
mod property;
mod serve;
mod state;
mod step;
mod thread;

pub use configuration::{Admission, Configuration, Cq, Flags, Nic, Op, Recovery, op, puts};
pub use moves::Move;
pub use property::{Expect, Mutant, Property};
