//! The links of a worker: its lanes, and the transfers of which slices may be left.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::held::Held;
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::Close;
use crate::engine::route::link::Link;
use crate::engine::transfers::Transfers;
use crate::engine::transfers::queue::Task;
use crate::provider::{Completion, Lane};

/// The lanes and transfers of one link at one worker.
pub(super) struct LinkWork<L> {
    pub(super) link: Arc<Link>,
    pub(super) lanes: Vec<Held<L>>,
    /// The transfers of which slices may be left, in order.
    pub(super) queue: VecDeque<Task>,
}

/// All links of one worker.
pub(super) struct Links<L> {
    all: Vec<LinkWork<L>>,
    /// The place of each lane, by the number of the lane.
    spots: HashMap<u32, Spot>,
    /// True if a lane has failed and is not dry. Then any completion may be its last.
    drains: bool,
}

/// The indices of a link and of a lane in their lists.
#[derive(Clone, Copy, Debug)]
struct Spot {
    link: usize,
    lane: usize,
}

impl<L> LinkWork<L> {
    /// Returns whether this worker has nothing more to do for the link. A link may end at any time. Then the transfers in its queue are
    /// closed in the next turn, so the queue must be empty too.
    pub(super) fn is_over(&self) -> bool {
        !self.link.is_open() && self.lanes.is_empty() && self.queue.is_empty()
    }

    /// Closes the transfers in the queue, since no QP is left for them.
    pub(super) fn close_queue(&mut self, transfers: &Transfers) {
        while let Some(task) = self.queue.pop_front() {
            transfers.close(task.id, Close::Failed);
        }
    }
}

impl<L: Lane> Links<L> {
    pub(super) fn new() -> Self {
        Self {
            all: Vec::new(),
            spots: HashMap::new(),
            drains: false,
        }
    }

    pub(super) fn all(&self) -> &[LinkWork<L>] {
        &self.all
    }

    pub(super) fn all_mut(&mut self) -> &mut [LinkWork<L>] {
        &mut self.all
    }

    /// Takes all links away.
    pub(super) fn take_all(&mut self) -> Vec<LinkWork<L>> {
        std::mem::take(&mut self.all)
    }

    /// Returns the work for a link, if the worker has any.
    pub(super) fn of(&mut self, link: &Link) -> Option<&mut LinkWork<L>> {
        let mut all = self.all.iter_mut();
        all.find(|work| work.link.number() == link.number())
    }

    /// Returns the work for a link. It is new if the worker had none.
    pub(super) fn begin(&mut self, link: &Arc<Link>) -> &mut LinkWork<L> {
        let mut all = self.all.iter();
        let known = all.position(|work| work.link.number() == link.number());
        let at = known.unwrap_or(self.all.len());
        if at == self.all.len() {
            self.all.push(LinkWork {
                link: Arc::clone(link),
                lanes: Vec::new(),
                queue: VecDeque::with_capacity(64),
            });
        }
        &mut self.all[at]
    }

    /// Takes lanes that others have given to this worker.
    pub(super) fn take_lanes(&mut self, lanes: Vec<Held<L>>) {
        if lanes.is_empty() {
            return;
        }
        for mut held in lanes {
            held.lane_mut().open();
            let link = Arc::clone(held.link());
            self.begin(&link).lanes.push(held);
        }
        self.find_lanes();
    }

    fn find_lanes(&mut self) {
        self.spots.clear();
        for (link, work) in self.all.iter().enumerate() {
            for (lane, held) in work.lanes.iter().enumerate() {
                let spot = Spot { link, lane };
                self.spots.insert(held.lane().number(), spot);
            }
        }
    }

    /// Returns the lane with this number. Returns None if it is gone.
    pub(super) fn lane(&mut self, number: u32) -> Option<&mut Held<L>> {
        let Spot { link, lane } = *self.spots.get(&number)?;
        Some(&mut self.all[link].lanes[lane])
    }

    /// Does a part of the work of each lane whose turn it is. Returns whether any lane has come further: where the NIC still refuses what
    /// it has refused before, none has.
    pub(super) fn take_turns(&mut self, found: &mut Vec<Completion>) -> bool {
        let mut is_further = false;
        for held in self.all.iter_mut().flat_map(|work| &mut work.lanes) {
            let lane = held.lane_mut();
            if lane.has_turn() {
                let completion = lane.advance();
                is_further |= lane.copies() || completion.is_some() || !lane.has_turn();
                found.extend(completion);
            }
        }
        is_further
    }

    /// Drops failed lanes that have nothing under way, and ended links that have no lanes.
    pub(super) fn drop_lanes(&mut self, transfers: &Transfers) {
        let mut has_dropped = false;
        self.drains = false;
        for work in &mut self.all {
            let is_open = work.link.is_open();
            if !is_open {
                work.close_queue(transfers);
            }
            let lanes = &mut work.lanes;
            for held in &mut *lanes {
                held.follow_link(is_open);
            }
            for held in lanes.extract_if(.., |held| held.is_over()) {
                held.leave();
                has_dropped = true;
            }
            self.drains |= lanes.iter().any(Held::has_failed);
        }
        let links = self.all.len();
        self.all.retain(|work| !work.is_over());
        // The removal of a link changes the indices of the links after it.
        if has_dropped || self.all.len() != links {
            self.find_lanes();
        }
    }

    /// Puts the QPs that hold slices of transfer `id` of this link into the error state.
    pub(super) fn end_lanes_of(&mut self, id: TransferId, link: &Link) {
        let slot = id.slot();
        for held in self.of(link).into_iter().flat_map(|work| &mut work.lanes) {
            held.end_slices_of(slot);
        }
    }

    /// Returns whether a lane has failed and is not dry.
    pub(super) fn drains(&self) -> bool {
        self.drains
    }

    /// Returns whether the HCA has WQEs of this worker that are not accounted for, or a failed lane is not dry yet.
    pub(super) fn awaits_completions(&self) -> bool {
        let mut lanes = self.all.iter().flat_map(|work| &work.lanes);
        self.drains || lanes.any(|held| !held.is_dry())
    }

    /// Makes the worker act as if a failed lane were not dry.
    #[cfg(test)]
    pub(super) fn drain(&mut self) {
        self.drains = true;
    }
}
