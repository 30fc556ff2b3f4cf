//! Two living generations whose QPs have failed come together again: in any order, after a failure at any step, in every mode.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use softhca::FailCommand;
use test_support::fleet::{Hcas, Setup};
use warpverbs::abi::{PEER_DIRECT, RAIL_SHIFT, Status};
use warpverbs::team::{CqKind, Doorbell, Queues, RankSet, TeamError};
use warpverbs::verbs::QpState;

use crate::fleet::DrivenFleet;
use crate::rank::{PATIENCE, Put, WORDS, seed, setup, until};

/// Rank 0 and rank 1, both of generation 1.
pub(crate) struct Pair<'a> {
    pub(crate) fleet: DrivenFleet<'a>,
    /// Of each end the attempts that have failed at the HCA.
    pub(crate) unreached: RefCell<[Vec<u64>; 2]>,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(setup: &'a Setup, hcas: &'a Hcas) -> Self {
        Self {
            fleet: DrivenFleet::found(setup, hcas, RankSet::first(2)),
            unreached: RefCell::default(),
        }
    }

    pub(crate) fn call(&self, from: u32) -> Result<bool, TeamError> {
        self.fleet.rank(from).team.reunite_peer(1 - from, 1)
    }

    pub(crate) fn fail(&self, from: u32) {
        self.fleet.rank(from).team.fail_peer(1 - from).unwrap();
    }

    /// Calls at one end; an attempt that the HCA has given up is kept and means no.
    pub(crate) fn try_call(&self, from: u32) -> bool {
        match self.call(from) {
            Ok(done) => {
                self.check_counters();
                done
            }
            Err(TeamError::Unreached { peer, attempt, .. }) => {
                assert_eq!(peer, 1 - from);
                self.unreached.borrow_mut()[from as usize].push(attempt);
                false
            }
            Err(error) => panic!("rank {from}: {error}"),
        }
    }

    /// Calls at both ends, `first` first, until both are together.
    pub(crate) fn meet(&self, first: u32) {
        let start = Instant::now();
        while !(self.try_call(first) & self.try_call(1 - first)) {
            assert!(start.elapsed() < PATIENCE, "they do not come together");
            std::thread::sleep(Duration::from_micros(200));
        }
        for from in [0, 1] {
            let team = &self.fleet.rank(from).team;
            assert!(team.is_connected(1 - from).unwrap() && team.is_closed(1 - from).unwrap());
        }
    }

    /// Indices jump by 65,536 from one life to the next; what has been posted does not.
    pub(crate) fn check_counters(&self) {
        for from in [0, 1] {
            let counters = self.fleet.rank(from).team.counters(1 - from, 0).unwrap();
            assert!(
                counters.completed <= counters.posted && counters.posted < 1 << 16,
                "rank {from}: {counters:?}"
            );
        }
    }

    pub(crate) fn open(&self) {
        for from in [0, 1] {
            self.fleet.rank(from).team.open_peer(1 - from).unwrap();
        }
    }

    pub(crate) fn meet_and_talk(&self, first: u32) {
        self.meet(first);
        self.open();
        self.fleet.talk(0, 1);
    }

    /// Returns what `from` has published to the other end.
    pub(crate) fn told(&self, from: u32) -> Option<Value> {
        let text = self.fleet.store.try_get(&key(from)).unwrap()?;
        Some(serde_json::from_slice(&text).unwrap())
    }

    pub(crate) fn attempt(&self, from: u32) -> u64 {
        self.told(from)
            .map_or(0, |told| told["attempt"].as_u64().unwrap())
    }

    pub(crate) fn tell(&self, from: u32, record: &Value) {
        let text = serde_json::to_vec(record).unwrap();
        self.fleet.store.put(&key(from), &text).unwrap();
    }
}

fn key(from: u32) -> String {
    format!("reunite/{from}.1/{}.1", 1 - from)
}

