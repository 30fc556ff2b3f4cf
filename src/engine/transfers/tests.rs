//! Tests of where a slice that has failed may go, by pairings and dead rails.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{How, Lost, Moves, Options, Room, Sizes, Transfers};
use crate::engine::ids::TransferId;
use crate::engine::kind::Kind;
use crate::engine::ledger::account::{Close, Outcome};
use crate::engine::ledger::cut::Cut;
use crate::engine::ledger::plan::Operation;
use crate::engine::ledger::slots::Status;
use crate::engine::limits::MOST_QPS;
use crate::engine::memory::table::one_region_each;
use crate::engine::route::crossing::{Crossing, RailCounts};
use crate::engine::route::fences::Fence;
use crate::engine::route::flow::WaitsFor;
use crate::engine::route::link::Link;
use crate::engine::route::rails::RailKeys;
use crate::provider::{Cause, Chain, Tag};

/// A slot, and the lanes on which its slices fail.
struct Rig {
    transfers: Transfers,
    crossings: Vec<Crossing>,
    /// True if a lane that has failed takes slices again at once. If not, it takes none until the end.
    reopens: bool,
}

/// The cause of a slice that was never answered.
const NO_ANSWER: Cause = Cause::of_hca(0x15, 0);

/// Returns transfers with one slot and one worker. Each slice is posted again up to `retry` times.
fn transfers(retry: u32) -> Transfers {
    let sizes = Sizes {
        slots: 1,
        workers: 1,
        retry,
        cut: Cut::new(4096, 0, 4096).unwrap(),
        gather: 1,
    };
    Transfers::new(0, &sizes).unwrap()
}

impl Rig {
    fn new(crossings: Vec<Crossing>, reopens: bool) -> Self {
        Self {
            transfers: transfers(3),
            crossings,
            reopens,
        }
    }

    fn begin(&self, link: &Arc<Link>, kind: Kind, options: &Options<'_>) -> TransferId {
        let tables = one_region_each(RailKeys::from_iter([1]));
        let one = Operation {
            kind,
            local: 0,
            remote: 0,
            bytes: 8,
        };
        let moves = Moves {
            operations: &[one],
            overlaps: false,
        };
        let how = How {
            deadline: options.deadline,
            counter: options.counter,
            notice: None,
        };
        self.transfers.submit(link, tables, moves, how).unwrap()
    }

    /// Returns whether the lane gets the slice.
    fn pulls(&self, id: TransferId, lane: usize) -> bool {
        let mut chain = Chain::default();
        let room = Room {
            most: 1,
            shared: 1,
            chain: 1,
        };
        self.transfers
            .pull(id, room, self.crossings[lane], &mut chain);
        chain.len() == 1
    }

    fn fail(&self, link: &Link, lane: usize) {
        let lost = Lost {
            lane: Some(lane),
            life: 1,
            qp: None,
            is_refused: false,
        };
        let tag = Tag { slot: 0, slice: 0 };
        self.transfers.flushed(tag, lost, NO_ANSWER);
        if !self.reopens {
            link.end_lane(lane);
        }
    }

    /// Lets a slice fail on each of these lanes in turn. Returns the lanes that may take the slice then.
    fn takers(&self, failed: &[usize], kind: Kind) -> Vec<usize> {
        let lanes = 0..self.crossings.len();
        let takes = |lane: &usize| {
            let link = Link::new(1, 1, &vec![0; self.crossings.len()], None);
            let link = Arc::new(link.with_crossings(&self.crossings, vec![0]));
            let id = self.begin(&link, kind, &Options::default());
            for lane in failed {
                assert!(self.pulls(id, *lane), "{failed:?}");
                self.fail(&link, *lane);
            }
            let is_taken = link.lanes().is_open(*lane) && self.pulls(id, *lane);
            self.transfers.close(id, Close::Cancelled);
            if is_taken {
                self.transfers.done(0, 1);
            }
            self.transfers.end(&link, Fence::Whole);
            self.transfers.release(id).unwrap();
            self.transfers.queues().of(0).take(&mut VecDeque::new());
            is_taken
        };
        lanes.filter(takes).collect()
    }

    /// Checks that the slice reaches a working lane before its tries are over, whichever lane takes it each time.
    fn check(&self, is_dead: &impl Fn(Crossing) -> bool, failed: &mut Vec<usize>) {
        let kind = [Kind::Write, Kind::Read][failed.len() % 2];
        let takers = self.takers(failed, kind);
        assert!(!takers.is_empty(), "{:?}: {failed:?}", self.crossings);
        for lane in takers {
            if !is_dead(self.crossings[lane]) {
                continue;
            }
            failed.push(lane);
            assert!(failed.len() <= 3, "{:?}: {failed:?}", self.crossings);
            self.check(is_dead, failed);
            failed.pop();
        }
    }
}

