//! A rank of a group that is late, dead or out of reach costs the others nothing but its own experts. No call of an undisturbed rank
//! lacks a token of another one, but the call in which something happens to a rank and the next one.
//!
//! The HCA repeats what it sends to such a rank for longer than most calls wait, and the group changes its view meanwhile (A11).
//! A test takes few cells of its grid. With `WV_TEST_FULL=1` it takes a sample that has every pair of values; `WV_TEST_SEED` is another
//! sample.

mod story;

use std::env;
use std::time::{Duration, Instant};

use test_support::grid;
use test_support::moe::small::SHAPE;
use warpverbs::membership::GroupConfig;
use warpverbs::moe::{Deadlines, Format, Returns, Scales};

use crate::fleet::{Fleet, Plan, Point};
use story::{Story, Watch, judge};

/// What nobody renews for that long is gone after 2.5 times as long.
const LEASE: Duration = Duration::from_secs(1);
/// Pairs that cannot connect yet try again after 32 times as long at most.
const ERROR: Duration = Duration::from_millis(100);
/// So long that no rank goes whose link is mended.
const PATIENT: Duration = Duration::from_secs(60);

/// What happens to the sick rank.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// It stops before this phase of a call, and sends nothing any more. No process sees its end, so its lease runs out.
    Dies(Point),
    /// So does another one, at once.
    TwoDie,
    /// So does another one, so many calls of the others later.
    TwoDieApart(u32),
    /// It makes no call for half a deadline, a whole one, two and three.
    IsLate,
    /// It is late by two deadlines while another one dies.
    IsLateAndAnotherDies,
    /// These packets of it are lost until its pairs are parted, or for a few calls.
    IsCut(&'static str, Lasts),
    /// Its HCA does nothing meanwhile.
    HcaStops(Lasts),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasts {
    /// For so few calls that most HCAs do not give up.
    Calls,
    /// Until a view parts it from all others.
    UntilParted,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    deed: Deed,
    deadline: Duration,
    ack_timeout: u8,
    fp8: bool,
    returns: Returns,
    ahead: usize,
    qps: Option<u32>,
    sick: u32,
}

impl Case {
    const fn new(deed: Deed, deadline_ms: u64, ack_timeout: u8) -> Self {
        Self {
            deed,
            deadline: Duration::from_millis(deadline_ms),
            ack_timeout,
            fp8: false,
            returns: Returns::Sums,
            ahead: 0,
            qps: None,
            sick: 3,
        }
    }

    const fn fp8(mut self) -> Self {
        self.fp8 = true;
        self
    }

    const fn rows(mut self) -> Self {
        self.returns = Returns::Rows;
        self
    }

    const fn ahead(mut self) -> Self {
        self.ahead = 1;
        self
    }

    const fn one_qp(mut self) -> Self {
        self.qps = Some(1);
        self
    }

    /// The rank whose turn comes first.
    const fn lowest(mut self) -> Self {
        self.sick = 0;
        self
    }

    /// All cells of a grid with these deeds.
    fn grid(deeds: &[Deed], seed: u64) -> Vec<Self> {
        let sizes = [deeds.len(), 3, 4, 2, 2, 2, 2, 2];
        let case = |point: &grid::Point| Self {
            deed: deeds[point[0]],
            deadline: Duration::from_millis([100, 500, 2000][point[1]]),
            ack_timeout: [14, 15, 16, 17][point[2]],
            fp8: point[3] == 1,
            returns: [Returns::Sums, Returns::Rows][point[4]],
            ahead: point[5],
            qps: [None, Some(1)][point[6]],
            sick: [3, 0][point[7]],
        };
        let points = grid::sample(&grid::all(&sizes, |_| true), seed);
        points.iter().map(case).collect()
    }

    fn plan(&self) -> Plan {
        let (ranks, dead) = match self.deed {
            Deed::TwoDie | Deed::TwoDieApart(_) => (5, 2),
            Deed::IsLateAndAnotherDies => (5, 1),
            Deed::IsCut(..) | Deed::HcaStops(_) => (4, 0),
            Deed::Dies(_) | Deed::IsLate => (4, 1),
        };
        let config = GroupConfig::new()
            .with_lease_ttl(LEASE)
            .with_error_bound(Some(ERROR))
            .with_stall_bound((dead == 0).then_some(PATIENT));
        let shape = SHAPE.with_returns(self.returns).with_failing_links(2);
        Plan {
            // Without packets a QP to an HCA that has stopped does not give up.
            packets: matches!(self.deed, Deed::IsCut(..) | Deed::HcaStops(_)),
            shape: if self.fp8 {
                shape.with_hidden(128).with_format(Format::Fp8(Scales::F32))
            } else {
                shape
            },
            change: Deadlines::new(self.deadline).change,
            ack_timeout: self.ack_timeout,
            qps: self.qps,
            ahead: self.ahead,
            ..Plan::new(ranks, self.deadline, config)
        }
    }
}

fn run(case: Case) {
    let began = Instant::now();
    let plan = case.plan();
    let fleet = Fleet::start(plan);
    fleet.until_whole(1, 3);
    let another = matches!(
        case.deed,
        Deed::TwoDie | Deed::TwoDieApart(_) | Deed::IsLateAndAnotherDies
    );
    let mut story = Story::new(case, fleet);
    let healthy = story.healthy(another);
    let watch = Watch::begin(case.deadline);
    story.play();
    judge(&story, &healthy, &watch.end(case.deadline));
    story.fleet.end();
    println!("{:.1?}", began.elapsed());
}

/// These cells; or, of the grid with these deeds, a sample.
fn runs(deeds: &[Deed], cells: &[Case]) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().unwrap());
    if env::var_os("WV_TEST_FULL").is_none() {
        cells.iter().copied().for_each(run);
        return;
    }
    let seed = number("WV_TEST_SEED").unwrap_or(5);
    let sample = Case::grid(deeds, seed);
    println!("{} cells, seed {seed}", sample.len());
    sample.into_iter().for_each(run);
}

