//! Copies between memory of this process and that of a peer on this machine, instead of packets.
//!
//! Within a process bytes are copied from address to address. Between processes of one user the kernel copies them
//! (`process_vm_readv`, `process_vm_writev`), many pieces a call. If both processes can map the memory of a region, they copy
//! without the kernel.
//!
//! `board` shows which regions a peer has, and lets its owner take one away. `reach` proves that a process is the peer's, and
//! copies; `machine` is such a process. `lane` is the queue in front of `reach`. `admitted` gives the peer's process permission, where Yama demands that.
//! `kept` is what an engine keeps for one connection, and how it shows first
//! that it will. `counts` holds the counters, in which copies count too. `names` says how other processes reach memory that they map or open.
//!
//! Memory of a GPU the GPU copies: within a process from address to address, between processes in what one of them has opened. `staged`
//! is for memory of the host that it cannot be let near.

mod admitted;
mod board;
mod counts;
mod kept;
mod lane;
mod machine;
mod names;
mod offer;
mod reach;
mod staged;
mod user;
mod words;

pub(crate) use admitted::admit;
pub(crate) use board::{Board, COPYING, LEAVING, MOST_COPIERS, Seat, ShownRegion, Unshown};
pub(crate) use counts::{Counts, MOST_COUNTERS};
pub(crate) use kept::{Kept, Vouch, draw};
pub(crate) use lane::LocalLane;
pub(crate) use names::{IpcName, MemoryName};
pub(crate) use offer::{LocalOffer, Place};
pub(crate) use reach::{Claim, Reach, Wanted};
