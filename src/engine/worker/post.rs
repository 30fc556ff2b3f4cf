//! What is posted next.

use super::{Held, LinkWork, Worker};
use crate::engine::ledger::account::Close;
use crate::engine::route::crossing::NO_RAIL;
use crate::engine::transfers::{Pulled, Room};
use crate::provider::{Chain, Lane, Posted, Provider, Stop};

/// Chains that a worker takes of a transfer in one step. Workers that share a transfer meet at its account, so they take more at
/// a time than goes behind a doorbell.
const CHAINS: u32 = 2;

impl<P: Provider> Worker<P> {
    /// Posts for each link what its lanes have room for. Whether anything was posted.
    pub(super) fn post(&mut self) -> bool {
        let (mut has_posted, mut stalls) = (false, false);
        for at in 0..self.links.len() {
            if self.links[at].queue.is_empty() {
                continue;
            }
            if !self.links[at].link.is_open() {
                self.close_queue(at);
                continue;
            }
            let is_usable = |held: &&Held<P::Lane>| !held.has_failed;
            let lanes = self.links[at].lanes.iter().filter(is_usable);
            let copies = lanes.clone().any(|held| held.lane.copies());
            if lanes.count() == 0 {
                has_posted |= self.hand_on(at);
                continue;
            }
            let mut has_begun = self.post_by(at, copies, false);
            // While one copies, the QPs beside it have only what it leaves: what is for the NIC alone, and slices whose copies have
            // failed.
            if copies && !has_begun && !self.is_copying(at) {
                has_begun = self.post_by(at, false, false);
            } else if copies && self.links[at].link.has_transfers_for_nic() {
                has_begun |= self.post_by(at, false, true);
            }
            has_posted |= has_begun;
            stalls |= !copies && self.is_full(at);
        }
        self.inbox.queue.nic.set_stalled(stalls);
        has_posted
    }

    /// Posts by the lanes of a link that copy, or by its QPs: all, or what is for the NIC alone. Whether anything was posted.
    fn post_by(&mut self, at: usize, copies: bool, for_nic: bool) -> bool {
        let mut has_posted = false;
        for nth in 0..self.links[at].lanes.len() {
            if self.links[at].lanes[nth].lane.copies() == copies {
                has_posted |= self.post_on(at, nth, for_nic);
            }
        }
        has_posted
    }

    /// Returns whether a copy for this link is under way.
    fn is_copying(&self, at: usize) -> bool {
        let mut lanes = self.links[at].lanes.iter();
        lanes.any(|held| held.lane.copies() && held.lane.in_flight() > 0)
    }

    /// Returns whether slices of a link are left, and none of its QPs here takes more.
    fn is_full(&self, at: usize) -> bool {
        let LinkWork { lanes, queue, .. } = &self.links[at];
        let has_room = |held: &Held<P::Lane>| {
            !held.has_failed && !held.is_ahead && held.lane.room(self.pace.gather) > 0
        };
        !queue.is_empty() && !lanes.iter().any(has_room)
    }

    fn post_on(&mut self, at: usize, nth: usize, for_nic: bool) -> bool {
        let work = &mut self.links[at];
        let held = &mut work.lanes[nth];
        if held.has_failed {
            return false;
        }
        let chain = self.pace.chain;
        let most = (CHAINS * chain).min(held.lane.room(self.pace.gather));
        let share = held.share(chain, self.now).min(most);
        held.is_ahead = false;
        self.chain.clear();
        let mut next = 0;
        while let Some((id, _)) = work.queue.get(next).copied() {
            let left = most - u32::try_from(self.chain.len()).unwrap_or(most).min(most);
            if left == 0 {
                break;
            }
            if for_nic && !self.transfers.is_for_nic(id) {
                next += 1;
                continue;
            }
            let room = Room {
                most: left,
                shared: left.saturating_sub(most - share),
                chain,
            };
            let how = (room, held.crossing);
            match self.transfers.pull(id, how, &mut self.chain) {
                Pulled::Some => {}
                Pulled::Nothing => {
                    work.queue.remove(next);
                }
                Pulled::Later => {
                    held.is_ahead = true;
                    break;
                }
                Pulled::Elsewhere(lanes) => {
                    let others = work.link.workers_of(lanes);
                    // Of this worker another lane takes it, or one that is about to come.
                    if others.is_empty() || others.contains(&self.inbox.number) {
                        next += 1;
                    } else if let Some((id, deadline)) = work.queue.remove(next) {
                        self.transfers.give(id, (&work.link, deadline), &others);
                    }
                }
            }
        }
        if self.chain.is_empty() {
            return false;
        }
        let posted = post_chains(&mut held.lane, &self.chain, chain);
        held.posted(self.now);
        let lane = &held.lane;
        let qp = lane.number();
        let rail = held.crossing.own;
        let taken = self.chain.range(0..posted.count);
        let ranges = taken.flat_map(|(_, ranges)| ranges);
        let bytes = ranges.map(|it| u64::from(it.bytes)).sum();
        let tally = self.inbox.queue.tally(rail == NO_RAIL);
        tally.post(self.chain.len() as u64, bytes);
        if posted.stop == Some(Stop::Failed) {
            held.fail();
        }
        // Room was asked for before, so what is left was refused for good.
        if posted.count < self.chain.len() {
            tally.finish(0, (self.chain.len() - posted.count) as u64);
        }
        for (refused, _) in self.chain.from(posted.count) {
            self.transfers.refused(refused.tag, (qp, rail));
        }
        true
    }

    /// This worker has no QP for them just now: others get them. Without such, or if one is about to come, they wait for the next
    /// lane. Whether they went.
    fn hand_on(&mut self, at: usize) -> bool {
        let LinkWork { link, queue, .. } = &mut self.links[at];
        let workers = link.open_workers();
        if workers.is_empty() || workers.contains(&self.inbox.number) {
            return false;
        }
        for (id, deadline) in queue.drain(..) {
            self.transfers.give(id, (link, deadline), &workers);
        }
        true
    }

    /// No QP is left for them: nothing more is handed out.
    pub(super) fn close_queue(&mut self, at: usize) {
        while let Some((id, _)) = self.links[at].queue.pop_front() {
            self.transfers.close(id, Close::Failed);
        }
    }
}

/// Posts what was taken, so many WQEs behind each doorbell.
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

    /// Takes so many WQEs, and keeps which were posted behind each doorbell.
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
            all.push((Verb::Write, tag), (0, 0), []);
        }
        let cases: [(u32, usize, &[usize]); 5] = [
            (16, 99, &[16, 32, 40]),
            (40, 99, &[40]),
            (64, 99, &[40]),
            (16, 20, &[16, 20]),
            (16, 0, &[0]),
        ];
        // Where the WQEs behind each doorbell end.
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