/// Runs `test` with a pair of this setup, and looks for findings and objects that are left.
pub(crate) fn with(setup: &Setup, test: impl FnOnce(&Pair<'_>)) {
    let hcas = Hcas::new(setup);
    let pair = Pair::new(setup, &hcas);
    test(&pair);
    drop(pair);
    hcas.check();
}

/// QPs that give up after some tens of milliseconds.
pub(crate) fn impatient() -> Setup {
    let mut setup = setup(2);
    setup.team.path.ack_timeout = Some(12);
    setup.team.path.retry_count = 1;
    setup
}

#[test]
fn both_ends_come_together_on_the_same_qps_and_write_both_ways() {
    let mut setup = setup(2);
    // What the kernel that waits for a ticket is made for.
    setup.team.modes.doorbell = Some(Doorbell::Record);
    with(&setup, |pair| {
        pair.fleet.talk(0, 1);
        let captured = [0, 1].map(|rank| pair.fleet.captured(rank, 1 - rank));
        let entries = [0, 1].map(|rank| pair.fleet.entry(rank, 1 - rank, 0));
        let heap = pair.fleet.rank(0).team.control_stats();
        for life in 1..=4u32 {
            let old = [0, 1].map(|rank| pair.fleet.rank(rank).qp(1 - rank, 0).resv);
            pair.fail(0);
            pair.fail(1);
            let before = [0, 1].map(|rank| pair.fleet.rank(rank).team.counters(1 - rank, 0));
            pair.meet(life % 2);
            for (rank, before) in [0, 1].into_iter().zip(before) {
                let (before, peer) = (before.unwrap(), 1 - rank);
                let team = &pair.fleet.rank(rank).team;
                let context = pair.fleet.rank(rank).qp(peer, 0);
                let base = u64::from(life) << 16;
                assert_eq!((context.life, context.base), (life, base));
                assert_eq!(
                    [context.claim, context.resv, context.cons],
                    [base + 1; 3],
                    "the probe alone"
                );
                let now = team.counters(peer, 0).unwrap();
                assert_eq!(now.posted, before.posted + 1);
                assert_eq!(now.completed, before.completed + 1);
                assert_eq!(now.doorbells, before.doorbells + 1);
                let entry = pair.fleet.entry(rank, peer, 0);
                assert_eq!(entry.rail_life & ((1 << RAIL_SHIFT) - 1), life);
                let first = entries[rank as usize];
                assert_eq!((entry.base, entry.rkey_be), (first.base, first.rkey_be));
                let wait = |ticket| pair.fleet.rank(rank).wait_for(peer, 0, ticket);
                assert_eq!(wait(old[rank as usize]), Status::STALE_LIFE);
                assert_eq!(wait(base), Status::STALE_LIFE);
            }
            pair.open();
            pair.fleet.talk(0, 1);
            assert_eq!([pair.attempt(0), pair.attempt(1)], [u64::from(life); 2]);
        }
        let now = [0, 1].map(|rank| pair.fleet.captured(rank, 1 - rank));
        assert_eq!(now, captured);
        assert_eq!(pair.fleet.rank(0).team.control_stats(), heap);
    });
}

#[test]
fn a_pair_that_is_well_is_left_alone() {
    with(&setup(2), |pair| {
        let commands = pair.fleet.rank(0).team.commands();
        assert!(pair.call(0).unwrap());
        assert_eq!(pair.fleet.rank(0).team.commands(), commands);
        assert_eq!(pair.told(0), None);
        // Open and not failed: what the other end does is for kernels to find.
        pair.fail(1);
        assert!(!pair.call(1).unwrap());
        assert!(pair.call(0).unwrap());
        assert_eq!(pair.told(0), None);
        pair.fail(0);
        pair.meet_and_talk(0);
    });
}

#[test]
fn an_end_that_comes_late_finds_the_other_where_it_was() {
    with(&setup(2), |pair| {
        for first in [0, 1] {
            pair.fail(0);
            pair.fail(1);
            let attempt = pair.attempt(first) + 1;
            let commands = || pair.fleet.rank(first).team.commands();
            assert!(!pair.call(first).unwrap());
            let after = commands();
            for _ in 0..5 {
                assert!(!pair.call(first).unwrap());
            }
            assert_eq!(commands(), after, "it waits and does nothing else");
            let told = pair.told(first).unwrap();
            assert_eq!(
                (&told["attempt"], &told["ready"]),
                (&json!(attempt), &json!(false))
            );
            // The other end has read it, and takes writes; it sends none before this end does.
            for _ in 0..3 {
                assert!(!pair.call(1 - first).unwrap());
                let report = pair.fleet.rank(1 - first).team.qp_status(first, 1);
                assert_eq!(report.unwrap().hca.state, QpState::RTR);
            }
            assert_eq!(pair.told(1 - first).unwrap()["ready"], json!(true));
            let error = pair.fleet.rank(first).team.open_peer(1 - first);
            assert!(matches!(error, Err(TeamError::NotConnected { .. })));
            let error = pair
                .fleet
                .rank(first)
                .team
                .connect_peer(1 - first, 1, Duration::ZERO);
            let least = match error {
                Err(TeamError::Generation { least, .. }) => least,
                other => panic!("{other:?}"),
            };
            assert_eq!(least, 2);
            pair.meet_and_talk(1 - first);
            assert_eq!(pair.attempt(1 - first), attempt);
        }
    });
}

#[test]
fn either_end_may_fail_again_behind_any_step_of_either() {
    with(&setup(2), |pair| {
        for first in [0, 1] {
            for failing in [0, 1] {
                for steps in 0..8 {
                    pair.fail(0);
                    pair.fail(1);
                    for step in 0..steps {
                        pair.try_call((first + step) % 2);
                    }
                    pair.fail(failing);
                    let error = pair.fleet.rank(failing).team.open_peer(1 - failing);
                    assert!(matches!(error, Err(TeamError::NotConnected { .. })));
                    pair.meet_and_talk(first);
                }
            }
        }
    });
}

#[test]
fn calls_and_failures_in_any_order_end_with_both_together() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    println!("seed {seed}");
    with(&impatient(), |pair| {
        for _ in 0..40 {
            for _ in 0..random.u32(0..30) {
                let end = u32::from(random.bool());
                match random.u32(0..5) {
                    0 => pair.fail(end),
                    _ => drop(pair.try_call(end)),
                }
            }
            // At least one end has a reason.
            pair.fail(u32::from(random.bool()));
            for end in [0, 1] {
                if !pair.fleet.rank(end).team.is_closed(1 - end).unwrap() {
                    pair.fail(end);
                }
            }
            pair.meet_and_talk(0);
        }
    });
}

