//! Copies between memory of this process and memory of a peer on this machine, instead of packets.
//!
//! Within a process bytes are copied from address to address. Between processes of one user the kernel copies them
//! (`process_vm_readv`, `process_vm_writev`), many pieces a call. If both processes can map the memory of a region, they copy
//! without the kernel.
//!
//! A GPU copies memory of a GPU: within a process from address to address, between processes in memory that one of them has opened.
//!
//! # Rooms
//!
//! ```text
//! lane.rs counts.rs   the queue of copies; counters, in which copies count too
//! reach.rs            proves that a process is the peer's, and copies
//! offer.rs machine.rs staged.rs  what an engine tells of its board; a process of this machine; memory of the host that a GPU is not let near
//! board.rs            which regions an engine shows, and how it takes one away
//! admitted.rs kept.rs  the permission that Yama wants; what an engine keeps for one connection
//! count_words.rs user.rs names.rs  words of counters; whose a process is; how other processes reach memory
//! words.rs            words that processes share
//! ```

mod admitted;
mod board;
mod count_words;
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
pub(crate) use count_words::MOST_COUNTERS;
pub(crate) use counts::Counts;
pub(crate) use kept::{Kept, Vouch, draw};
pub(crate) use lane::LocalLane;
pub(crate) use names::{IpcName, MemoryName};
pub(crate) use offer::{LocalOffer, Place};
pub(crate) use reach::{Claim, Reach, Wanted};
