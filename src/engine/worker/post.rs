//! The part of a worker that posts slices.

use std::sync::Arc;
use std::time::Instant;

use super::held::Held;
use super::inbox::Pace;
use super::links::{LinkWork, Links};
use crate::engine::limits::count;
use crate::engine::route::crossing::{NO_RAIL, number_of};
use crate::engine::transfers::queue::RunQueue;
use crate::engine::transfers::{By, Pulled, Room, Transfers};
use crate::provider::{Chain, Lane, Posted, Stop};

/// The number of chains that a worker takes of a transfer in one step. Workers that share a transfer meet at its account. So they take more
/// at a time than one doorbell posts.
const CHAINS: u32 = 2;

/// The part of a worker that posts slices.
#[derive(Debug)]
pub(super) struct Poster {
    transfers: Arc<Transfers>,
    queue: Arc<RunQueue>,
    /// The number of the worker.
    worker: u32,
    pace: Pace,
    /// A chain that is kept for its memory.
    chain: Chain,
}

impl Poster {
    pub(super) fn new(
        transfers: &Arc<Transfers>,
        queue: &Arc<RunQueue>,
        worker: u32,
        pace: Pace,
    ) -> Self {
        Self {
            transfers: Arc::clone(transfers),
            queue: Arc::clone(queue),
            worker,
            pace,
            chain: Chain::default(),
        }
    }

    /// Posts, for each link, as much as its lanes have room for. Returns whether anything was posted.
    pub(super) fn post<L: Lane>(&mut self, links: &mut Links<L>, now: Instant) -> bool {
        let (mut has_posted, mut stalls) = (false, false);
        for work in links.all_mut() {
            if work.queue.is_empty() {
                continue;
            }
            if !work.link.is_open() {
                work.close_queue(&self.transfers);
                continue;
            }
            let is_usable = |held: &&Held<L>| !held.has_failed();
            let lanes = work.lanes.iter().filter(is_usable);
            let copies = lanes.clone().any(|held| held.lane().copies());
            if lanes.count() == 0 {
                has_posted |= self.hand_on(work);
                continue;
            }
            let mut has_begun = self.post_by(work, copies, false, now);
            // While a lane copies, the QPs of the link take only what copies leave: transfers for the NIC alone, and slices whose copies
            // have failed.
            if copies && !has_begun && !is_copying(work) {
                has_begun = self.post_by(work, false, false, now);
            } else if copies && work.link.load().has_some_for_nic() {
                has_begun |= self.post_by(work, false, true, now);
            }
            has_posted |= has_begun;
            stalls |= !copies && self.is_full(work);
        }
        self.queue.tally(false).set_stalled(stalls);
        has_posted
    }

    /// Posts by the copying lanes of a link if `copies`, else by its QPs. With `for_nic` it posts only transfers for the NIC. Returns
    /// whether anything was posted.
    fn post_by<L: Lane>(
        &mut self,
        work: &mut LinkWork<L>,
        copies: bool,
        for_nic: bool,
        now: Instant,
    ) -> bool {
        let mut has_posted = false;
        for nth in 0..work.lanes.len() {
            if work.lanes[nth].lane().copies() == copies {
                has_posted |= self.post_on(work, nth, for_nic, now);
            }
        }
        has_posted
    }

    /// Returns whether slices of a link are left, and no lane of it at this worker takes more.
    fn is_full<L: Lane>(&self, work: &LinkWork<L>) -> bool {
        let has_room = |held: &Held<L>| held.has_room(self.pace.gather);
        !work.queue.is_empty() && !work.lanes.iter().any(has_room)
    }

    /// Posts by one lane as much as it has room for. Returns whether the lane took anything.
    fn post_on<L: Lane>(
        &mut self,
        work: &mut LinkWork<L>,
        nth: usize,
        for_nic: bool,
        now: Instant,
    ) -> bool {
        if work.lanes[nth].has_failed() {
            return false;
        }
        self.fill(work, nth, for_nic, now);
        if self.chain.is_empty() {
            return false;
        }
        let held = &mut work.lanes[nth];
        let posted = post_chains(held.lane_mut(), &self.chain, self.pace.chain);
        held.posted(now);
        let taken = self.chain.range(0..posted.count);
        let ranges = taken.flat_map(|(_, ranges)| ranges);
        let bytes = ranges.map(|it| u64::from(it.bytes)).sum();
        let rail = held.crossing().own;
        let tally = self.queue.tally(rail == NO_RAIL);
        tally.post(self.chain.len() as u64, bytes);
        if posted.stop == Some(Stop::Failed) {
            held.fail();
        }
        // The lane had room, so the slices that it has not taken were refused for good.
        if posted.count < self.chain.len() {
            tally.finish(0, (self.chain.len() - posted.count) as u64);
        }
        let by = By {
            qp: Some(held.lane().number()),
            rail: number_of(rail),
        };
        for (refused, _) in self.chain.from(posted.count) {
            self.transfers.refused(refused.tag, by);
        }
        true
    }