#[test]
fn an_end_that_begins_anew_behind_the_proof_of_the_other_is_followed() {
    with(&setup(2), |pair| {
        for anew in [0, 1] {
            pair.fail(0);
            pair.fail(1);
            pair.meet(0);
            let attempt = pair.attempt(0);
            pair.fail(anew);
            // Nothing has been published yet.
            assert!(pair.call(1 - anew).unwrap());
            assert!(!pair.call(anew).unwrap());
            assert!(!pair.call(1 - anew).unwrap());
            let error = pair.fleet.rank(1 - anew).team.open_peer(anew);
            assert!(matches!(error, Err(TeamError::NotConnected { .. })));
            pair.meet_and_talk(anew);
            assert_eq!([0, 1].map(|rank| pair.attempt(rank)), [attempt + 1; 2]);
        }
    });
}

#[test]
fn a_path_that_carries_nothing_is_not_proven_until_it_carries_again() {
    let setup = impatient();
    let hcas = Hcas::new(&setup);
    let pair = Pair::new(&setup, &hcas);
    for down in [0, 1] {
        pair.fail(0);
        pair.fail(1);
        let port = &hcas.of(down)[0];
        port.set_port(false);
        pair.unreached.take();
        // One end's error takes the other to the next attempt before its own has come.
        until("three attempts come to nothing", || {
            assert!(
                !(pair.try_call(0) | pair.try_call(1)),
                "port {down} is down"
            );
            pair.unreached.borrow().iter().map(Vec::len).sum::<usize>() >= 3
        });
        for attempts in pair.unreached.borrow().iter() {
            assert!(
                attempts.is_sorted_by(|one, next| one < next),
                "{attempts:?}"
            );
        }
        port.set_port(true);
        pair.meet_and_talk(0);
    }
    drop(pair);
    hcas.check();
}

