//! What an engine tells a peer that may be on its machine.

use rendezvous::Process;
use serde::{Deserialize, Serialize};

use super::board::Board;
use super::user::user;
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

/// Where the owner of a board keeps the words by which a peer checks whose memory it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    /// The peer's seat.
    pub(crate) seat: u64,
    /// The address of the board in the memory of its owner.
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

    /// Returns why the two are not to reach each other, as both say it of each other.
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
