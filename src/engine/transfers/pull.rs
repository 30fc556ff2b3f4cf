//! How workers take slices of a transfer, or learn which other lanes take them.

use std::ops::Range;

use super::place::{Body, Place, Way};
use crate::engine::ids::TransferId;
use crate::engine::kind::Kind;
use crate::engine::ledger::plan::Plan;
use crate::engine::limits::count;
use crate::engine::route::crossing::{Crossing, NO_RAIL};
use crate::engine::route::link::Link;
use crate::provider::{Chain, LocalRange, Tag, Verb};

/// A lane takes at most one in `PART` of its even share of the slices that are left. So no lane has many slices when another lane has none.
const PART: u32 = 4;

/// The number of slices that a lane takes.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Room {
    /// The number of slices for which the lane has room.
    pub(in crate::engine) most: u32,
    /// The number of slices among `most` that other lanes may take as well.
    pub(in crate::engine) shared: u32,
    /// The number of slices that the lane takes even if few are left for all lanes.
    pub(in crate::engine) chain: u32,
}

/// The result of taking slices of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Pulled {
    /// The worker has taken slices, and more may be left.
    Some,
    /// No slice is left for any worker.
    Nothing,
    /// Slices are left, but other lanes are to take theirs first.
    Later,
    /// The slices that are left are for other lanes: lanes that enter nearer to the memory, or by other rails than the slices have failed
    /// on. Has a bit for each such lane. If no bit is set, the worker asks again later.
    Elsewhere(u32),
}

impl Place {
    /// Adds up to `room.most` slices of transfer `id` to `chain`, for a lane with this crossing. Slices that are to be posted
    /// again come first.
    pub(super) fn pull(
        &self,
        id: TransferId,
        room: Room,
        crossing: Crossing,
        chain: &mut Chain,
    ) -> Pulled {
        let body = self.read();
        let Some(way) = body.way_of(id) else {
            return Pulled::Nothing;
        };
        let plan = body.plan();
        let (lanes, is_for_nic) = (way.link.lanes(), body.is_for_nic());
        if crossing.own == NO_RAIL && is_for_nic {
            return self.left_to_qps(plan, &way.link);
        }
        let again = self.failures.take(room.most, &self.account, |tried| {
            lanes.takes(crossing, tried, is_for_nic)
        });
        let left = room.most - count(again.len());
        let is_again = !again.is_empty();
        let mut into = Filled {
            chain,
            body: &body,
            way,
            slot: id.slot(),
            crossing,
        };
        for number in again {
            into.add(number..number + 1);
        }
        let account = self.account.load();
        let is_left = !account.is_closed() && account.handed() < plan.slices();
        let is_far = is_left && lanes.is_far(crossing, body.near);
        // One worker gets all of a small transfer.
        let left = if plan.is_small() || crossing.own == NO_RAIL {
            left
        } else {
            let left_for_all = plan.slices().saturating_sub(account.handed());
            let even = left_for_all / count(lanes.qps()).max(1);
            left.min(room.shared).min(room.chain.max(even / PART))
        };
        if is_left && !is_far && left == 0 && !is_again {
            return Pulled::Later;
        }
        if !is_far && let Some(handed) = self.account.hand_out(left, plan.slices()) {
            into.add(handed);
            return Pulled::Some;
        }
        if is_again {
            Pulled::Some
        } else {
            self.left_elsewhere(is_far.then_some(body.near), &way.link, is_for_nic)
        }
    }

    /// Returns the answer to a lane that may take none of the slices that are left. Other lanes take the slices that are to be posted
    /// again, and the slices that are to enter by the rails `near`.
    fn left_elsewhere(&self, near: Option<u8>, link: &Link, is_for_nic: bool) -> Pulled {
        if near.is_none() && !self.failures.has_retries() {
            return Pulled::Nothing;
        }
        let near = near.map_or(0, |near| link.lanes().near(near));
        let takers = |tried| link.lanes().others(tried, is_for_nic);
        Pulled::Elsewhere(near | self.failures.takers(takers))
    }

    /// Returns the answer to a lane that copies, for a transfer that only QPs move.
    fn left_to_qps(&self, plan: &Plan, link: &Link) -> Pulled {
        let account = self.account.load();
        let is_left = !account.is_closed() && account.handed() < plan.slices();
        if is_left || self.failures.has_retries() {
            Pulled::Elsewhere(link.lanes().open_qps())
        } else {
            Pulled::Nothing
        }
    }
}

/// A chain that gets slices of one transfer, for a lane with this crossing.
struct Filled<'a> {
    chain: &'a mut Chain,
    body: &'a Body,
    way: &'a Way,
    slot: u32,
    crossing: Crossing,
}

impl Filled<'_> {
    /// Adds the slices with these numbers.
    fn add(&mut self, numbers: Range<u32>) {
        let (body, tables) = (self.body, &self.way.tables);
        for (slice, number) in body.plan().range(numbers.clone()).zip(numbers) {
            let verb = match slice.kind {
                Kind::Write => body.counter.map_or(Verb::Write, Verb::WriteImmediate),
                Kind::Read => Verb::Read,
            };
            let tag = Tag {
                slot: self.slot,
                slice: number,
            };
            let remote = tables.remote.get(slice.remote_region);
            let rkey = remote.map_or(0, |it| it.keys.of(self.crossing.theirs));
            let own = self.crossing.own;
            // A copy names the peer's memory as the program does.
            let named = match remote {
                Some(it) if own != NO_RAIL => it.keys.named(it.address, slice.remote),
                _ => slice.remote,
            };
            let ranges = slice.locals().map(|local| LocalRange {
                address: local.address,
                key: (tables.local.get(local.region)).map_or(0, |it| it.keys.of(own)),
                bytes: local.bytes,
            });
            self.chain.push(verb, tag, named, rkey, ranges);
            if body.has_gpu {
                self.chain.keep_in_place();
            }
            self.chain.copy_by(body.copier);
        }
    }
}
