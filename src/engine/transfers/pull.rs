//! Workers take slices of a transfer, and give each other what other lanes take.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::place::{Body, Place, Way};
use super::work::{Pulled, Room};
use super::{Transfers, count};
use crate::engine::ids::TransferId;
use crate::engine::kind::Kind;
use crate::engine::ledger::plan::Plan;
use crate::engine::route::crossing::{Crossing, NO_RAIL};
use crate::engine::route::link::Link;
use crate::engine::transfers::queue::Item;
use crate::provider::{Chain, LocalRange, Tag, Verb};

/// A lane takes at most one part in so many of its even share of what is left. So no lane has much when another has nothing.
const PART: u32 = 4;

impl Transfers {
    /// Adds up to `most` slices of the transfer to `chain`, for a lane with this crossing: first those that are to be posted again.
    pub(in crate::engine) fn pull(
        &self,
        id: TransferId,
        (
            Room {
                most,
                shared,
                chain: least,
            },
            crossing,
        ): (Room, Crossing),
        chain: &mut Chain,
    ) -> Pulled {
        let place = &self.places[id.slot() as usize];
        let body = place.read();
        let (true, Some(way)) = (body.id == Some(id), &body.way) else {
            return Pulled::Nothing;
        };
        let plan = body.plan();
        if crossing.own == NO_RAIL && body.is_for_nic() {
            return place.left_to_qps(plan, &way.link);
        }
        let again = place.take_retries((most, body.is_for_nic()), crossing, &way.link);
        let left = most - count(again.len());
        let is_again = !again.is_empty();
        for number in again {
            add(chain, (&body, way), crossing, id.slot(), number..number + 1);
        }
        let account = place.account.load();
        let is_left = !account.is_closed() && account.handed() < plan.slices();
        let is_far = is_left && way.link.lanes().is_far(crossing, body.near);
        // A transfer of one slice is given to one worker.
        let left = match plan.is_small() || crossing.own == NO_RAIL {
            true => left,
            false => {
                let left_for_all = plan.slices().saturating_sub(account.handed());
                let even = left_for_all / count(way.link.lanes().qps()).max(1);
                left.min(shared).min(least.max(even / PART))
            }
        };
        if is_left && !is_far && left == 0 && !is_again {
            return Pulled::Later;
        }
        if !is_far && let Some(handed) = place.account.hand_out(left, plan.slices()) {
            add(chain, (&body, way), crossing, id.slot(), handed);
            return Pulled::Some;
        }
        match is_again {
            true => Pulled::Some,
            false => {
                place.left_elsewhere(is_far.then_some(body.near), (&way.link, body.is_for_nic()))
            }
        }
    }

    /// Returns whether copies have no part in the transfer.
    pub(in crate::engine) fn is_for_nic(&self, id: TransferId) -> bool {
        let body = self.places[id.slot() as usize].read();
        body.id == Some(id) && body.is_for_nic()
    }

    /// Gives the transfer to these workers, also to some that have it.
    pub(in crate::engine) fn give(
        &self,
        id: TransferId,
        link: (&Arc<Link>, Option<Instant>),
        workers: &[u32],
    ) {
        self.push(id, link, (workers, false));
    }

    pub(super) fn push(
        &self,
        id: TransferId,
        (link, deadline): (&Arc<Link>, Option<Instant>),
        (workers, is_new): (&[u32], bool),
    ) {
        for worker in workers {
            self.queues[*worker as usize].push(Item::Transfer {
                id,
                link: Arc::clone(link),
                deadline,
                is_new,
            });
        }
    }
}

impl Place {
    /// Up to `most` slices that are to be posted again, and may be on a lane with this crossing.
    fn take_retries(
        &self,
        (most, is_for_nic): (u32, bool),
        crossing: Crossing,
        link: &Link,
    ) -> Vec<u32> {
        if self.to_retry.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut failures = self.failures();
        if self.account.load().is_closed() {
            return Vec::new();
        }
        let most = most as usize;
        let mut taken = Vec::new();
        // Most have failed on the same lanes.
        let takes = |tried| link.lanes().takes(crossing, (tried, is_for_nic));
        let mut known = (0, takes(0));
        failures.to_retry.retain(|retry| {
            if known.0 != retry.tried {
                known = (retry.tried, takes(retry.tried));
            }
            let is_taken = taken.len() < most && known.1;
            if is_taken {
                taken.push(retry.slice);
            }
            !is_taken
        });
        self.to_retry
            .store(count(failures.to_retry.len()), Ordering::Release);
        taken
    }

    /// The answer to a lane that may take nothing of what is left: slices to retry, and those that are to enter by these rails.
    fn left_elsewhere(&self, near: Option<u8>, (link, is_for_nic): (&Link, bool)) -> Pulled {
        if near.is_none() && self.to_retry.load(Ordering::Acquire) == 0 {
            return Pulled::Nothing;
        }
        let near = near.map_or(0, |near| link.lanes().near(near));
        let failures = self.failures();
        let retries = failures.to_retry.iter();
        let other = |tried| link.lanes().others((tried, is_for_nic));
        Pulled::Elsewhere(retries.fold(near, |all, it| all | other(it.tried)))
    }

    /// The answer to a lane that copies, where QPs move all of the transfer.
    fn left_to_qps(&self, plan: &Plan, link: &Link) -> Pulled {
        let account = self.account.load();
        let is_left = !account.is_closed() && account.handed() < plan.slices();
        match is_left || self.to_retry.load(Ordering::Acquire) > 0 {
            true => Pulled::Elsewhere(link.lanes().open_qps()),
            false => Pulled::Nothing,
        }
    }
}

/// Adds slices of a transfer to a chain.
fn add(
    chain: &mut Chain,
    (body, way): (&Body, &Way),
    crossing: Crossing,
    slot: u32,
    numbers: Range<u32>,
) {
    for (slice, number) in body.plan().range(numbers.clone()).zip(numbers) {
        let verb = match slice.kind {
            Kind::Write => body.counter.map_or(Verb::Write, Verb::WriteImmediate),
            Kind::Read => Verb::Read,
        };
        let tag = Tag {
            slot,
            slice: number,
        };
        let remote = way.remote.get(slice.remote_region);
        let rkey = remote.map_or(0, |it| it.keys.of(crossing.theirs));
        let ranges = slice.locals().map(|local| LocalRange {
            address: local.address,
            key: way
                .local
                .get(local.region)
                .map_or(0, |it| it.keys.of(crossing.own)),
            bytes: local.bytes,
        });
        chain.push((verb, tag), (slice.remote, rkey), ranges);
        if body.has_gpu {
            chain.keep_in_place();
        }
        chain.copy_by(body.copier);
    }
}
