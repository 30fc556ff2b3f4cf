//! The steps of a worker: it pulls, posts, reaps, finishes, concludes.

use super::configurations::Transfer;
use super::property::{Broken, Mutant, Property};
use super::state::{At, Closer, Notice, Peer, Place, Qp, Slice, State, User, Worker};
use super::steps::Step;
use crate::engine::account::{Account, Close, Fields, Outcome};
use crate::explore::broken;

impl<A: Account> Transfer<A> {
    pub(super) fn worker_moves(
        &self,
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
            At::Pull => self.pull(state, number, emit)?,
            At::Late => hand_out_late(state, number, emit),
            At::Post => self.post(state, number, emit)?,
            At::Refused => self.refused(state, number, emit)?,
            At::Conclude => self.conclude(state, number, emit),
            At::Tell => self.tell(state, number, emit)?,
            At::Dead => {}
        }
        Ok(())
    }

    fn pull(
        &self,
        state: &State<A>,
        number: usize,
        emit: &mut impl FnMut(&'static str, State<A>),
    ) -> Result<(), Broken> {
        self.retry(state, number, emit)?;
        self.take(state, number, emit);
        self.give_up(state, number, emit);
        self.reap(state, number, emit)?;
        if state.closer == Closer::LeftToWorker {
            let mut next = *state;
            next.closer = Closer::Nothing;
            next.workers[number].goes(At::Conclude, Some(self.outcome(state.account)));
            emit("concludes what was closed", next);
        }
        Ok(())
    }

    /// Posts a slice that is to be retried again at once, with the same bytes. Only the conclusion waits for the fence.
    fn retry(
        &self,
        state: &State<A>,
        number: usize,
        emit: &mut impl FnMut(&'static str, State<A>),
    ) -> Result<(), Broken> {
        let closed = state.account.fields().closed;
        for (index, slice) in self.slices(state).iter().enumerate() {
            if !slice.waits_for_retry() {
                continue;
            }
            if closed && !self.is(Mutant::RetryForgottenAtClose) {
                emit("retries no more", self.finish(state, number, index, true)?);
            } else if !closed && self.is_able(state, number) && self.room(state, number) > 0 {
                let mut next = *state;
                self.hand(&mut next, number, index, 1, slice.packets);
                emit("takes a slice to retry", next);
            }
        }
        Ok(())
    }

    fn take(&self, state: &State<A>, number: usize, emit: &mut impl FnMut(&'static str, State<A>)) {
        if !self.is_able(state, number) {
            return;
        }
        let most = self.chain.min(self.room(state, number));
        if !self.slices(state).iter().any(Slice::waits_for_retry)
            && let Some((account, taken)) = state.account.hand_out(u32::from(most), self.total())
        {
            let mut next = *state;
            next.account = account;
            self.hand(&mut next, number, taken.start as usize, taken.len(), 0);
            emit("takes slices", next);
        }
        let Fields { handed, closed, .. } = state.account.fields();
        let is_idle = self.room(state, number) == self.credit;
        if self.is(Mutant::HandedByLoadAndStore) && !closed && handed < self.total() && is_idle {
            let mut next = *state;
            next.workers[number].takes(u8::try_from(handed).unwrap(), 1);
            next.workers[number].at = At::Late;
            emit("reads the account", next);
        }
    }

    /// If no QP is left, closes the transfer and lets no slice be tried again.
    fn give_up(
        &self,
        state: &State<A>,
        number: usize,
        emit: &mut impl FnMut(&'static str, State<A>),
    ) {
        let Fields { handed, closed, .. } = state.account.fields();
        let has_lost = matches!(state.qps[number], Qp::Error | Qp::Fenced);
        let waits = self.slices(state).iter().any(Slice::waits_for_retry);
        let is_needed = handed < self.total() || waits && !self.is(Mutant::RetryForgottenWithoutQp);
        if has_lost && !closed && !state.has_open_qp() && is_needed {
            let mut next = *state;
            next.account = state.account.close(Close::Failed);
            self.goes_on(&mut next, state.account, number);
            emit("finds no QP left", next);
        }
    }

    fn reap(
        &self,
        state: &State<A>,
        number: usize,
        emit: &mut impl FnMut(&'static str, State<A>),
    ) -> Result<(), Broken> {
        for (index, slice) in self.slices(state).iter().enumerate() {
            if usize::from(slice.worker) != number {
                continue;
            }
            if slice.place == Place::Completed {
                let next = self.finish(state, number, index, false)?;
                emit("reaps a completion", next);
                if self.is(Mutant::CompletionCountedTwice) {
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
                if self.is(Mutant::FlushedSlicesForgotten) {
                    next.slices[index].place = Place::Failed;
                    emit("forgets a flushed slice", next);
                } else if state.retries > 0 && state.has_open_qp() {
                    next.slices[index].place = Place::ToRetry;
                    next.retries -= 1;
                    emit("gives a slice back to retry", next);
                } else {
                    let next = self.finish(state, number, index, true)?;
                    emit("reaps a flushed slice", next);
                }
            }
        }
        Ok(())
    }

    fn post(
        &self,
        state: &State<A>,
        number: usize,
        emit: &mut impl FnMut(&'static str, State<A>),
    ) -> Result<(), Broken> {
        let worker = state.workers[number];
        if state.qps[number] == Qp::None {
            let next = self.finish(state, number, worker.hand().start, true)?;
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
        if state.post_fails && (!is_fenced || self.is(Mutant::AsTheReference)) {
            let taken = worker.count / 2;
            let mut next = *state;
            for slice in &mut next.slices[worker.hand()][..usize::from(taken)] {
                slice.place = Place::Posted;
            }
            let refused = if self.is(Mutant::AcceptedPrefixCountedAsFailed) {
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
    fn refused(
        &self,
        state: &State<A>,
        number: usize,
        emit: &mut impl FnMut(&'static str, State<A>),
    ) -> Result<(), Broken> {
        let worker = state.workers[number];
        let index = worker.hand().start;
        let mut next = self.finish(state, number, index, true)?;
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
    fn conclude(
        &self,
        state: &State<A>,
        number: usize,
        emit: &mut impl FnMut(&'static str, State<A>),
    ) {
        let may_land = |slice: &Slice| match slice.packets.checked_sub(1) {
            Some(qp) if self.is(Mutant::UsedAgainAtOneEnd) => !state.qps[usize::from(qp)].is_open(),
            packets => packets.is_some(),
        };
        let under_way = self.slices(state).iter().any(may_land);
        let is_unknown = under_way && state.peer == Peer::GivenUp;
        if under_way && !is_unknown && !self.is(Mutant::ConcludedBeforeTheFence) {
            return;
        }
        let mut next = *state;
        let mut outcome = state.workers[number].outcome;
        if is_unknown && !self.is(Mutant::LostPeerCalledFenced) {
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
    fn tell(
        &self,
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
        if !is_written && !self.is(Mutant::CauseBehindTheStatus) {
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
    fn finish(
        &self,
        state: &State<A>,
        number: usize,
        index: usize,
        failed: bool,
    ) -> Result<State<A>, Broken> {
        let mut next = *state;
        let told = failed && !self.is(Mutant::FailedCountedAsDone);
        next.account = state.account.finish(1, told);
        let Fields {
            handed, finished, ..
        } = next.account.fields();
        if finished > handed {
            let text = format!("{finished} slices are finished, {handed} were handed out");
            return broken(Property::T4, text);
        }
        next.slices[index].place = if failed { Place::Failed } else { Place::Done };
        self.goes_on(&mut next, state.account, number);
        if self.is(Mutant::ExpectedCountApart) {
            next.workers[number].at = if finished == u32::from(state.expected) {
                At::Conclude
            } else {
                At::Pull
            };
        }
        Ok(next)
    }

    /// Lets the worker go on after a read-modify-write. If that has settled the account, the worker concludes.
    fn goes_on(&self, next: &mut State<A>, before: A, number: usize) {
        let at = if self.settles(before, next.account) {
            At::Conclude
        } else {
            At::Pull
        };
        let outcome = self.outcome(next.account);
        next.workers[number].goes(at, Some(outcome));
    }

    fn hand(&self, next: &mut State<A>, number: usize, first: usize, count: usize, packets: u8) {
        let worker = u8::try_from(number).unwrap();
        next.slices[first..first + count].fill(Slice {
            place: Place::InHand,
            worker,
            packets,
        });
        let [first, count] = [first, count].map(|value| u8::try_from(value).unwrap());
        next.workers[number].takes(first, count);
    }

    fn is_able(&self, state: &State<A>, number: usize) -> bool {
        match state.qps[number] {
            Qp::Ready | Qp::Stalled => true,
            Qp::None => self.is(Mutant::PullsWithoutQp),
            Qp::Error | Qp::Fenced => false,
        }
    }

    /// Returns how many more slices the worker's QP has room for.
    fn room(&self, state: &State<A>, number: usize) -> u8 {
        let holds =
            |slice: &&Slice| usize::from(slice.worker) == number && slice.place.is_with_hca();
        let held = self.slices(state).iter().filter(holds).count();
        self.credit.saturating_sub(u8::try_from(held).unwrap())
    }
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