#[test]
fn a_path_that_carries_in_one_direction_only_is_not_proven_at_either_end() {
    for lost in ["drop-in=100%", "drop-out=100%"] {
        let mut setup = impatient();
        setup.hca.loopback = false;
        let hcas = Hcas::new(&setup);
        let pair = Pair::new(&setup, &hcas);
        pair.fleet.talk(0, 1);
        pair.fail(0);
        pair.fail(1);
        hcas.of(0)[0].set_faults(&lost.parse().unwrap());
        until("three attempts come to nothing", || {
            assert!(!(pair.try_call(0) | pair.try_call(1)), "{lost}");
            pair.unreached.borrow().iter().map(Vec::len).sum::<usize>() >= 3
        });
        hcas.of(0)[0].set_faults(&softhca::device::FaultSpec::default());
        pair.meet_and_talk(1);
        drop(pair);
        for hca in hcas.all() {
            assert_eq!(hca.live_objects().total(), 0);
        }
    }
}

#[test]
fn a_probe_that_gets_no_answer_and_no_error_proves_nothing() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let pair = Pair::new(&setup, &hcas);
    pair.fail(0);
    pair.fail(1);
    // Rank 0 publishes its QPs, rank 1 that it is ready, and rank 0 posts.
    assert!(!pair.call(0).unwrap() && !pair.call(1).unwrap());
    hcas.of(1)[0].pause(2 * PATIENCE);
    let posted = || pair.fleet.rank(0).team.counters(1, 0).unwrap().posted;
    let before = posted();
    for _ in 0..50 {
        assert!(!pair.call(0).unwrap());
    }
    assert_eq!(posted(), before + 1, "one probe");
    hcas.of(1)[0].pause(Duration::ZERO);
    pair.meet_and_talk(0);
    drop(pair);
    hcas.check();
}

/// Returns what is the same in the memory of a QP after one post, whichever end has made it.
fn behind_one_post(pair: &Pair<'_>, qp: u32) -> Vec<u64> {
    let rank = pair.fleet.rank(0);
    let context = rank.qp(1, qp);
    let flags: Vec<u64> = rank.read(context.flags.addr(), 4);
    let life = context.base << 1;
    let flags = flags.into_iter().map(|flag| match flag {
        u64::MAX => flag,
        flag => flag - life,
    });
    let indices = [
        context.claim,
        context.resv,
        context.cons,
        context.doorbell_index,
    ];
    let indices = indices.map(|index| index - context.base);
    let others = [
        context.recv_consumed - context.recv_base,
        context.recv_posted,
        context.recv_owed,
        u64::from(context.sq_dbrec[0]) << 32 | u64::from(context.sq_dbrec[1]),
    ];
    indices.into_iter().chain(others).chain(flags).collect()
}

#[test]
fn kernels_go_on_behind_the_probe_as_behind_their_own_post_in_every_mode() {
    let doorbells = [Doorbell::Record, Doorbell::NoRecord, Doorbell::Mailbox];
    for doorbell in doorbells {
        for queues in [Queues::Device, Queues::Host] {
            for cq in [CqKind::Collapsed, CqKind::Wide] {
                for log_recv_depth in [None, Some(5)] {
                    let mut setup = setup(2);
                    setup.team = setup
                        .team
                        .with_doorbell(Some(doorbell))
                        .with_queues(Some(queues))
                        .with_cq(cq);
                    setup.team.modes.log_recv_depth = log_recv_depth;
                    with(&setup, everything_works);
                }
            }
        }
    }
}

