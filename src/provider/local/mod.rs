//! Copies between memory of this process and that of a peer on this machine, instead of packets.
//!
//! Within a process bytes are copied from address to address. Between processes of one user the kernel copies them
//! (`process_vm_readv`, `process_vm_writev`), many pieces a call. If both processes can map the memory of a region, they copy
//! without the kernel.
//!
//! `board` shows which regions a peer has, and lets its owner take one away. `reach` proves that a process is the peer's, and
//! copies. `lane` is the queue in front of `reach`. `admitted` gives the peer's process permission, where Yama demands that.
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
mod names;
mod reach;
mod staged;
mod words;

use rendezvous::Process;
use serde::{Deserialize, Serialize};

pub(crate) use admitted::admit;
pub(crate) use board::{Board, COPYING, LEAVING, MOST_COPIERS, Seat, ShownRegion, Unshown};
pub(crate) use counts::{Counts, MOST_COUNTERS};
pub(crate) use kept::{Kept, Vouch, draw};
pub(crate) use lane::LocalLane;
pub(crate) use names::{IpcName, MemoryName};
pub(crate) use reach::{Claim, Reach, Wanted};

use crate::gpu::FileName;

/// What an engine tells a peer that may be on its machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocalOffer {
    /// The user of its process.
    pub(crate) user: u32,
    /// Where it shows its regions.
    pub(crate) board: FileName,
}

/// Where the owner of a board keeps what shows a peer whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    /// The peer's seat.
    pub(crate) seat: u64,
    /// Where the board is in the memory of the one that tells this.
    pub(crate) board: u64,
}

impl LocalOffer {
    /// That of an engine with this board.
    pub(crate) fn new(board: &Board) -> Self {
        Self {
            user: user(),
            board: board.name(),
        }
    }

    /// Why the two are not to reach each other, as both say it of each other.
    pub(crate) fn far_from(
        &self,
        own: &Process,
        theirs: &Self,
        process: &Process,
    ) -> Option<&'static str> {
        if !own.is_beside(process) {
            Some("it is on another machine, or in another PID namespace")
        } else if self.user != theirs.user {
            Some("another user runs it")
        } else {
            None
        }
    }
}

/// The user whose rights this process has.
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}
