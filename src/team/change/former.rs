//! The generation of a peer before the present one, whose kernels may reach windows of this rank by load and store.
//!
//! What holds stores back is not what holds packets back. A QP in Err and a key that has ended mean nothing to a process that has
//! the memory mapped. So a rank that could store into the windows of this one is replaced only when its process has ended. In one
//! process, its team must have ended. Until then this rank clears nothing of the layer and connects no QP, and the successor
//! waits. This rank closes its own mappings of the peer as soon as the peer has been failed and no kernel holds a guard of it.
//! That frees the memory of the process that has died.

use crate::fabric::Identity;
use crate::team::error::TeamError;
use crate::team::parts::Parts;

/// Closes what this rank has opened of the memory of `peer`, which has been failed and is not waited for. `false` while kernels hold
/// guards of it, or if it has not been failed.
pub(in crate::team) fn release(own: &Parts, peer: u32) -> Result<bool, TeamError> {
    let entry = own.peers.get(peer)?;
    if !own.tables.direct(peer).contains(&true) {
        return Ok(true);
    }
    let Some(_only) = entry.try_work() else {
        return Ok(false);
    };
    // Held, so that no thread opens the peer meanwhile.
    let state = entry.state();
    if !state.failed || !own.tables.is_closed(peer) || own.tables.readers(peer)? != 0 {
        return Ok(false);
    }
    close_windows(own, peer)?;
    Ok(true)
}

/// Refuses generation `generation` of `peer`, which is known, while the generation before it may still store into windows of this
/// rank.
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

/// Nothing of `peer` is reached by load and store any more. In its grace period.
pub(super) fn close_windows(own: &Parts, peer: u32) -> Result<(), TeamError> {
    if own.tables.direct(peer).contains(&true) {
        own.tables.end_direct(peer)?;
    }
    own.windows.close(peer);
    Ok(())
}
