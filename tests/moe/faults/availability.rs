//! A rank that is late, dead or out of reach costs only itself: in no call do the others lose a token that none of its experts has.
//!
//! The HCA is more patient than calls are: it repeats what it sends to the sick rank over many calls. So its work is in flight
//! while the others go on (A11).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use warpverbs::abi::{MoeCause, Outcome, Status};
use warpverbs::moe::{Batch, CombineOptions, Moe, MoeConfig, Returns, RowLayout, Workspace};
use warpverbs::team::{CqKind, SignalOrder, TeamConfig};

use softhca::Hca;
use test_support::limits::HANG;
use test_support::moe::{batch, expert};

use crate::group::{Group, SHAPE, TRAFFIC, check_combined};

const RANKS: u32 = 4;
const SICK: u32 = 3;
const HEALTHY: [u32; 3] = [0, 1, 2];
const ALL: [u32; 4] = [0, 1, 2, 3];
/// Calls of which none may lose a token of the healthy.
const CALLS: u32 = 60;
const SEED: u64 = 37;

/// What the layer is, and how patient everything is.
struct Case {
    config: MoeConfig,
    modes: CombineOptions,
    deadline: Duration,
    /// The HCA repeats for 8 * 4.096 us * 2^`ack_timeout`.
    ack_timeout: u8,
    order: Option<SignalOrder>,
    cq: CqKind,
    qps: Option<u32>,
    /// Whether the HCAs send packets, which a fault may keep from one of them.
    packets: bool,
}

impl Case {
    fn new(config: MoeConfig, deadline_ms: u64, ack_timeout: u8) -> Self {
        Self {
            config,
            modes: CombineOptions::default(),
            deadline: Duration::from_millis(deadline_ms),
            ack_timeout,
            order: None,
            cq: CqKind::default(),
            qps: None,
            packets: false,
        }
    }

    fn zero_copy(mut self) -> Self {
        self.modes = CombineOptions::default().with_zero_copy(true);
        self
    }

    /// All ranks, after two whole calls.
    fn group(&self) -> Group {
        let tune = |team: &mut TeamConfig| {
            team.deadline = Duration::from_secs(20);
            team.path.ack_timeout = Some(self.ack_timeout);
            team.modes.moe_order = self.order;
            team.modes.cq = self.cq;
            if let Some(qps) = self.qps {
                team.qps_per_peer = qps;
            }
        };
        let faults = self.packets.then(|| "drop=0%".parse().unwrap());
        let mut group = Group::faulty(RANKS, self.config, tune, faults);
        for work in &mut group.works {
            work.set_combine_options(self.modes.clone());
        }
        group.whole_call(&ALL, SEED, 1);
        group.whole_call(&ALL, SEED, 2);
        group.settle();
        group.set_deadline(self.deadline);
        group
    }
}

/// A place where threads meet. A thread that waits for one that has panicked panics, too.
struct Meeting {
    threads: u32,
    met: Mutex<u32>,
    changed: Condvar,
}