fn everything_works(pair: &Pair<'_>) {
    // What a kernel leaves behind one post in a new life.
    std::thread::scope(|scope| {
        for rank in [0, 1] {
            let team = &pair.fleet.rank(rank).team;
            scope.spawn(move || assert_eq!(team.recover(1 - rank).unwrap(), 1));
        }
    });
    let taken = pair.fleet.rank(0).qp(1, 1).cq_consumed;
    let put = Put {
        qp: 1,
        ..Put::new(1, 1)
    };
    let seen = pair.fleet.rank(0).put(&put).finish()[0];
    assert_eq!((seen.status, seen.done), (Status::OK, 1));
    let of_kernel = behind_one_post(pair, 1);
    let taken_by_kernel = pair.fleet.rank(0).qp(1, 1).cq_consumed - taken;
    for round in 0..3 {
        pair.fail(0);
        pair.fail(1);
        let taken = pair.fleet.rank(0).qp(1, 1).cq_consumed;
        pair.meet(round % 2);
        assert_eq!(behind_one_post(pair, 1), of_kernel);
        let now = pair.fleet.rank(0).qp(1, 1).cq_consumed;
        assert!(now - taken >= taken_by_kernel, "{taken} {now}");
        pair.open();
        pair.fleet.talk(0, 1);
        // More than a ring, from many threads.
        for (rank, qp) in [(0, 0), (1, 1)] {
            let put = Put {
                qp,
                dst_word: WORDS / 2 + 2048,
                threads: 64,
                kernel: "wv_test_guard_warp",
                ..Put::new(1 - rank, 300)
            };
            for seen in pair.fleet.rank(rank).put(&put).finish() {
                assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 300, 0));
            }
            let wrong = pair
                .fleet
                .rank(1 - rank)
                .wrong_words(rank, WORDS / 2 + 2048, 600);
            assert_eq!(wrong, Vec::<u32>::new());
        }
        pair.check_counters();
    }
}

#[test]
fn several_rails_and_many_qps_come_together() {
    for (rails, qps) in [(2, 4), (1, 8)] {
        let mut setup = setup(2);
        setup.rails = rails;
        setup.team.qps_per_peer = qps;
        with(&setup, |pair| {
            for round in 0..2 {
                pair.fail(0);
                pair.fail(1);
                pair.meet_and_talk(round);
            }
        });
    }
}

#[test]
fn attempts_are_counted_beyond_32_bits_and_end_with_an_error() {
    with(&setup(2), |pair| {
        pair.fail(0);
        pair.fail(1);
        assert!(!pair.call(1).unwrap());
        // What rank 1 would have published after so many attempts.
        let mut record = pair.told(1).unwrap();
        for before in [u64::from(u32::MAX) - 1, u64::MAX - 3] {
            record["attempt"] = json!(before);
            pair.tell(1, &record);
            pair.fail(0);
            assert!(!pair.call(0).unwrap());
            assert_eq!(pair.attempt(0), before);
            pair.fail(1);
            pair.fail(0);
            pair.meet_and_talk(0);
            assert_eq!([0, 1].map(|rank| pair.attempt(rank)), [before + 1; 2]);
            pair.fail(0);
            pair.fail(1);
            if before == u64::MAX - 3 {
                break;
            }
            pair.meet_and_talk(1);
            assert_eq!([0, 1].map(|rank| pair.attempt(rank)), [before + 2; 2]);
            pair.fail(0);
            pair.fail(1);
        }
        // The last one, and nothing after it.
        pair.meet_and_talk(0);
        assert_eq!(pair.attempt(0), u64::MAX - 1);
        for rank in [0, 1] {
            pair.fail(rank);
            let error = pair.call(rank).unwrap_err();
            assert!(matches!(error, TeamError::Limit { .. }), "{error}");
        }
    });
}

