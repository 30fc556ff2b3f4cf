//! The failures of the transfer of a slot, and its slices that are to be posted again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::ledger::account::{AtomicAccount, Change};
use crate::engine::ledger::report::FirstCause;
use crate::engine::ledger::tally::Totals;
use crate::engine::limits::count;
use crate::engine::route::fences::Lives;
use crate::error::ThreadPanicked;
use crate::provider::Cause;

/// A life of a lane on which a WQE has failed.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Lost {
    /// The lane of the link, whose packets may still be under way. None: a lane that copies.
    pub(in crate::engine) lane: Option<usize>,
    pub(in crate::engine) life: u32,
    /// The number of the QP. None: a lane that copies.
    pub(in crate::engine) qp: Option<u32>,
    /// True if the QP has failed by a WQE that was wrong itself. Then a WQE that was only flushed has not been tried.
    pub(in crate::engine) is_refused: bool,
}

/// A slice that has failed on a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct LostSlice {
    pub(super) slice: u32,
    /// The number of the lane. The number of QPs stands for all lanes that copy, since these reach the peer in the same way.
    pub(super) lane: usize,
    pub(super) lost: Lost,
    pub(super) cause: Cause,
    /// True if the slice may be posted again while it has tries left.
    pub(super) may_retry: bool,
    /// The most times that a slice is posted again.
    pub(super) tries: u32,
}

/// The fate of a slice that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The slice has failed for good.
    Final,
    /// A worker is to post the slice again. `is_news`: workers have not heard of a slice that failed on the same lanes.
    Again { is_news: bool },
}

/// The failures of one transfer.
#[derive(Debug, Default)]
pub(super) struct Failures {
    known: Mutex<FailureNotes>,
    /// The number of slices in `known` that wait to be posted again.
    to_retry: AtomicU32,
}

/// What is known of the failures.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureNotes {
    /// The slices that have failed for good.
    pub(super) slices: Vec<u32>,
    /// The slices that some worker is to post again. The list is empty once the account is closed.
    to_retry: Vec<Retry>,
    tries: HashMap<u32, Tries>,
    pub(super) first: Option<FirstCause>,
    /// The lives of lanes on which a slice was posted and failed, so that its packets may still be under way.
    lost: Lives,
    pub(super) is_remote_unknown: bool,
    /// True if a flush has failed, so that bytes that were read may not have come to the GPU.
    pub(super) is_unflushed: bool,
    /// The panic of a thread that held slices of the transfer.
    pub(super) panicked: Option<ThreadPanicked>,
}

/// A slice that is to be posted again.
#[derive(Clone, Copy, Debug)]
struct Retry {
    slice: u32,
    /// A bit for each lane on which it has failed. The slice goes to a lane with few doubts after these failures, if such a lane works.
    tried: u32,
}

/// How often a slice was given back to be posted again, and a bit for each lane on which it has failed.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    count: u32,
    lanes: u32,
}

impl Failures {
    /// Forgets the failures of the transfer that had the slot before. The memory stays.
    pub(super) fn clear(&self) {
        let mut known = self.known();
        known.slices.clear();
        known.to_retry.clear();
        known.tries.clear();
        *known = FailureNotes {
            slices: std::mem::take(&mut known.slices),
            to_retry: std::mem::take(&mut known.to_retry),
            tries: std::mem::take(&mut known.tries),
            ..FailureNotes::default()
        };
        self.to_retry.store(0, Ordering::Relaxed);
    }

    /// Keeps `first` if no failure is kept, or if the kept failure is a flush and `first` is not.
    pub(super) fn note(&self, first: FirstCause) {
        let is_better = |kept: FirstCause| {
            kept.cause.is_some_and(Cause::is_flush) && first.cause.is_some_and(|it| !it.is_flush())
        };
        let mut known = self.known();
        if known.first.is_none_or(is_better) {
            known.first = Some(first);
        }
    }

    /// Notes a slice that has failed for good.
    pub(super) fn add(&self, slice: u32) {
        self.known().slices.push(slice);
    }

    /// Notes a slice that was posted and has failed. Returns whether it is to be posted again or has failed for good.
    pub(super) fn lose(&self, it: &LostSlice, account: &AtomicAccount, totals: &Totals) -> Fate {
        let mut known = self.known();
        if let Some(life) = it.lost.lane.and_then(|lane| known.lost.get_mut(lane)) {
            *life = it.lost.life.max(*life);
        }
        let tries = known.tries.entry(it.slice).or_default();
        let is_try = !(it.lost.is_refused && it.cause.is_flush());
        let has_tries = tries.count < it.tries || !is_try && it.tries > 0;
        // A thread that closes the account gives up the slices that are to be posted again, and does so after that.
        if !(it.may_retry && has_tries) || account.load().is_closed() {
            known.slices.push(it.slice);
            return Fate::Final;
        }
        tries.count += u32::from(is_try);
        tries.lanes |= u32::from(is_try) << it.lane;
        let tried = tries.lanes;
        let is_news = known.to_retry.iter().all(|it| it.tried != tried);
        totals.retry();
        known.to_retry.push(Retry {
            slice: it.slice,
            tried,
        });
        self.tell(&known);
        Fate::Again { is_news }
    }

