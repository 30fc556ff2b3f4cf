//! What has completed.

use super::Worker;
use crate::engine::transfers::Lost;
use crate::provider::{Completed, Completion, Lane, Provider, Reaper};

impl<P: Provider> Worker<P> {
    /// Takes completions, and finishes the slices that they account for. Returns whether any came.
    pub(super) fn reap(&mut self) -> bool {
        let mut found = std::mem::take(&mut self.found);
        self.reaper.reap(&mut found, self.pace.reap);
        let has_copied = self.copy(&mut found);
        let mut has_failed = false;
        let is_flushed = self.flush_counted(&found);
        for completion in &found {
            // What completes of a lane that is gone is of no one.
            let Some((at, nth)) = self.places.get(&completion.lane).copied() else {
                continue;
            };
            let work = &mut self.links[at];
            let (held, finished) = (&mut work.lanes[nth], &mut self.finished);
            if let Completed::Receive(immediate) = completion.what {
                held.receive(completion, immediate.filter(|_| is_flushed));
                if immediate.is_some() && !is_flushed {
                    held.link.break_off();
                }
                continue;
            }
            held.lane
                .retire(completion, |tag, cause| finished.push((tag, cause)));
            let completed = u32::try_from(finished.len()).unwrap_or(u32::MAX);
            held.completed(completed, self.now);
            if let Some(cause) = completion.cause {
                has_failed = true;
                held.is_refused |= !held.has_failed && cause.is_of_the_request();
                match cause.is_of_the_request() || cause.is_flush() {
                    // The peer has answered, or this QP was put into error: the pair is good for more.
                    true => held.end(),
                    false => held.fail(),
                }
                if cause.errno() == Some(libc::ESRCH) {
                    held.link.break_off();
                }
            }
            let sends = !held.lane.copies();
            let lost = Lost {
                lane: sends.then_some(held.number),
                life: held.life,
                qp: sends.then_some(completion.lane),
                is_refused: held.is_refused,
            };
            self.finish(lost);
        }
        let has_found = has_copied || !found.is_empty();
        found.clear();
        self.found = found;
        if has_failed || has_found && self.drains {
            self.drop_lanes();
        }
        has_found
    }

    /// The bytes of what is about to be counted have come to the GPUs that are to be flushed for that. `false`: not for sure.
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

    /// Does a part of the work of each lane that copies. Returns whether any had work.
    fn copy(&mut self, found: &mut Vec<Completion>) -> bool {
        let mut has_copied = false;
        for (at, nth) in &self.copying {
            let lane = &mut self.links[*at].lanes[*nth].lane;
            if lane.in_flight() > 0 {
                has_copied = true;
                found.extend(lane.advance());
            }
        }
        has_copied
    }

    /// Finishes slices, those of one transfer that follow each other by one step.
    fn finish(&mut self, lost: Lost) {
        let failed = self.finished.iter().filter(|(_, cause)| cause.is_some());
        let failed = failed.count();
        let completed = self.finished.len() - failed;
        let tally = self.inbox.queue.tally(lost.lane.is_none());
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
