//! What a group needs of a team: its place among the ranks, and QPs to one peer at a time.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::abi::{QpContext, Status};
use crate::team::store::Store;
use crate::team::{Team, TeamError};

/// The QPs of one rank, as a group sees them.
pub(super) trait Fabric: Send + Sync + Debug {
    /// This rank's slot.
    fn slot(&self) -> u32;

    /// Its generation.
    fn generation(&self) -> u32;

    /// Slots of the team.
    fn slots(&self) -> u32;

    /// The ranks that were connected when this one joined, all of generation 1; none: it joins others.
    fn founders(&self) -> Vec<u32>;

    fn store(&self) -> Arc<dyn Store>;

    /// Longest wait of a device call.
    fn deadline(&self) -> Duration;

    /// Longest wait for other ranks in what all do together.
    fn timeout(&self) -> Duration;

    /// Ends everything with `peer`, at once: its QPs are in Err.
    fn fail_peer(&self, peer: u32) -> Result<(), TeamError>;

    /// Connects the QPs to `peer` with those of that generation, whatever state they are in. No kernel gets a guard of the peer
    /// before [`Fabric::open_peer`].
    fn connect_peer(&self, peer: u32, generation: u32) -> Result<(), TeamError>;

    /// Kernels may post to `peer`, which is connected.
    fn open_peer(&self, peer: u32) -> Result<(), TeamError>;

    /// Vendor syndrome << 8 | syndrome of a QP to `peer` that kernels have found in error; none if they have not.
    fn failure(&self, peer: u32) -> Result<Option<u32>, TeamError>;
}

impl Fabric for Team {
    fn slot(&self) -> u32 {
        self.rank()
    }

    fn generation(&self) -> u32 {
        1
    }

    fn slots(&self) -> u32 {
        self.ranks()
    }

    fn founders(&self) -> Vec<u32> {
        (0..self.ranks()).collect()
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.exchange.store())
    }

    fn deadline(&self) -> Duration {
        self.config.deadline
    }

    fn timeout(&self) -> Duration {
        self.config.timeout
    }

    fn fail_peer(&self, peer: u32) -> Result<(), TeamError> {
        Self::fail_peer(self, peer)
    }

    fn connect_peer(&self, peer: u32, _generation: u32) -> Result<(), TeamError> {
        Err(TeamError::Recovering { peer })
    }

    fn open_peer(&self, _peer: u32) -> Result<(), TeamError> {
        Ok(())
    }

    fn failure(&self, peer: u32) -> Result<Option<u32>, TeamError> {
        for link in &self.peer(peer)?.state().links {
            let at = link.layout().context_addr;
            // One word: a failure and its syndrome.
            let word: u64 = self.word(at, std::mem::offset_of!(QpContext, err))?;
            let (status, syndrome) = (word & u64::from(u32::MAX), word >> 32);
            // `aborted` is what the host has written itself.
            let own = [Status::OK, Status::ABORTED].map(|status| u64::from(status.0));
            if !own.contains(&status) {
                return Ok(Some(u32::try_from(syndrome).expect("32 bits")));
            }
        }
        Ok(None)
    }
}