    /// Takes up to `most` slices that are to be posted again. `takes` accepts them by the lanes on which they have failed.
    pub(super) fn take(
        &self,
        most: u32,
        account: &AtomicAccount,
        takes: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        if !self.has_retries() {
            return Vec::new();
        }
        let mut known = self.known();
        if account.load().is_closed() {
            return Vec::new();
        }
        let most = most as usize;
        let mut taken = Vec::new();
        // Most slices have failed on the same lanes, so the last answer is kept.
        let mut last = (0, takes(0));
        known.to_retry.retain(|retry| {
            if last.0 != retry.tried {
                last = (retry.tried, takes(retry.tried));
            }
            let is_taken = taken.len() < most && last.1;
            if is_taken {
                taken.push(retry.slice);
            }
            !is_taken
        });
        self.tell(&known);
        taken
    }

    /// Finishes as failed the slices that are to be posted again. The account is closed.
    ///
    /// This always looks under the lock: a worker that has seen the account open may be about to give a slice back.
    pub(super) fn give_up(&self, account: &AtomicAccount, totals: &Totals) -> Option<Change> {
        let mut known = self.known();
        let left = std::mem::take(&mut known.to_retry);
        self.tell(&known);
        known.slices.extend(left.iter().map(|it| it.slice));
        // The lock is held, so no other thread finishes one of these slices too.
        totals.give_up(count(left.len()));
        (!left.is_empty()).then(|| account.finish(count(left.len()), true))
    }

    /// Finishes all slices of a transfer of `total` slices: a thread has panicked, and no other thread finishes them. Returns the change of
    /// the account.
    pub(super) fn write_off(
        &self,
        panicked: &ThreadPanicked,
        account: &AtomicAccount,
        total: u32,
        totals: &Totals,
    ) -> Change {
        let mut known = self.known();
        if !account.load().is_settled(total) {
            known.panicked = Some(panicked.clone());
        }
        totals.give_up(count(known.to_retry.len()));
        known.to_retry.clear();
        self.tell(&known);
        account.write_off(total)
    }

    /// Notes why the link of the transfer has ended: a worker has panicked, or the peer is not reached any more.
    pub(super) fn end(&self, panicked: Option<ThreadPanicked>, first: Option<FirstCause>) {
        let mut known = self.known();
        known.panicked = panicked;
        let is_flush = |kept: FirstCause| kept.cause.is_some_and(Cause::is_flush);
        if first.is_some() && known.first.is_none_or(is_flush) {
            known.first = first;
        }
    }

    /// Notes at the conclusion whether the peer's memory is unknown, and the failure of a flush, if there is one. Returns the first
    /// failure.
    pub(super) fn conclude(
        &self,
        is_remote_unknown: bool,
        unflushed: Option<FirstCause>,
    ) -> Option<FirstCause> {
        let mut known = self.known();
        known.is_remote_unknown = is_remote_unknown;
        known.is_unflushed = unflushed.is_some();
        known.first = known.first.or(unflushed);
        known.first
    }

    /// Returns the lives of lanes on which a slice has failed, so that its packets may still be under way.
    pub(super) fn lost(&self) -> Lives {
        self.known().lost
    }

    /// Returns what is known of the failures. The slices that have failed for good are sorted.
    pub(super) fn told(&self) -> FailureNotes {
        let mut known = self.known();
        known.slices.sort_unstable();
        known.clone()
    }

    /// Returns how many slices wait to be posted again.
    pub(super) fn retries(&self) -> u32 {
        self.to_retry.load(Ordering::Acquire)
    }

    pub(super) fn has_retries(&self) -> bool {
        self.retries() > 0
    }

    /// Returns a bit for each lane that `takers` names for a slice that is to be posted again, by the lanes on which it has failed.
    pub(super) fn takers(&self, takers: impl Fn(u32) -> u32) -> u32 {
        let known = self.known();
        let retries = known.to_retry.iter();
        retries.fold(0, |all, it| all | takers(it.tried))
    }

    fn tell(&self, known: &FailureNotes) {
        self.to_retry
            .store(count(known.to_retry.len()), Ordering::Release);
    }

    fn known(&self) -> MutexGuard<'_, FailureNotes> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