#[test]
fn a_record_that_cannot_be_is_refused_by_name_and_costs_nothing() {
    with(&setup(2), |pair| {
        pair.fail(0);
        pair.fail(1);
        assert!(!pair.call(1).unwrap());
        let good = pair.told(1).unwrap();
        let change = |change: &dyn Fn(&mut Value)| {
            let mut record = good.clone();
            change(&mut record);
            record
        };
        let bad = [
            (
                change(&|r| drop(r["qps"].as_array_mut().unwrap().pop())),
                "QPs",
            ),
            (change(&|r| r["qps"] = json!([])), "QPs"),
            (change(&|r| r["qps"][1]["qpn"] = json!(7)), "QPs"),
            (
                change(&|r| r["qps"].as_array_mut().unwrap().swap(0, 1)),
                "QPs",
            ),
            (
                change(&|r| r["qps"][0]["psn"] = json!(1 << 24)),
                "PSN 0x1000000",
            ),
            (
                change(&|r| r["qps"][1]["far"] = json!(u32::MAX)),
                "PSN 0xffffffff",
            ),
            (
                change(&|r| r["qps"][0]["psn"] = json!(1u64 << 32)),
                "invalid value",
            ),
            (change(&|r| r["attempt"] = json!(0)), "attempt 0"),
            (
                change(&|r| r["attempt"] = json!(u64::MAX)),
                "attempt 18446744073709551615",
            ),
            (change(&|r| r["attempt"] = json!(-1)), "invalid value"),
            (change(&|r| r["ready"] = json!("yes")), "invalid type"),
            (change(&|r| r["version"] = json!(1)), "version 1"),
            (
                change(&|r| r["without"] = json!(1)),
                "leaves out rails [0]; it may leave out some of [0]",
            ),
            (change(&|r| r["without"] = json!(2)), "rails [1]"),
            (change(&|r| r["without"] = json!(u32::MAX)), "rails [0, 1"),
            (change(&|r| r["without"] = json!([0])), "invalid type"),
            (json!([1, 2]), "trailing"),
        ];
        let commands = pair.fleet.rank(0).team.commands();
        for (record, words) in bad {
            pair.tell(1, &record);
            let error = pair.call(0).unwrap_err();
            let text = error.to_string();
            let TeamError::Record { rank, topic, .. } = error else {
                panic!("{text}");
            };
            assert_eq!((rank, topic), (1, key(1)));
            assert!(text.contains(words), "{text}");
        }
        pair.fleet.store.put(&key(1), b"{").unwrap();
        assert!(matches!(pair.call(0), Err(TeamError::Record { .. })));
        assert_eq!(pair.fleet.rank(0).team.commands(), commands);
        pair.tell(1, &good);
        pair.meet_and_talk(0);
    });
}

#[test]
fn only_the_generation_of_the_qps_unites_until_a_later_one_takes_over() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let mut pair = Pair::new(&setup, &hcas);
    let captured = pair.fleet.captured(0, 1);
    let mut generation = 1;
    let reunite =
        |pair: &Pair<'_>, from: u32, of: u32| pair.fleet.rank(from).team.reunite_peer(1 - from, of);
    for steps in 0..8 {
        pair.fleet.rank(0).team.fail_peer(1).unwrap();
        pair.fleet.rank(1).team.fail_peer(0).unwrap();
        for step in 0..steps {
            let _ = match step % 2 {
                0 => reunite(&pair, 0, generation).unwrap(),
                _ => reunite(&pair, 1, 1).unwrap(),
            };
        }
        pair.fleet.kill(1);
        pair.fleet.rank(0).team.fail_peer(1).unwrap();
        generation += 1;
        pair.fleet.come(1, generation);
        let later = reunite(&pair, 0, generation).unwrap_err();
        assert!(
            matches!(later, TeamError::NotConnected { peer: 1 }),
            "{later}"
        );
        // Half of the way to the successor.
        let half = pair.fleet.connect_end(0, 1).unwrap_err();
        assert!(matches!(half, TeamError::Absent { .. }), "{half}");
        let former = reunite(&pair, 0, generation - 1).unwrap_err();
        assert!(matches!(former, TeamError::Generation { least, .. } if least == generation));
        pair.fleet.connect(1);
        assert!(
            reunite(&pair, 0, generation).unwrap(),
            "connected and closed"
        );
        pair.fleet.open(1);
        pair.fleet.talk(0, 1);
        // The successor and this rank begin with attempt 1.
        pair.fail(0);
        pair.fail(1);
        let start = Instant::now();
        while !(reunite(&pair, 0, generation).unwrap() & reunite(&pair, 1, 1).unwrap()) {
            assert!(start.elapsed() < PATIENCE);
        }
        let told = pair
            .fleet
            .store
            .try_get(&format!("reunite/0.1/1.{generation}"));
        let told: Value = serde_json::from_slice(&told.unwrap().unwrap()).unwrap();
        assert_eq!(told["attempt"], json!(1));
        pair.open();
        pair.fleet.talk(0, 1);
        assert_eq!(pair.fleet.captured(0, 1), captured);
    }
    drop(pair);
    hcas.check();
}

