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
    /// The user that runs its process.
    pub(crate) user: u32,
    /// The file of the board on which it shows its regions.
    pub(crate) board: FileName,
}

/// The place in the memory of a board's owner by which a peer checks whose memory it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    /// The number of the peer's seat.
    pub(crate) seat: u64,
    /// The address of the board in the memory of its owner.
    pub(crate) board: u64,
}

impl LocalOffer {
    /// Returns the offer of an engine with this board.
    pub(crate) fn new(board: &Board) -> Self {
        Self {
            user: user(),
            board: board.name(),
        }
    }

    /// Returns why two engines are not to reach each other within a machine. Both ends come to the same answer.
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
