//! Waiters for a conclusion or for a slot: threads, and futures of any executor.
//!
//! Every change that may end a wait counts a turn. A waiter reads the count, looks, and sleeps only while the count has not changed. A
//! conclusion takes no lock if no thread waits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::deadline::Looks;
use crate::engine::error::EngineError;
use crate::engine::ids::TransferId;

/// Longest sleep of a thread without a look. Only a thread without a deadline sleeps so long.
const LONGEST: Duration = Duration::from_secs(3600);

/// All waiters of one engine.
#[derive(Debug, Default)]
pub(in crate::engine) struct Waiting {
    /// The number of threads and wakers that wait.
    count: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    turn: u64,
    next: u64,
    wakers: HashMap<TransferId, Vec<(u64, Waker)>>,
}

impl Waiting {
    /// Waits until `look` finds something, or the time is over. No lock is held while it looks.
    pub(in crate::engine) fn until<T>(
        &self,
        most: Duration,
        mut look: impl FnMut() -> Result<Option<T>, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        let looks = Looks::within(most);
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        let _here = self.enter();
        let mut seen = self.state().turn;
        for left in looks {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            let same = |state: &mut State| state.turn == seen;
            let waited = self
                .changed
                .wait_timeout_while(self.state(), left.min(LONGEST), same);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            seen = state.turn;
        }
        Ok(None)
    }

    /// Repeats `attempt` until it returns a result or an error that `is_full` does not accept. If the time is over first, it
    /// returns the last error that `is_full` accepted.
    pub(in crate::engine) fn while_refused<T>(
        &self,
        most: Duration,
        is_full: impl Fn(&EngineError) -> bool,
        attempt: impl Fn() -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let mut refused = None;
        let look = || match attempt() {
            Err(full) if is_full(&full) => {
                refused = Some(full);
                Ok(None)
            }
            other => other.map(Some),
        };
        let done = self.until(most, look)?;
        done.ok_or_else(|| refused.unwrap_or(EngineError::Closing))
    }

