//! Single steps of the life of the QPs to one peer. The caller holds the state of the peer.

use crate::fabric::{Identity, Reach};
use crate::gpu::Gpu;
use crate::team::error::TeamError;
use crate::team::peers::state::{Contact, Making, PeerState, Visitor};
use crate::team::qps::set::QpOffer;
use crate::team::rails::RailSet;

/// Moves all QPs that take anything from the peer to Err, also those of a life that is being made, and releases their waiters. QPs
/// whose numbers were never published stay as they are.
pub(in crate::team) fn fence(state: &mut PeerState, gpu: &dyn Gpu) -> Result<(), TeamError> {
    state.failed = state.told != 0;
    state.doubted |= state.connected != 0 && state.connected == state.told;
    if state.failed {
        state.qps.end(gpu)?;
    }
    Ok(())
}

/// As [`fence`], for the life that is over: QPs that have been reset for the next life stay as they are.
pub(super) fn end_life(state: &mut PeerState, gpu: &dyn Gpu) -> Result<(), TeamError> {
    if state.told != 0 {
        state.qps.end_life(gpu)?;
    }
    Ok(())
}

/// Begins to make another life, or goes on with it. A life that was being made for another reason is given up. All rails carry the
/// new life, unless the two ends agree to leave rails out before they connect.
pub(super) fn begin(state: &mut PeerState, making: Making) {
    if state.making != Some(making) {
        if state.making.is_some() {
            state.life = state.life.wrapping_add(1);
        }
        state.qps.commit();
        state.qps.leave_out(RailSet::EMPTY);
        (state.probed, state.introduced) = (None, None);
        state.making = Some(making);
    }
}

/// Resets the QPs for the next life. Call it only in the grace period. For the first `asked` QPs it asks the HCA which packet
/// numbers are in use.
pub(super) fn reset(state: &mut PeerState, gpu: &dyn Gpu, asked: usize) -> Result<(), TeamError> {
    let life = state.next_life();
    state.qps.reset(gpu, life, asked)
}

/// Moves the QPs to Rtr: they take what `theirs` send, by the ways in `known`.
pub(super) fn receive(
    state: &mut PeerState,
    contact: &Contact,
    theirs: &[QpOffer],
) -> Result<(), TeamError> {
    state.qps.lead_to(&contact.ways, theirs);
    state.qps.receive(theirs)
}

/// Makes the life that was being made, number `life`, the present one.
pub(super) fn finish(state: &mut PeerState, life: u32) {
    state.qps.commit();
    state.life = life;
    state.making = None;
    state.failed = false;
}

/// Notes that generation `generation` may store into windows of this rank from now on, if it reaches them by load and store.
pub(super) fn admit(state: &mut PeerState, generation: u32, reach: Reach, identity: &Identity) {
    if reach != Reach::Hca {
        state.visitor = Some(Visitor {
            generation,
            identity: identity.clone(),
        });
    }
}
