//! What is posted next.

use super::super::account::Close;
use super::super::rails::NO_RAIL;
use super::super::transfers::{Pulled, Room};
use super::{Held, LinkWork, Worker};
use crate::provider::{Lane, Provider, Stop};

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

    /// Whether a copy for this link is under way.
    fn is_copying(&self, at: usize) -> bool {
        let mut lanes = self.links[at].lanes.iter();
        lanes.any(|held| held.lane.copies() && held.lane.in_flight() > 0)
    }

    /// Whether slices of a link are left, and none of its QPs here takes more.
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
        let most = self.pace.chain.min(held.lane.room(self.pace.gather));
        let share = held.share(self.pace.chain, self.now).min(most);
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
        let posted = held.lane.post(&self.chain, 0);
        held.lane.ring();
        held.posted(self.now);
        let lane = &held.lane;
        let qp = lane.number();
        let rail = held.crossing.own;
        let taken = self.chain.from(0).take(posted.count);
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
