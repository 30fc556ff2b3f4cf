//! The generation of a peer before the present one, whose kernels may reach windows of this rank by load and store.
//!
//! A QP in Err and a key that has ended stop packets, but no process that has the memory mapped. So a generation that could store
//! into the windows of this rank is replaced only when its process has ended. If it is in this process, its team must have ended.
//! Until then this rank clears nothing of the layer and connects no QP, and the successor waits. This rank closes its own mappings
//! of the peer as soon as the peer has been failed and no kernel holds a guard of it. That frees the memory of a process that has
//! died.

use crate::fabric::Identity;
use crate::team::error::TeamError;
use crate::team::parts::Parts;

/// Closes what this rank has opened of the memory of `peer`, which has been failed and is not waited for. Returns `false` while
/// kernels hold guards of the peer, or if it has not been failed.
pub(in crate::team) fn release(own: &Parts, peer: u32) -> Result<bool, TeamError> {
    let entry = own.peers.get(peer)?;
    if !own.tables.direct(peer).contains(&true) {
        return Ok(true);
    }
    let Some(_only) = entry.try_work() else {
        return Ok(false);
    };
    // The lock is held, so that no thread opens the peer meanwhile.
    let state = entry.state();
    if !state.failed || !own.tables.is_closed(peer) || own.tables.readers(peer)? != 0 {
        return Ok(false);
    }
    close_windows(own, peer)?;
    Ok(true)
}

/// Refuses generation `generation` of `peer` while the generation before it may still store into windows of this rank. `successor`
/// is the identity of the new generation.
pub(super) fn is_over(
    own: &Parts,
    peer: u32,
    generation: u32,
    successor: &Identity,
) -> Result<(), TeamError> {
    let mut state = own.peers.get(peer)?.state();
    match &state.visitor {
        Some(of) if of.generation != generation && !of.identity.is_over(successor) => {
            Err(TeamError::StillRuns {
                peer,
                generation: of.generation,
                process: of.identity.process().to_string(),
            })
        }
        Some(of) if of.generation != generation => {
            state.visitor = None;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Ends the access to the memory of `peer` by load and store. Call it only in the grace period of the peer.
pub(super) fn close_windows(own: &Parts, peer: u32) -> Result<(), TeamError> {
    if own.tables.direct(peer).contains(&true) {
        own.tables.end_direct(peer)?;
    }
    own.windows.close(peer);
    Ok(())
}
