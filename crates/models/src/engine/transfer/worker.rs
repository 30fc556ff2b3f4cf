//! The steps of a worker: it pulls, posts, reaps, finishes, concludes.

use super::configurations::Transfer;
use super::moves::Step;
use super::property::{Broken, Mutant, Property};
use super::state::{At, Closer, Notice, Peer, Place, Qp, Slice, State, User, Worker};
use crate::engine::account::{Account, Close, Fields, Outcome};
use crate::explore::broken;

pub(super) fn steps<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(Step, State<A>),
) -> Result<(), Broken> {
    let emit = &mut |what, next| emit(Step::new("worker", number, what), next);
    drain(state, number, emit);
    if state.panics > 0 && !state.is_dead(number) && state.user.status.is_none() {
        let mut next = *state;
        next.workers[number].at = At::Dead;
        next.panics -= 1;
        emit("panics", next);
    }
    match state.workers[number].at {
        At::Pull => pull(model, state, number, emit)?,
        At::Late => hand_out_late(state, number, emit),
        At::Post => post(model, state, number, emit)?,
        At::Refused => refused(model, state, number, emit)?,
        At::Conclude => conclude(model, state, number, emit),
        At::Tell => tell(model, state, number, emit)?,
        At::Dead => {}
    }
    Ok(())
}

fn pull<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) -> Result<(), Broken> {
    retry(model, state, number, emit)?;
    take(model, state, number, emit);
    give_up(model, state, number, emit);
    reap(model, state, number, emit)?;
    if state.closer == Closer::LeftToWorker {
        let mut next = *state;
        next.closer = Closer::Nothing;
        next.workers[number].goes(At::Conclude, Some(model.outcome(state.account)));
        emit("concludes what was closed", next);
    }
    Ok(())
}

/// Posts a slice that is to be retried again at once, with the same bytes. Only the conclusion waits for the fence.
fn retry<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) -> Result<(), Broken> {
    let closed = state.account.fields().closed;
    for (index, slice) in model.slices(state).iter().enumerate() {
        if !slice.waits_for_retry() {
            continue;
        }
        if closed && !model.is(Mutant::RetryForgottenAtClose) {
            emit(
                "retries no more",
                finish(model, state, number, index, true)?,
            );
        } else if !closed && is_able(model, state, number) && room(model, state, number) > 0 {
            let mut next = *state;
            hand(&mut next, number, index, 1, slice.packets);
            emit("takes a slice to retry", next);
        }
    }
    Ok(())
}

fn take<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) {
    if !is_able(model, state, number) {
        return;
    }
    let most = model.chain.min(room(model, state, number));
    if !model.slices(state).iter().any(Slice::waits_for_retry)
        && let Some((account, taken)) = state.account.hand_out(u32::from(most), model.total())
    {
        let mut next = *state;
        next.account = account;
        hand(&mut next, number, taken.start as usize, taken.len(), 0);
        emit("takes slices", next);
    }
    let Fields { handed, closed, .. } = state.account.fields();
    let is_idle = room(model, state, number) == model.credit;
    if model.is(Mutant::HandedByLoadAndStore) && !closed && handed < model.total() && is_idle {
        let mut next = *state;
        next.workers[number].takes(u8::try_from(handed).unwrap(), 1);
        next.workers[number].at = At::Late;
        emit("reads the account", next);
    }
}

/// If no QP is left, closes the transfer and lets no slice be tried again.
fn give_up<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) {
    let Fields { handed, closed, .. } = state.account.fields();
    let has_lost = matches!(state.qps[number], Qp::Error | Qp::Fenced);
    let waits = model.slices(state).iter().any(Slice::waits_for_retry);
    let is_needed = handed < model.total() || waits && !model.is(Mutant::RetryForgottenWithoutQp);
    if has_lost && !closed && !state.has_open_qp() && is_needed {
        let mut next = *state;
        next.account = state.account.close(Close::Failed);
        goes_on(model, &mut next, state.account, number);
        emit("finds no QP left", next);
    }
}

