//! Single steps of the life of the QPs to one peer. Who makes them holds its state.

use crate::fabric::{Identity, Reach};
use crate::gpu::Gpu;
use crate::team::error::TeamError;
use crate::team::peers::state::{Known, Making, PeerState, Visitor};
use crate::team::qps::set::QpOffer;
use crate::team::rails::RailSet;

/// All QPs that take anything from the peer go to Err, also those of a life that is being made, and their waiters are released.
/// QPs whose numbers were never published stay as they are.
pub(in crate::team) fn fence(state: &mut PeerState, gpu: &dyn Gpu) -> Result<(), TeamError> {
    state.failed = state.told != 0;
    state.doubted |= state.connected != 0 && state.connected == state.told;
    if state.failed {
        state.qps.end(gpu)?;
    }
    Ok(())
}

/// As [`fence`], of the QPs of the life that is over; those that have been reset stay as they are.
pub(super) fn end_life(state: &mut PeerState, gpu: &dyn Gpu) -> Result<(), TeamError> {
    if state.told != 0 {
        state.qps.end_life(gpu)?;
    }
    Ok(())
}

/// Begins to make another life, or goes on with it. What had been made for another reason is given up. All rails carry the new
/// one, unless the two ends come to something else before they connect.
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

/// Resets the QPs for the next life. In the grace period. Of the first `asked` QPs the HCA is asked which packet numbers are in
/// use.
pub(super) fn reset(state: &mut PeerState, gpu: &dyn Gpu, asked: usize) -> Result<(), TeamError> {
    let life = state.next_life();
    state.qps.reset(gpu, life, asked)
}

/// To Rtr: what `theirs` send is taken.
pub(super) fn receive(
    state: &mut PeerState,
    known: &Known,
    theirs: &[QpOffer],
) -> Result<(), TeamError> {
    state.qps.lead_to(&known.ways, theirs);
    state.qps.receive(theirs)
}

/// The life that was being made, number `life`, is the present one.
pub(super) fn finish(state: &mut PeerState, life: u32) {
    state.qps.commit();
    state.life = life;
    state.making = None;
    state.failed = false;
}

/// Publishes to generation `generation` the names and addresses by which it may store into windows of this rank, if it reaches
/// them so.
pub(super) fn admit(state: &mut PeerState, generation: u32, reach: Reach, identity: &Identity) {
    if reach != Reach::Hca {
        state.visitor = Some(Visitor {
            generation,
            identity: identity.clone(),
        });
    }
}
