//! The steps of the connection's own thread after the panic of a worker: it ends the connection, and finishes the worker's
//! slices.

use super::configurations::Transfer;
use super::moves::Step;
use super::property::{Broken, Mutant, Property};
use super::state::{At, Closer, Notice, Peer, Place, Qp, Slice, State, User};
use crate::engine::account::{Account, Outcome};
use crate::explore::broken;

pub(super) fn steps<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    emit: &mut impl FnMut(Step, State<A>),
) -> Result<(), Broken> {
    if !(0..usize::from(model.workers)).any(|worker| state.is_dead(worker)) {
        return Ok(());
    }
    for (number, qp) in state.qps.iter().enumerate() {
        if qp.is_open() {
            let mut next = *state;
            next.qps[number] = Qp::Error;
            emit(Step::new("QP", number, "is put into error"), next);
        }
    }
    if may_write_off(model, state) {
        write_off(model, state, emit)
    } else {
        Ok(())
    }
}

/// Returns whether no QP moves anything any more, at this end or at both, and no living worker has a part in the transfer.
fn may_write_off<A: Account>(model: &Transfer<A>, state: &State<A>) -> bool {
    if model.is(Mutant::PanicForgotten) || state.user.has_seen {
        return false;
    }
    let is_reset = |qp: &Qp| match qp {
        Qp::None | Qp::Fenced => true,
        Qp::Error => state.peer == Peer::GivenUp,
        Qp::Ready | Qp::Stalled => false,
    };
    let is_over = state.qps.iter().all(is_reset) || model.is(Mutant::WrittenOffBeforeReset);
    let holds = |slice: &Slice| {
        let has_it = slice.place == Place::InHand || slice.place.is_with_hca();
        has_it && !state.is_dead(usize::from(slice.worker))
    };
    let concludes = |worker: usize| matches!(state.workers[worker].at, At::Conclude | At::Tell);
    let is_alone = !model.slices(state).iter().any(holds)
        && !(0..usize::from(model.workers)).any(concludes)
        || model.is(Mutant::WrittenOffBesideWorkers);
    is_over && is_alone && state.user.status.is_none()
}

fn write_off<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    emit: &mut impl FnMut(Step, State<A>),
) -> Result<(), Broken> {
    if state.user.concluded > 0 {
        let before = state.user.status;
        return broken(Property::T2, format!("{before:?} before, now written off"));
    }
    let mut next = *state;
    next.account = state.account.write_off(model.total());
    for slice in &mut next.slices[..usize::from(model.slices)] {
        let is_left = slice.place == Place::ToRetry || state.is_dead(usize::from(slice.worker));
        if slice.place.is_under_way() && is_left {
            slice.place = Place::Failed;
        }
    }
    let is_unknown = state.peer == Peer::GivenUp;
    let outcome = if is_unknown {
        Outcome::Failed
    } else {
        next.account.outcome(model.total())
    };
    next.closer = Closer::Nothing;
    next.user = User {
        status: Some(outcome),
        cause: 1,
        concluded: 1,
        is_remote_unknown: is_unknown,
        notice: match outcome {
            Outcome::Done => Notice::Sent,
            _ => Notice::No,
        },
        ..state.user
    };
    emit(Step::new("control", 0, "writes off and concludes"), next);
    Ok(())
}