fn reap<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) -> Result<(), Broken> {
    for (index, slice) in model.slices(state).iter().enumerate() {
        if usize::from(slice.worker) != number {
            continue;
        }
        if slice.place == Place::Completed {
            let next = finish(model, state, number, index, false)?;
            emit("reaps a completion", next);
            if model.is(Mutant::CompletionCountedTwice) {
                let mut next = next;
                next.slices[index] = Slice {
                    packets: 0,
                    ..*slice
                };
                emit("reaps a completion that stays", next);
            }
        }
        if slice.place == Place::Flushed {
            let mut next = *state;
            if model.is(Mutant::FlushedSlicesForgotten) {
                next.slices[index].place = Place::Failed;
                emit("forgets a flushed slice", next);
            } else if state.retries > 0 && state.has_open_qp() {
                next.slices[index].place = Place::ToRetry;
                next.retries -= 1;
                emit("gives a slice back to retry", next);
            } else {
                let next = finish(model, state, number, index, true)?;
                emit("reaps a flushed slice", next);
            }
        }
    }
    Ok(())
}

fn post<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) -> Result<(), Broken> {
    let worker = state.workers[number];
    if state.qps[number] == Qp::None {
        let next = finish(model, state, number, worker.hand().start, true)?;
        emit("has no QP to post to", next);
        return Ok(());
    }
    let is_fenced = state.qps[number] == Qp::Fenced;
    let mut next = *state;
    for slice in &mut next.slices[worker.hand()] {
        slice.place = if is_fenced {
            Place::Flushed
        } else {
            Place::Posted
        };
    }
    next.workers[number].goes(At::Pull, None);
    emit("posts", next);
    if state.post_fails && (!is_fenced || model.is(Mutant::AsTheReference)) {
        let taken = worker.count / 2;
        let mut next = *state;
        for slice in &mut next.slices[worker.hand()][..usize::from(taken)] {
            slice.place = Place::Posted;
        }
        let refused = if model.is(Mutant::AcceptedPrefixCountedAsFailed) {
            0
        } else {
            taken
        };
        next.workers[number].takes(worker.first + refused, worker.count - refused);
        next.workers[number].at = At::Refused;
        next.post_fails = false;
        emit("posts and is refused in part", next);
    }
    Ok(())
}

/// Finishes one of the slices that were refused for good.
fn refused<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) -> Result<(), Broken> {
    let worker = state.workers[number];
    let index = worker.hand().start;
    let mut next = finish(model, state, number, index, true)?;
    if state.slices[index].place == Place::Posted {
        // Only in a mutant: the slice is in flight all the same.
        next.slices[index] = state.slices[index];
    }
    let left = &mut next.workers[number];
    if worker.count > 1 {
        (left.first, left.count) = (worker.first + 1, worker.count - 1);
        if left.at == At::Pull {
            left.at = At::Refused;
        }
    }
    emit("finishes a refused slice", next);
    Ok(())
}

/// Writes cause and result once no packet of a failed try can land any more. What may land at a lost peer is reported as unknown.
fn conclude<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) {
    let may_land = |slice: &Slice| match slice.packets.checked_sub(1) {
        Some(qp) if model.is(Mutant::UsedAgainAtOneEnd) => !state.qps[usize::from(qp)].is_open(),
        packets => packets.is_some(),
    };
    let under_way = model.slices(state).iter().any(may_land);
    let is_unknown = under_way && state.peer == Peer::GivenUp;
    if under_way && !is_unknown && !model.is(Mutant::ConcludedBeforeTheFence) {
        return;
    }
    let mut next = *state;
    let mut outcome = state.workers[number].outcome;
    if is_unknown && !model.is(Mutant::LostPeerCalledFenced) {
        outcome = Some(Outcome::Failed);
        next.user.is_remote_unknown = true;
    }
    next.workers[number].goes(At::Tell, outcome);
    next.workers[number].cause = match outcome {
        Some(Outcome::Failed) => 1,
        _ => 2,
    };
    emit("writes the cause", next);
}

