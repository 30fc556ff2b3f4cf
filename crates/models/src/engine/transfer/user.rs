//! The steps of the user and of the engine's clock: a cancel, a deadline, the end of the grace, a look at the status, the notice.

use super::configurations::Transfer;
use super::moves::Step;
use super::property::{Broken, Mutant, Property};
use super::state::{Closer, Notice, Place, Qp, Slice, State, User};
use crate::engine::account::{Account, Close, Fields, Outcome};
use crate::explore::broken;

pub(super) fn steps<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    emit: &mut impl FnMut(Step, State<A>),
) -> Result<(), Broken> {
    let emit = &mut |what, next| emit(Step::new("user", 0, what), next);
    if state.closer == Closer::Looks {
        emit("looks at the finished slices", looked(state));
    }
    if state.user.status.is_none() {
        if state.cancel {
            emit("cancels", closed(model, state, Close::Cancelled));
        }
        if state.deadline {
            emit("meets the deadline", closed(model, state, Close::TimedOut));
        }
    }
    grace_ends(model, state, emit);
    if let Some(status) = state.user.status
        && !state.user.has_seen
    {
        check(model, state, status)?;
        let mut next = *state;
        next.user.has_seen = true;
        emit("polls", next);
    }
    notice_moves(model, state, emit)
}

/// Closes the account. If that settles the account, a worker concludes the transfer, because the conclusion may have to wait for a
/// fence.
fn closed<A: Account>(model: &Transfer<A>, state: &State<A>, why: Close) -> State<A> {
    let mut next = *state;
    next.account = state.account.close(why);
    if model.is(Mutant::AsTheReference) {
        next.account = A::of(Fields {
            cancelled: true,
            ..next.account.fields()
        });
    }
    match why {
        Close::TimedOut => next.deadline = false,
        _ => next.cancel = false,
    }
    let outcome = model.outcome(next.account);
    let is_edge = model.settles(state.account, next.account);
    if model.is(Mutant::CancelConcludesAtOnce) {
        next.user = concluded(state.user, Outcome::Cancelled);
    } else if model.is(Mutant::ExpectedCountApart) {
        let handed = u8::try_from(next.account.fields().handed).unwrap();
        next.workers[0].expected = handed + 1;
        next.closer = Closer::Looks;
    } else if is_edge && model.is(Mutant::CancellerConcludes) {
        next.user = concluded(state.user, outcome);
    } else if is_edge {
        next.closer = Closer::LeftToWorker;
    }
    next
}

/// After a cancel or a deadline, and a grace, puts QPs that have slices into the error state, as long as there is such a QP.
fn grace_ends<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    emit: &mut impl FnMut(&'static str, State<A>),
) {
    let was_closed = state.cancel != model.cancel || state.deadline != model.deadline;
    let may_look = match model.mutant {
        Some(Mutant::GraceForgotten) => false,
        Some(Mutant::GraceLooksOnce) => state.looks,
        _ => true,
    };
    if model.stalls == 0 || !was_closed || !may_look || state.user.status.is_some() {
        return;
    }
    let mut next = *state;
    for (number, qp) in next.qps.iter_mut().enumerate() {
        let holds =
            |slice: &Slice| usize::from(slice.worker) == number && slice.place.is_with_hca();
        if qp.is_open() && model.slices(state).iter().any(holds) {
            *qp = Qp::Error;
            next.looks = model.mutant != Some(Mutant::GraceLooksOnce);
        }
    }
    emit("ends the grace", next);
}

fn check<A: Account>(model: &Transfer<A>, state: &State<A>, status: Outcome) -> Result<(), Broken> {
    let slices = model.slices(state);
    let places = || slices.iter().map(|slice| slice.place).collect::<Vec<_>>();
    if status == Outcome::Done && !all_done(slices) {
        return broken(Property::T1, format!("done, but {:?}", places()));
    }
    if slices.iter().any(|slice| slice.place.is_under_way()) {
        return broken(Property::T5, format!("{status:?}, but {:?}", places()));
    }
    if state.user.cause == 0 {
        return broken(Property::T7, format!("{status:?} without its cause"));
    }
    if has_reason(model, state, status) {
        Ok(())
    } else {
        broken(Property::T8, format!("{status:?} without a reason"))
    }
}

fn has_reason<A: Account>(model: &Transfer<A>, state: &State<A>, status: Outcome) -> bool {
    match status {
        Outcome::Done => true,
        Outcome::Failed => {
            state.qp_failures < model.qp_failures
                || state.post_fails != model.post_fails
                || state.panics < model.panics
                || state.peer_is_lost != model.peer_is_lost
        }
        Outcome::Cancelled => state.cancel != model.cancel,
        Outcome::TimedOut => state.deadline != model.deadline,
    }
}

fn notice_moves<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    emit: &mut impl FnMut(&'static str, State<A>),
) -> Result<(), Broken> {
    let slices = model.slices(state);
    let mut there = *state;
    there.user.notice = Notice::There;
    match state.user.notice {
        Notice::No => {
            let landed = |place| matches!(place, Place::Landed | Place::Completed | Place::Done);
            let last_landed = slices.last().is_some_and(|slice| landed(slice.place));
            if last_landed && model.is(Mutant::NoticeWithTheLastSlice) {
                emit("gets a notice with the last slice", there);
            }
        }
        Notice::Sent => emit("gets the notice", there),
        Notice::There => {
            if !all_done(slices) {
                let text = "the notice is there before all bytes";
                return broken(Property::N1, text.to_owned());
            }
        }
    }
    Ok(())
}

fn all_done(slices: &[Slice]) -> bool {
    slices.iter().all(|slice| slice.place == Place::Done)
}

/// Only in a mutant: the canceller itself concludes the transfer.
fn concluded(user: User, outcome: Outcome) -> User {
    User {
        status: Some(outcome),
        cause: 1,
        concluded: user.concluded + 1,
        notice: match outcome {
            Outcome::Done => Notice::Sent,
            _ => Notice::No,
        },
        ..user
    }
}

/// Only in a mutant: the closer compares the number of finished slices with the number handed out.
fn looked<A: Account>(state: &State<A>) -> State<A> {
    let mut next = *state;
    next.closer = Closer::Nothing;
    let Fields {
        handed, finished, ..
    } = state.account.fields();
    if finished == handed && state.user.status.is_none() {
        next.user = concluded(state.user, Outcome::Cancelled);
        next.user.notice = Notice::No;
    }
    next
}
