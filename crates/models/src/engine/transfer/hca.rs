//! The steps of HCAs, of the wire between them, and of the peer.

use super::configurations::Transfer;
use super::moves::Step;
use super::property::{Broken, Mutant, Property};
use super::state::{Peer, Place, Qp, Remote, Slice, State};
use crate::engine::account::Account;
use crate::explore::broken;

pub(super) fn slices_move<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    emit: &mut impl FnMut(Step, State<A>),
) -> Result<(), Broken> {
    for (number, slice) in model.slices(state).iter().enumerate() {
        let mut go = |what, slice: Slice| {
            let mut next = *state;
            next.slices[number] = slice;
            emit(Step::new("slice", number, what), next);
        };
        let at = |place| Slice { place, ..*slice };
        let qp = state.qps[usize::from(slice.worker)];
        match slice.place {
            Place::Posted if qp != Qp::Stalled && can_land(state) => {
                check_landing(state, number)?;
                go("lands", at(Place::Landed));
            }
            Place::Landed if qp != Qp::Stalled && state.peer == Peer::Reachable => {
                go("completes", at(Place::Completed));
            }
            _ => {}
        }
        if matches!(slice.place, Place::Posted | Place::Landed) && qp == Qp::Error {
            let mut flushed = at(Place::Flushed);
            if slice.place == Place::Posted {
                flushed.packets = slice.worker + 1;
            }
            go("is flushed", flushed);
        }
        if let Some(qp) = slice.packets.checked_sub(1)
            && state.qps[usize::from(qp)] != Qp::Fenced
            && can_land(state)
        {
            check_landing(state, number)?;
            let packets = 0;
            go("lands once more", Slice { packets, ..*slice });
        }
    }
    Ok(())
}

pub(super) fn qps_move<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    emit: &mut impl FnMut(Step, State<A>),
) {
    for (number, qp) in state.qps.iter().enumerate() {
        let mut go = |what, next: State<A>| emit(Step::new("QP", number, what), next);
        let mut next = *state;
        if qp.is_open() {
            next.qps[number] = Qp::Error;
            if state.peer != Peer::Reachable {
                go("gives up", next);
            } else if state.qp_failures > 0 {
                next.qp_failures -= 1;
                go("fails", next);
            }
        }
        if *qp == Qp::Ready && state.stalls > 0 {
            let mut next = *state;
            next.qps[number] = Qp::Stalled;
            next.stalls -= 1;
            go("stalls", next);
        }
        let holds =
            |slice: &Slice| usize::from(slice.worker) == number && slice.place.is_with_hca();
        // No thread takes the CQEs of a dead worker's queue, so the engine does not wait for those.
        let is_quiet = state.is_dead(number) || !model.slices(state).iter().any(holds);
        if *qp == Qp::Error && state.peer == Peer::Reachable && is_quiet {
            go("is reset at both ends", fenced(state, number));
        }
        let at_one_end = *qp == Qp::Error && is_quiet && model.is(Mutant::UsedAgainAtOneEnd);
        let may_go_on = *qp == Qp::Fenced && state.peer == Peer::Reachable || at_one_end;
        if may_go_on && state.reuses > 0 && !state.is_dead(number) {
            let mut next = *state;
            next.qps[number] = Qp::Ready;
            next.reuses -= 1;
            go("is used again", next);
        }
    }
}

/// The steps by which the peer is lost, and each side notices that at some moment. The peer's side resets its QPs, and then informs its
/// program.
pub(super) fn peer_moves<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    emit: &mut impl FnMut(Step, State<A>),
) {
    let mut here = |what, peer| {
        let peer_is_lost = false;
        let next = State {
            peer,
            peer_is_lost,
            ..*state
        };
        emit(Step::new("peer", 0, what), next);
    };
    match state.peer {
        Peer::Reachable if state.peer_is_lost => here("is lost", Peer::Lost),
        Peer::Lost if !model.is(Mutant::LostPeerWaitedFor) => {
            here("is given up", Peer::GivenUp);
        }
        _ => {}
    }
    let early = model.is(Mutant::PeerGoneBeforeReset);
    let (what, remote) = match state.remote {
        _ if state.peer == Peer::Reachable => return,
        Remote::There if early => ("informs its program", Remote::ToldEarly),
        Remote::There => ("resets its QPs", Remote::Reset),
        Remote::Reset | Remote::ToldEarly => ("has reset and informed its program", Remote::Told),
        Remote::Told => return,
    };
    emit(Step::new("peer", 0, what), State { remote, ..*state });
}

/// Returns the state in which both ends have reset the pair, so that packets of the pair that are under way are refused.
fn fenced<A: Account>(state: &State<A>, number: usize) -> State<A> {
    let mut next = *state;
    next.qps[number] = Qp::Fenced;
    for slice in &mut next.slices {
        if state.is_dead(number)
            && usize::from(slice.worker) == number
            && matches!(slice.place, Place::Posted | Place::Landed)
        {
            slice.place = Place::Flushed;
        }
        if usize::from(slice.packets) == number + 1 {
            slice.packets = 0;
        }
    }
    next
}

/// Returns whether the QPs of the other end still take packets.
fn can_land<A: Account>(state: &State<A>) -> bool {
    matches!(state.remote, Remote::There | Remote::ToldEarly)
}

fn check_landing<A: Account>(state: &State<A>, number: usize) -> Result<(), Broken> {
    let user = state.user;
    if state.remote == Remote::ToldEarly {
        let text = format!("slice {number} lands after the peer's program has learned of the end");
        return broken(Property::T6, text);
    }
    match user.status {
        Some(status) if !user.is_remote_unknown => {
            let text = format!("slice {number} lands and the transfer is {status:?}");
            broken(Property::T6, text)
        }
        _ => Ok(()),
    }
}