/// Publishes the status, and sends the notice after it.
fn tell<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) -> Result<(), Broken> {
    let Worker {
        cause,
        expected,
        outcome,
        ..
    } = state.workers[number];
    let is_written = cause == 0 && expected == 0;
    if !is_written && !model.is(Mutant::CauseBehindTheStatus) {
        return Ok(());
    }
    if state.user.concluded > 0 {
        let before = state.user.status;
        return broken(Property::T2, format!("{before:?} before, now {outcome:?}"));
    }
    let mut next = *state;
    next.workers[number].goes(At::Pull, None);
    next.user = User {
        status: outcome,
        concluded: 1,
        notice: match outcome {
            Some(Outcome::Done) => Notice::Sent,
            _ => Notice::No,
        },
        ..state.user
    };
    emit("concludes", next);
    Ok(())
}

/// Finishes slice `index`.
fn finish<A: Account>(
    model: &Transfer<A>,
    state: &State<A>,
    number: usize,
    index: usize,
    failed: bool,
) -> Result<State<A>, Broken> {
    let mut next = *state;
    let told = failed && !model.is(Mutant::FailedCountedAsDone);
    next.account = state.account.finish(1, told);
    let Fields {
        handed, finished, ..
    } = next.account.fields();
    if finished > handed {
        let text = format!("{finished} slices are finished, {handed} were handed out");
        return broken(Property::T4, text);
    }
    next.slices[index].place = if failed { Place::Failed } else { Place::Done };
    goes_on(model, &mut next, state.account, number);
    if model.is(Mutant::ExpectedCountApart) {
        next.workers[number].at = if finished == u32::from(state.expected) {
            At::Conclude
        } else {
            At::Pull
        };
    }
    Ok(next)
}

/// Lets the worker go on after a read-modify-write. If that has settled the account, the worker concludes.
fn goes_on<A: Account>(model: &Transfer<A>, next: &mut State<A>, before: A, number: usize) {
    let at = if model.settles(before, next.account) {
        At::Conclude
    } else {
        At::Pull
    };
    let outcome = model.outcome(next.account);
    next.workers[number].goes(at, Some(outcome));
}

fn hand<A: Account>(next: &mut State<A>, number: usize, first: usize, count: usize, packets: u8) {
    let worker = u8::try_from(number).unwrap();
    next.slices[first..first + count].fill(Slice {
        place: Place::InHand,
        worker,
        packets,
    });
    let [first, count] = [first, count].map(|value| u8::try_from(value).unwrap());
    next.workers[number].takes(first, count);
}

fn is_able<A: Account>(model: &Transfer<A>, state: &State<A>, number: usize) -> bool {
    match state.qps[number] {
        Qp::Ready | Qp::Stalled => true,
        Qp::None => model.is(Mutant::PullsWithoutQp),
        Qp::Error | Qp::Fenced => false,
    }
}

/// Returns how many more slices the worker's QP has room for.
fn room<A: Account>(model: &Transfer<A>, state: &State<A>, number: usize) -> u8 {
    let holds = |slice: &&Slice| usize::from(slice.worker) == number && slice.place.is_with_hca();
    let held = model.slices(state).iter().filter(holds).count();
    model.credit.saturating_sub(u8::try_from(held).unwrap())
}

/// Lets a store of the worker become visible.
fn drain<A: Account>(
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) {
    let Worker {
        cause, expected, ..
    } = state.workers[number];
    if cause > 0 {
        let mut next = *state;
        next.workers[number].cause = 0;
        next.user.cause = cause;
        emit("shows the cause", next);
    }
    if let Some(count) = expected.checked_sub(1) {
        let mut next = *state;
        next.workers[number].expected = 0;
        next.expected = count;
        emit("shows the expected count", next);
    }
}

/// Only in a mutant: stores the count that the worker has read before, plus one.
fn hand_out_late<A: Account>(
    state: &State<A>,
    number: usize,
    emit: &mut impl FnMut(&'static str, State<A>),
) {
    let first = state.workers[number].first;
    let mut next = *state;
    next.account = A::of(Fields {
        handed: u32::from(first) + 1,
        ..state.account.fields()
    });
    next.slices[usize::from(first)] = Slice {
        place: Place::InHand,
        worker: u8::try_from(number).unwrap(),
        packets: 0,
    };
    next.workers[number].takes(first, 1);
    emit("writes the account", next);
}