/// Returns the lanes of engines with so many rails, for several numbers of QPs.
fn pairings(own: usize, theirs: usize) -> Vec<Vec<Crossing>> {
    let mut all = Vec::new();
    for qps in [own.max(theirs), 4, MOST_QPS] {
        let lanes = 0..qps;
        let rails = RailCounts { own, theirs };
        all.push(
            lanes
                .clone()
                .map(|it| Crossing::of_lane(it, rails))
                .collect(),
        );
        all.push(
            lanes
                .map(|it| Crossing::of_near_lane(it, rails, true))
                .collect(),
        );
    }
    all
}

#[test]
fn with_a_dead_rail_at_either_end_or_both_a_slice_arrives_in_time() {
    let mut checked = 0;
    let full = std::env::var_os("WV_TEST_FULL").is_some();
    let most = if full { 4 } else { 3 };
    let rails = (1..=most).flat_map(|own| (1..=most).map(move |theirs| (own, theirs)));
    for (own, theirs) in rails {
        for crossings in pairings(own, theirs) {
            for dead in 0..(own + 1) * (theirs + 1) {
                // The number after the last rail means that no rail is dead.
                let (dead_own, dead_theirs) = (dead % (own + 1), dead / (own + 1));
                let is_dead = |it: Crossing| it.own == dead_own || it.theirs == dead_theirs;
                if crossings.iter().all(|it| is_dead(*it)) {
                    continue;
                }
                for reopens in [true, false] {
                    Rig::new(crossings.clone(), reopens).check(&is_dead, &mut Vec::new());
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 500, "{checked}");
}

#[test]
fn a_slice_that_counts_is_posted_once_by_whatever_lane() {
    let rig = Rig::new(pairings(2, 2).remove(3), true);
    let link = Link::new(1, 1, &vec![0; rig.crossings.len()], None);
    let link = Arc::new(link.with_crossings(&rig.crossings, vec![0]));
    let id = rig.begin(
        &link,
        Kind::Write,
        &Options::default().with_counter(Some(1)),
    );
    assert!(rig.pulls(id, 0));
    rig.fail(&link, 0);
    assert!((0..rig.crossings.len()).all(|lane| !rig.pulls(id, lane)));
    rig.transfers.end(&link, Fence::Whole);
    let failed = Status::Concluded(Outcome::Failed);
    assert_eq!(rig.transfers.poll(id), Ok(failed));
}

#[test]
fn a_transfer_says_what_it_waits_for() {
    let one_lane = |retry| {
        let rig = Rig {
            transfers: transfers(retry),
            ..Rig::new(vec![Crossing::default()], false)
        };
        let link = Link::new(1, 1, &[0], None);
        (
            rig,
            Arc::new(link.with_crossings(&[Crossing::default()], vec![0])),
        )
    };
    let (rig, link) = one_lane(1);
    let id = rig.begin(&link, Kind::Write, &Options::default());
    let waits_for = |rig: &Rig| rig.transfers.waits_for(id);
    assert_eq!(waits_for(&rig), Some(WaitsFor::Room));
    assert!(rig.pulls(id, 0));
    assert_eq!(waits_for(&rig), Some(WaitsFor::Completion));
    rig.fail(&link, 0);
    assert_eq!(waits_for(&rig), Some(WaitsFor::Qp));
    link.open_lane(0);
    assert_eq!(waits_for(&rig), Some(WaitsFor::Room));
    // The slice ends by the new life, and the transfer waits for the fence of the old one.
    assert!(rig.pulls(id, 0));
    rig.transfers.done(0, 1);
    assert_eq!(waits_for(&rig), Some(WaitsFor::Reset));
    link.break_off();
    assert_eq!(waits_for(&rig), Some(WaitsFor::End));
    rig.transfers.end(&link, Fence::Whole);
    assert_eq!(waits_for(&rig), None);
    assert_eq!(rig.transfers.poll(id), Ok(Status::Concluded(Outcome::Done)));
    // A slice that is given up waits for the fence too.
    let (rig, link) = one_lane(0);
    let id = rig.begin(&link, Kind::Read, &Options::default());
    assert!(rig.pulls(id, 0));
    rig.fail(&link, 0);
    assert_eq!(rig.transfers.waits_for(id), Some(WaitsFor::Reset));
}
