//! The part of a worker that takes completions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::links::Links;
use crate::engine::transfers::queue::RunQueue;
use crate::engine::transfers::{Lost, Transfers};
use crate::provider::{Cause, Completed, Completion, Lane, Provider, ProviderError, Reaper, Tag};

/// The part of a worker that takes completions.
pub(super) struct Reaping<P: Provider> {
    transfers: Arc<Transfers>,
    queue: Arc<RunQueue>,
    reaper: P::Reaper,
    /// The most completions of one turn.
    most: usize,
    /// A list that is kept for its memory.
    found: Vec<Completion>,
    /// The slices of one completion, in a list that is kept for its memory.
    finished: Vec<(Tag, Option<Cause>)>,
}

impl<P: Provider> Reaping<P> {
    pub(super) fn new(
        transfers: &Arc<Transfers>,
        queue: &Arc<RunQueue>,
        reaper: P::Reaper,
        most: usize,
    ) -> Self {
        Self {
            transfers: Arc::clone(transfers),
            queue: Arc::clone(queue),
            reaper,
            most,
            found: Vec::with_capacity(most),
            finished: Vec::with_capacity(1 << 10),
        }
    }

    /// Sleeps until a completion comes, the queue has items, or the time is over.
    pub(super) fn sleep(&mut self, most: Option<Duration>) -> Result<(), ProviderError> {
        self.reaper.sleep(self.queue.wake(), most)
    }

    /// Takes completions, and finishes the slices that they account for. Returns whether any came.
    pub(super) fn reap(&mut self, links: &mut Links<P::Lane>, now: Instant) -> bool {
        let mut found = std::mem::take(&mut self.found);
        self.reaper.reap(&mut found, self.most);
        let is_further = links.take_turns(&mut found);
        let mut has_failed = false;
        let is_flushed = self.flush_counted(&found);
        for completion in &found {
            // A completion of a lane that is gone concerns no worker.
            let Some(held) = links.lane(completion.lane) else {
                continue;
            };
            if let Completed::Receive(immediate) = completion.what {
                held.receive(completion, immediate.filter(|_| is_flushed));
                if immediate.is_some() && !is_flushed {
                    held.link().break_off();
                }
                continue;
            }
            let finished = &mut self.finished;
            held.lane_mut()
                .retire(completion, |tag, cause| finished.push((tag, cause)));
            let completed = u32::try_from(finished.len()).unwrap_or(u32::MAX);
            held.completed(completed, now);
            if let Some(cause) = completion.cause {
                has_failed = true;
                held.failed_by(cause);
            }
            let lost = held.lost(completion.lane);
            self.finish(lost);
        }
        let has_found = is_further || !found.is_empty();
        found.clear();
        self.found = found;
        if has_failed || has_found && links.drains() {
            links.drop_lanes(&self.transfers);
        }
        has_found
    }

    /// Flushes the GPUs if WRITEs are about to be counted, since the WRITEs may be in their memory. Returns false if a flush fails.
    fn flush_counted(&self, found: &[Completion]) -> bool {
        let counts = |it: &Completion| matches!(it.what, Completed::Receive(Some(_)));
        let flushes = self.transfers.flushes();
        if !flushes.is_needed() || !found.iter().any(counts) {
            return true;
        }
        let flushed = flushes.flush();
        flushed
            .inspect_err(|error| tracing::error!("WRITEs of peers are not counted: {error}"))
            .is_ok()
    }

    /// Finishes the slices of one completion. Slices of one transfer in a row are finished by one step.
    fn finish(&mut self, lost: Lost) {
        let failed = self.finished.iter().filter(|(_, cause)| cause.is_some());
        let failed = failed.count();
        let completed = self.finished.len() - failed;
        let tally = self.queue.tally(lost.lane.is_none());
        tally.finish(completed as u64, failed as u64);
        let (mut slot, mut count) = (0, 0);
        for (tag, cause) in self.finished.drain(..) {
            if count > 0 && (tag.slot != slot || cause.is_some()) {
                self.transfers.done(slot, count);
                count = 0;
            }
            match cause {
                None => (slot, count) = (tag.slot, count + 1),
                Some(cause) => self.transfers.flushed(tag, lost, cause),
            }
        }
        if count > 0 {
            self.transfers.done(slot, count);
        }
    }
}