#[test]
fn a_kernel_that_keeps_its_guard_holds_the_reset_up_and_nothing_else() {
    with(&setup(2), |pair| {
        let rank = pair.fleet.rank(0);
        let holding = rank.put(&Put {
            threads: 3,
            ..Put::hold(1)
        });
        until("guards are counted", || rank.team.guards(1).unwrap() == 3);
        pair.fail(0);
        pair.fail(1);
        for _ in 0..3 {
            assert!(!pair.call(0).unwrap());
            assert_eq!(rank.team.qp_status(1, 0).unwrap().hca.state, QpState::ERR);
            assert!(!pair.call(1).unwrap());
        }
        assert_eq!((pair.told(0), pair.attempt(1)), (None, 1));
        holding.stop();
        holding.finish();
        pair.meet_and_talk(0);
        assert_eq!(pair.attempt(0), 1);
    });
}

#[test]
fn kernels_that_post_when_the_pair_fails_go_on_when_it_is_open_again() {
    let seed = seed();
    println!("seed {seed}");
    with(&setup(2), |pair| {
        let load = |from: u32| Put {
            seed: seed ^ u64::from(from),
            threads: 4,
            dst_word: WORDS / 2 + 4096 * from,
            deadline: PATIENCE,
            ..Put::new(1 - from, 400)
        };
        let running = [0, 1].map(|from| pair.fleet.rank(from).put(&load(from)));
        let posted = |from: u32| {
            pair.fleet
                .rank(from)
                .team
                .counters(1 - from, 0)
                .unwrap()
                .posted
        };
        let error = |from: u32| {
            let report = pair.fleet.rank(from).team.qp_status(1 - from, 0).unwrap();
            report.hca.state == QpState::ERR
        };
        for round in 1..=3 {
            until("words are put", || posted(0) > 20 * round || error(0));
            pair.fail(u32::from(round % 2 == 0));
            pair.fail(u32::from(round % 2 == 1));
            pair.meet(0);
            pair.open();
        }
        for (from, running) in [0, 1].into_iter().zip(running) {
            for seen in running.finish() {
                assert_eq!((seen.status, seen.done), (Status::OK, 400), "{seen:?}");
            }
            let wrong = pair
                .fleet
                .rank(1 - from)
                .wrong_words(from, WORDS / 2 + 4096 * from, 1600);
            assert_eq!(wrong, Vec::<u32>::new());
        }
    });
}

#[test]
fn a_command_that_the_hca_refuses_is_reported_and_the_calls_go_on() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let pair = Pair::new(&setup, &hcas);
    // 2RST_QP, QUERY_QP, RST2INIT_QP, INIT2RTR_QP, RTR2RTS_QP; first and second QP.
    for opcode in [0x50a, 0x50b, 0x502, 0x503, 0x504] {
        for nth in [1, 2] {
            pair.fail(0);
            pair.fail(1);
            hcas.of(1)[0].fail_command(FailCommand {
                opcode: Some(opcode),
                nth,
                status: 0x8,
                syndrome: 0x00ab_cdef,
            });
            let refused = RefCell::new(None);
            until("the command is refused", || {
                assert!(!pair.try_call(0));
                let error = pair.call(1).err();
                refused.replace(error.map(|error| error.to_string()));
                refused.borrow().is_some()
            });
            let refused = refused.take().unwrap();
            assert!(
                refused.contains("syndrome 0x00abcdef"),
                "{opcode:#x}: {refused}"
            );
            let error = pair.fleet.rank(1).team.open_peer(0);
            assert!(matches!(error, Err(TeamError::NotConnected { .. })));
            pair.meet_and_talk(0);
        }
    }
    drop(pair);
    hcas.check();
}