const BOTH_WAYS: &str = "partition=*";
const INTO: &str = "partition-in=*";
const OUT_OF: &str = "partition-out=*";

#[test]
fn a_dead_rank_of_a_group_costs_the_others_nothing() {
    let points = [
        Point::Send,
        Point::Receive,
        Point::SendBack,
        Point::ReceiveBack,
    ];
    let cells = [
        Case::new(Deed::Dies(Point::Receive), 100, 16)
            .rows()
            .ahead(),
        Case::new(Deed::Dies(Point::SendBack), 500, 14)
            .fp8()
            .lowest(),
    ];
    runs(&points.map(Deed::Dies), &cells);
}

#[test]
fn two_ranks_of_a_group_that_die_at_once_cost_the_others_nothing() {
    runs(
        &[Deed::TwoDie],
        &[Case::new(Deed::TwoDie, 500, 15).one_qp()],
    );
}

#[test]
fn ranks_of_a_group_that_die_one_by_one_cost_the_others_nothing() {
    let cells = [
        Case::new(Deed::TwoDieApart(50), 100, 17)
            .fp8()
            .rows()
            .lowest(),
        // Kernels wait for both in one call, and a proposal that keeps the second one would hold the next calls.
        Case::new(Deed::TwoDieApart(5), 2000, 16),
    ];
    runs(&[5, 20, 50, 100, 200].map(Deed::TwoDieApart), &cells);
}

#[test]
fn a_late_rank_of_a_group_costs_the_others_nothing() {
    let cells = [
        Case::new(Deed::IsLate, 100, 14).rows(),
        Case::new(Deed::IsLate, 500, 15).fp8().ahead().lowest(),
    ];
    runs(&[Deed::IsLate], &cells);
}

#[test]
fn a_late_rank_beside_a_dead_one_costs_the_others_nothing() {
    let cells = [Case::new(Deed::IsLateAndAnotherDies, 500, 16).one_qp()];
    runs(&[Deed::IsLateAndAnotherDies], &cells);
}

#[test]
fn a_rank_of_a_group_that_is_cut_off_costs_the_others_nothing() {
    let deed = |lasts| Deed::IsCut(BOTH_WAYS, lasts);
    let cells = [
        Case::new(deed(Lasts::UntilParted), 500, 14).rows().one_qp(),
        Case::new(deed(Lasts::Calls), 100, 17).fp8(),
    ];
    runs(&[Lasts::UntilParted, Lasts::Calls].map(deed), &cells);
}

#[test]
fn a_link_of_a_group_that_carries_one_way_costs_the_others_nothing() {
    let deeds = [INTO, OUT_OF]
        .map(|way| [Lasts::UntilParted, Lasts::Calls].map(|lasts| Deed::IsCut(way, lasts)));
    let cells = [
        Case::new(Deed::IsCut(INTO, Lasts::UntilParted), 100, 15).ahead(),
        Case::new(Deed::IsCut(OUT_OF, Lasts::Calls), 500, 16)
            .fp8()
            .lowest(),
    ];
    runs(deeds.as_flattened(), &cells);
}

#[test]
fn a_rank_of_a_group_whose_hca_stops_costs_the_others_nothing() {
    let cells = [
        Case::new(Deed::HcaStops(Lasts::Calls), 2000, 15).lowest(),
        Case::new(Deed::HcaStops(Lasts::Calls), 100, 14)
            .fp8()
            .rows(),
    ];
    runs(
        &[Lasts::UntilParted, Lasts::Calls].map(Deed::HcaStops),
        &cells,
    );
}