    /// Takes slices of the transfers of a link into the chain, as far as a lane of the link has room. Transfers of which the lane may take
    /// no slice go to other workers.
    fn fill<L: Lane>(&mut self, work: &mut LinkWork<L>, nth: usize, for_nic: bool, now: Instant) {
        let LinkWork { link, lanes, queue } = work;
        let held = &mut lanes[nth];
        let chain = self.pace.chain;
        let most = (CHAINS * chain).min(held.lane().room(self.pace.gather));
        let share = held.share(chain, now).min(most);
        held.set_ahead(false);
        self.chain.clear();
        let mut next = 0;
        while let Some(task) = queue.get(next).copied() {
            let left = most.saturating_sub(count(self.chain.len()));
            if left == 0 {
                break;
            }
            if for_nic && !self.transfers.is_for_nic(task.id) {
                next += 1;
                continue;
            }
            let room = Room {
                most: left,
                shared: left.saturating_sub(most - share),
                chain,
            };
            match (self.transfers).pull(task.id, room, held.crossing(), &mut self.chain) {
                Pulled::Some => {}
                Pulled::Nothing => {
                    queue.remove(next);
                }
                Pulled::Later => {
                    held.set_ahead(true);
                    break;
                }
                Pulled::Elsewhere(lanes) => {
                    let others = link.open_workers_of(lanes);
                    // Another lane of this worker takes the slices, perhaps one that is about to come.
                    if others.is_empty() || others.contains(&self.worker) {
                        next += 1;
                    } else {
                        queue.remove(next);
                        self.transfers.queues().give(task, link, &others);
                    }
                }
            }
        }
    }

    /// Gives the transfers of a link for which this worker has no QP now to workers that have one. If there are none, or if this worker is
    /// about to get a QP, the transfers wait for the next lane. Returns whether they were given.
    fn hand_on<L>(&mut self, work: &mut LinkWork<L>) -> bool {
        let workers = work.link.open_workers();
        if workers.is_empty() || workers.contains(&self.worker) {
            return false;
        }
        for task in work.queue.drain(..) {
            self.transfers.queues().give(task, &work.link, &workers);
        }
        true
    }
}

/// Returns whether a copy for this link is under way.
fn is_copying<L: Lane>(work: &LinkWork<L>) -> bool {
    let mut lanes = work.lanes.iter();
    lanes.any(|held| held.lane().copies() && held.lane().in_flight() > 0)
}

/// Posts all WQEs of a chain, and rings the doorbell after each `chain` WQEs.
fn post_chains(lane: &mut impl Lane, all: &Chain, chain: u32) -> Posted {
    let (step, mut count) = (chain.max(1) as usize, 0);
    while count < all.len() {
        let end = all.len().min(count + step);
        let posted = lane.post(all, count..end);
        lane.ring();
        count += posted.count;
        if posted.stop.is_some() || count < end {
            return Posted { count, ..posted };
        }
    }
    Posted { count, stop: None }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::provider::{Cause, Completion, Tag, Verb};

    /// A lane that takes `room` WQEs, and records the WQEs of each doorbell.
    #[derive(Default)]
    struct Recorder {
        room: usize,
        posted: Vec<Range<usize>>,
        rung: Vec<Range<usize>>,
    }

    impl Lane for Recorder {
        fn number(&self) -> u32 {
            1
        }

        fn room(&self, _ranges: u32) -> u32 {
            u32::try_from(self.room).unwrap()
        }

        fn post(&mut self, chain: &Chain, which: Range<usize>) -> Posted {
            assert!(which.end <= chain.len() && !which.is_empty());
            let count = which.len().min(self.room);
            self.room -= count;
            self.posted.push(which.start..which.start + count);
            let stop = (count < which.len()).then_some(Stop::Full);
            Posted { count, stop }
        }

        fn ring(&mut self) {
            self.rung.append(&mut self.posted);
        }

        fn retire(&mut self, _completion: &Completion, _each: impl FnMut(Tag, Option<Cause>)) {}

        fn in_flight(&self) -> u32 {
            0
        }

        fn holds(&self, _slot: u32) -> bool {
            false
        }
    }

    #[test]
    fn a_doorbell_follows_each_chain_and_what_does_not_fit_is_left() {
        let mut all = Chain::default();
        for slice in 0..40 {
            let tag = Tag { slot: 0, slice };
            all.push(Verb::Write, tag, 0, 0, []);
        }
        let cases: [(u32, usize, &[usize]); 5] = [
            (16, 99, &[16, 32, 40]),
            (40, 99, &[40]),
            (64, 99, &[40]),
            (16, 20, &[16, 20]),
            (16, 0, &[0]),
        ];
        // The list has the end of the WQEs of each doorbell.
        for (chain, room, ends) in cases {
            let mut lane = Recorder {
                room,
                ..Recorder::default()
            };
            let posted = post_chains(&mut lane, &all, chain);
            let begins = [0].iter().chain(ends);
            let rung: Vec<Range<usize>> = begins.zip(ends).map(|(a, b)| *a..*b).collect();
            assert_eq!(lane.rung, rung, "{chain} {room}");
            let stop = (room < 40).then_some(Stop::Full);
            let count = room.min(40);
            assert_eq!(posted, Posted { count, stop });
        }
    }
}