#[test]
fn a_recovery_takes_over_at_any_step_and_a_reunion_behind_it() {
    with(&setup(2), |pair| {
        for steps in 0..8u32 {
            pair.fail(0);
            pair.fail(1);
            for step in 0..steps {
                pair.try_call(step % 2);
            }
            std::thread::scope(|scope| {
                for rank in [0, 1] {
                    let team = &pair.fleet.rank(rank).team;
                    scope.spawn(move || assert_eq!(team.recover(1 - rank).unwrap(), steps + 1));
                }
            });
            pair.fleet.talk(0, 1);
            pair.fail(0);
            pair.fail(1);
            pair.meet_and_talk(1);
        }
    });
}

#[test]
fn windows_that_are_reached_by_load_and_store_stay_open() {
    let mut setup = setup(2);
    setup.team.modes.direct = true;
    with(&setup, |pair| {
        assert!(pair.fleet.rank(0).team.is_direct(1).unwrap());
        for first in [0, 1] {
            pair.fail(0);
            pair.fail(1);
            pair.meet_and_talk(first);
            for rank in [0, 1] {
                assert!(pair.fleet.rank(rank).team.is_direct(1 - rank).unwrap());
                let entry = pair.fleet.entry(rank, 1 - rank, 0);
                assert_ne!(entry.rail_life & PEER_DIRECT, 0);
            }
        }
    });
}

/// Rank 1 joins. What the record of that key says is changed until the other end has connected by it; then its owner finds that.
fn connected_by_another_record(key: &str, change: impl Fn(&mut Value, &DrivenFleet<'_>)) {
    println!("{key}");
    let setup = impatient();
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, [0].into_iter().collect());
    fleet.come(1, 1);
    let (owner, other) = if key.contains("/0.1/") {
        (0, 1)
    } else {
        (1, 0)
    };
    if key.starts_with("welcome/") {
        let absent = fleet.connect_end(owner, other).unwrap_err();
        assert!(matches!(absent, TeamError::Absent { .. }), "{absent}");
    }
    let own = fleet.store.try_get(key).unwrap().unwrap();
    let mut record = serde_json::from_slice(&own).unwrap();
    change(&mut record, &fleet);
    let changed = serde_json::to_vec(&record).unwrap();
    fleet.store.put(key, &changed).unwrap();
    // The owner looks at its welcome again as soon as it is told to, so the other end connects first.
    match fleet.connect_end(other, owner) {
        Ok(()) | Err(TeamError::Absent { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    fleet.connect(1);
    let pair = Pair {
        fleet,
        unreached: RefCell::default(),
    };
    pair.fail(0);
    pair.fail(1);
    let call = |from| match pair.call(from) {
        Ok(done) => done,
        Err(TeamError::Unreached { .. } | TeamError::Record { .. }) => false,
        Err(error) => panic!("rank {from}: {error}"),
    };
    let start = Instant::now();
    while !(call(0) & call(1)) {
        assert!(start.elapsed() < PATIENCE, "{key}: they stay apart");
        // As the thread that connects does while a pair is apart.
        for from in [0, 1] {
            pair.fleet.rank(from).team.tell_again(1 - from, 1).unwrap();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    pair.open();
    pair.fleet.talk(0, 1);
    drop(pair);
    hcas.check();
}

#[test]
fn a_pair_that_was_connected_by_records_of_another_comes_together() {
    connected_by_another_record("welcome/0.1/1.1", |record, _| {
        let qpn = record["qps"][0]["qpn"].as_u64().unwrap();
        record["qps"][0]["qpn"] = json!(qpn ^ 1);
    });
    connected_by_another_record("welcome/1.1/0.1", |record, _| {
        let base = record["windows"][0]["base"].as_u64().unwrap();
        record["windows"][0]["base"] = json!(base ^ 1 << 40);
    });
    connected_by_another_record("hello/1.1", |record, fleet| {
        let other = fleet.store.try_get("hello/0.1").unwrap().unwrap();
        let other: Value = serde_json::from_slice(&other).unwrap();
        record["rails"] = other["rails"].clone();
    });
}