    /// Counts this thread as one that waits, until the result is dropped.
    fn enter(&self) -> impl Drop {
        struct Here<'a>(&'a AtomicUsize);
        impl Drop for Here<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence of `is_any`: either the changing thread sees this waiter, or the waiter sees the change.
        fence(Ordering::SeqCst);
        Here(&self.count)
    }

    /// Wakes `waker` when the transfer is concluded. Returns a key by which the caller takes the waker back.
    pub(super) fn add(&self, id: TransferId, waker: Waker) -> u64 {
        let mut state = self.state();
        let key = state.next;
        state.next += 1;
        state.wakers.entry(id).or_default().push((key, waker));
        drop(state);
        self.count.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence of `is_any`, as in `enter`.
        fence(Ordering::SeqCst);
        key
    }

    pub(super) fn remove(&self, id: TransferId, key: u64) {
        let mut state = self.state();
        if let Some(wakers) = state.wakers.get_mut(&id) {
            let before = wakers.len();
            wakers.retain(|(known, _)| *known != key);
            self.count
                .fetch_sub(before - wakers.len(), Ordering::Relaxed);
            if wakers.is_empty() {
                state.wakers.remove(&id);
            }
        }
    }

    /// Wakes the waiters of the transfer, which is concluded.
    pub(in crate::engine) fn conclude(&self, id: TransferId) {
        if !self.is_any() {
            return;
        }
        let mut state = self.state();
        state.turn += 1;
        let wakers = state.wakers.remove(&id).unwrap_or_default();
        drop(state);
        self.count.fetch_sub(wakers.len(), Ordering::Relaxed);
        self.changed.notify_all();
        // The lock is not held: a waker may run any code.
        for (_, waker) in wakers {
            waker.wake();
        }
    }

    /// Wakes threads, since something has changed that they may wait for.
    pub(in crate::engine) fn change(&self) {
        if self.is_any() {
            self.state().turn += 1;
            self.changed.notify_all();
        }
    }

    fn is_any(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) > 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::{Context, Poll, Wake};

    use super::*;
    use crate::engine::kind::Kind;
    use crate::engine::ledger::account::Outcome;
    use crate::engine::ledger::cut::Cut;
    use crate::engine::ledger::plan::Operation;
    use crate::engine::ledger::slots::Status;
    use crate::engine::memory::table::one_region_each;
    use crate::engine::route::link::Link;
    use crate::engine::route::rails::RailKeys;
    use crate::engine::transfers::concluded::Concluded;
    use crate::engine::transfers::{How, Moves, Sizes, Transfers};

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the transfers of the engine with this number.
    fn transfers_of(engine: u32) -> Transfers {
        let sizes = Sizes {
            slots: 2,
            workers: 1,
            retry: 0,
            cut: Cut::new(4096, 0, 4096).unwrap(),
            gather: 1,
        };
        Transfers::new(engine, &sizes).unwrap()
    }

    /// Returns a transfer that no worker has.
    fn pending() -> (Arc<Transfers>, TransferId) {
        let transfers = Arc::new(transfers_of(0));
        let link = Arc::new(Link::new(0, 0, &[0], None));
        let tables = one_region_each(RailKeys::from_iter([1]));
        let one = Operation {
            kind: Kind::Write,
            local: 0,
            remote: 0,
            bytes: 1,
        };
        let moves = Moves {
            operations: &[one],
            overlaps: false,
        };
        let id = transfers.submit(&link, tables, moves, How::default());
        (transfers, id.unwrap())
    }

    #[test]
    fn a_future_wakes_its_last_waker_once_and_a_dropped_future_wakes_none() {
        let (transfers, id) = pending();
        let counts: [Arc<Count>; 4] = Default::default();
        let wakers = counts
            .each_ref()
            .map(|count| Waker::from(Arc::clone(count)));
        let mut futures = [0, 1, 2].map(|_| Concluded::new(&transfers, id));
        let poll = |future: &mut Concluded, waker: &Waker| {
            Pin::new(future).poll(&mut Context::from_waker(waker))
        };
        for (future, waker) in futures.iter_mut().zip(&wakers) {
            assert!(poll(future, waker).is_pending());
        }
        // Another executor takes the first future over.
        assert!(poll(&mut futures[0], &wakers[3]).is_pending());
        let [mut first, mut second, third] = futures;
        drop(third);
        assert_eq!(transfers.waiting().count.load(Ordering::Relaxed), 2);
        transfers.cancel(id).unwrap();
        transfers.settle(id);
        let woken = counts
            .each_ref()
            .map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken, [0, 1, 0, 1]);
        let ended = Poll::Ready(Ok(Status::Concluded(Outcome::Cancelled)));
        assert_eq!(poll(&mut first, &wakers[0]), ended);
        assert_eq!(poll(&mut second, &wakers[0]), ended);
        drop((first, second));
        assert_eq!(transfers.waiting().count.load(Ordering::Relaxed), 0);
        assert!(transfers.waiting().state().wakers.is_empty());
        let users = counts.each_ref().map(Arc::strong_count);
        drop(wakers);
        assert_eq!(users, [2; 4], "a waker is kept");
    }

    #[test]
    fn a_future_of_what_is_unknown_or_of_another_engine_is_ready_at_once() {
        let (transfers, id) = pending();
        transfers.cancel(id).unwrap();
        transfers.settle(id);
        transfers.release(id).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let found = Pin::new(&mut Concluded::new(&transfers, id)).poll(&mut context);
        assert_eq!(found, Poll::Ready(Ok(Status::Unknown)));
        let other = Arc::new(transfers_of(1));
        let found = Pin::new(&mut Concluded::new(&other, id)).poll(&mut context);
        assert!(matches!(
            found,
            Poll::Ready(Err(EngineError::ForeignId { .. }))
        ));
    }

    #[test]
    fn what_happens_while_the_last_look_lasts_is_found_by_one_more() {
        let (waiting, most) = (Waiting::default(), Duration::from_millis(1));
        let mut looks = 0;
        let found = waiting.until(most, || {
            looks += 1;
            if looks == 2 {
                std::thread::sleep(2 * most);
            }
            Ok((looks > 2).then_some(looks))
        });
        assert_eq!(found, Ok(Some(3)));
    }

    #[test]
    fn a_wait_of_no_time_looks_and_returns() {
        let (transfers, id) = pending();
        assert_eq!(transfers.wait_any(&[id], Duration::ZERO), Ok(None));
        assert_eq!(transfers.wait_any(&[], Duration::ZERO), Ok(None));
        assert_eq!(transfers.waiting().count.load(Ordering::Relaxed), 0);
    }
}