impl Meeting {
    fn new(threads: u32) -> Self {
        Self {
            threads,
            met: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    fn wait(&self) {
        let mut met = self.met.lock().unwrap();
        *met += 1;
        let until = met.next_multiple_of(self.threads);
        self.changed.notify_all();
        let (_met, late) = self
            .changed
            .wait_timeout_while(met, HANG, |met| *met < until)
            .unwrap();
        assert!(!late.timed_out(), "another rank has not come");
    }
}

/// One call at `rank`, up to its sums, which are those of the ranks that have contributed.
fn one_call(group: &[Arc<Moe>], rank: u32, call: u32, work: &mut Workspace) -> Vec<bool> {
    let own: Batch = batch(&SHAPE, TRAFFIC, SEED, call, rank);
    work.send(&own).unwrap();
    work.receive().unwrap();
    work.experts(expert).unwrap();
    work.send_back().unwrap();
    let combined = work.receive_back().unwrap();
    let there = work.contributed().unwrap();
    let seen: Vec<u32> = (0..RANKS).filter(|rank| there[*rank as usize]).collect();
    let what = format!(
        "call {call} of rank {rank}: {}",
        work.call().report().unwrap()
    );
    let moe = &group[rank as usize];
    check_combined(moe, work.placement(), &own, &combined, &seen, &what);
    there
}

/// Every rank of the healthy has added what all healthy ones sent back.
fn keep_healthy(rank: u32, call: u32, work: &Workspace, there: &[bool]) {
    let lost: Vec<u32> = HEALTHY
        .into_iter()
        .filter(|peer| !there[*peer as usize])
        .collect();
    let report = work.call().report().unwrap();
    assert_eq!(report.unbuffered, 0, "call {call} of rank {rank}: {report}");
    assert!(
        lost.is_empty(),
        "rank {rank} has lost the experts of ranks {lost:?} in call {call}: {report}"
    );
}

/// The sick rank is gone for good, and its port with it. Calls go on until every HCA has given up on it, and for CALLS at least.
fn dies(case: &Case) {
    let mut group = case.group();
    group.unplug(SICK);
    let (moes, barrier, given_up) = (group.moes.clone(), Meeting::new(3), AtomicU32::new(0));
    let longest = group.each(&HEALTHY, |rank, work| {
        let mut longest = Duration::ZERO;
        for call in 3.. {
            let began = Instant::now();
            let there = one_call(&moes, rank, call, work);
            longest = longest.max(began.elapsed());
            keep_healthy(rank, call, work, &there);
            assert!(!there[SICK as usize], "call {call} of rank {rank}");
            let cause = work.call().report().unwrap().peers[SICK as usize].cause;
            if matches!(cause, MoeCause::CQE_ERROR | MoeCause::FLUSHED) {
                given_up.fetch_or(1 << rank, Ordering::Relaxed);
            }
            barrier.wait();
            let ends = call >= 3 + CALLS && given_up.load(Ordering::Relaxed) == 0b111;
            barrier.wait();
            if ends {
                break;
            }
        }
        longest
    });
    println!("deadline {:?}, longest call {longest:?}", case.deadline);
    drop(moes);
    group.end();
}

/// The sick rank rests while the others make `passed` calls, and comes back: it finds that it was passed, and is whole again.
/// `begins` and `ends` say what is done to its HCA before and after.
fn comes_back(case: &Case, passed: u32, begins: fn(&Hca), ends: fn(&Hca)) {
    let mut group = case.group();
    let hca = group.hca(SICK);
    begins(&hca);
    let moes = group.moes.clone();
    // The last call of all, once the sick rank knows it.
    let (last, made) = (AtomicU32::new(u32::MAX), Meeting::new(2));
    let outcome = group.each(&ALL, |rank, work| {
        let (mut call, mut whole_from) = (3, 3);
        if rank == SICK {
            made.wait();
            ends(&hca);
        }
        while call <= last.load(Ordering::SeqCst) {
            let there = one_call(&moes, rank, call, work);
            if rank != SICK {
                keep_healthy(rank, call, work, &there);
            }
            if there.contains(&false) {
                whole_from = call + 1;
            }
            if rank == 0 && call == 2 + passed {
                made.wait();
            }
            if rank == SICK && call == whole_from && last.load(Ordering::SeqCst) == u32::MAX {
                last.store(call + 6, Ordering::SeqCst);
            }
            call += 1;
        }
        (whole_from, call)
    });
    println!(
        "deadline {:?}: whole from call, calls: {outcome:?}",
        case.deadline
    );
    let ended = outcome[SICK as usize].1;
    for (rank, (whole_from, calls)) in outcome.into_iter().enumerate() {
        assert_eq!(calls, ended, "rank {rank}");
        assert!(
            whole_from + 3 <= ended,
            "rank {rank} is whole from call {whole_from} on, of {ended}"
        );
    }
    drop(moes);
    group.end();
}

fn rows() -> MoeConfig {
    SHAPE.with_returns(Returns::Rows)
}
fn by_rank() -> MoeConfig {
    SHAPE.with_layout(RowLayout::RankMajor)
}

#[test]
fn a_dead_rank_costs_the_others_nothing_with_sums() {
    dies(&Case::new(SHAPE, 100, 15));
}

#[test]
fn a_dead_rank_costs_the_others_nothing_with_rows_of_all_experts() {
    dies(&Case::new(rows(), 300, 16));
}

#[test]
fn a_dead_rank_costs_the_others_nothing_by_rank() {
    dies(&Case::new(by_rank(), 600, 15));
}

#[test]
fn a_dead_rank_costs_the_others_nothing_with_zero_copy() {
    dies(&Case::new(rows(), 200, 15).zero_copy());
    dies(&Case::new(by_rank(), 200, 15).zero_copy());
}

#[test]
fn a_dead_rank_costs_the_others_nothing_in_every_order_of_signals() {
    for order in [SignalOrder::Swap, SignalOrder::Flush] {
        let mut case = Case::new(SHAPE, 400, 15);
        case.order = Some(order);
        dies(&case);
    }
}

#[test]
fn a_dead_rank_costs_the_others_nothing_with_a_wide_cq_and_one_qp() {
    let mut case = Case::new(SHAPE, 200, 15);
    (case.cq, case.qps) = (CqKind::Wide, Some(1));
    dies(&case);
}

#[test]
fn a_late_rank_costs_the_others_nothing() {
    comes_back(&Case::new(SHAPE, 300, 14), 1, |_| (), |_| ());
    comes_back(&Case::new(rows(), 200, 16), 20, |_| (), |_| ());
}

#[test]
fn a_rank_whose_link_was_cut_costs_the_others_nothing() {
    let down = |hca: &Hca| hca.set_port(false);
    comes_back(&Case::new(SHAPE, 300, 18), 12, down, |hca| {
        hca.set_port(true)
    });
    comes_back(&Case::new(by_rank(), 100, 18).zero_copy(), 5, down, |hca| {
        hca.set_port(true)
    });
}

#[test]
fn a_rank_whose_hca_stood_still_costs_the_others_nothing() {
    let stop = |hca: &Hca| hca.pause(Duration::from_secs(3600));
    comes_back(&Case::new(rows(), 200, 18), 12, stop, |hca| {
        hca.pause(Duration::ZERO)
    });
}

/// The words of the sick rank arrive, and nothing reaches it. It is waited for, since it speaks, but what is on its way to it stops
/// no other rank.
#[test]
fn a_link_that_carries_one_way_costs_the_others_nothing() {
    let mut case = Case::new(SHAPE, 100, 16);
    case.packets = true;
    let mut group = case.group();
    let hca = group.hca(SICK);
    hca.set_faults(&"partition-in=*".parse().unwrap());
    let (moes, over) = (group.moes.clone(), AtomicU32::new(0));
    group.each(&ALL, |rank, work| {
        for call in 3.. {
            if rank == SICK && over.load(Ordering::SeqCst) == 3 {
                break;
            }
            if rank != SICK && call == 3 + CALLS / 2 {
                over.fetch_add(1, Ordering::SeqCst);
                break;
            }
            let there = one_call(&moes, rank, call, work);
            if rank != SICK {
                keep_healthy(rank, call, work, &there);
            }
        }
    });
    hca.set_faults(&"drop=0%".parse().unwrap());
    drop((moes, hca));
    group.settle();
    group.end();
}

/// A link fails within the patience of the HCA, in a layer made for none: no buffer is free. The calls of the rank send nothing,
/// and say so.
#[test]
fn a_layer_without_spare_buffers_counts_the_calls_that_found_none() {
    let case = Case::new(SHAPE.with_failing_links(0), 200, 20);
    let mut group = case.group();
    group.unplug(SICK);
    let counts = group.each(&HEALTHY, |rank, work| {
        for call in 3..=8 {
            let own = batch(&SHAPE, TRAFFIC, SEED, call, rank);
            work.send(&own).unwrap();
            work.receive().unwrap();
            work.experts(expert).unwrap();
            work.send_back().unwrap();
            work.receive_back().unwrap();
        }
        let report = work.call().report().unwrap();
        assert!(report.no_buffer, "{report}");
        assert_eq!(report.phases[0], Status::TIMEOUT, "{report}");
        assert!(report.to_string().contains("failing_links"), "{report}");
        let sent = report.peers.iter().map(|peer| peer.dispatch_sent);
        assert!(!sent.clone().any(|sent| sent == Outcome::SENT), "{report}");
        report.unbuffered
    });
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    group.plug(SICK);
    group.settle();
    group.end();
}
