//! What a team does by default, and the line that it logs when it has joined.

use std::sync::Arc;

use softhca::device::EventSupport;
use softhca::{FailCommand, HcaConfig};
use warpverbs::team::{CqKind, Doorbell, MemoryStore, Queues, RankSet, TeamConfig};

use crate::modes::exchange;
use crate::rank::{Rank, run_on, setup};
use test_support::fleet::{Hcas, Setup};
use test_support::log::Lines;
use test_support::ranks;

/// Returns what each rank of two logs while it joins with that change, and which of its peers are direct when it has a window.
fn joined(change: fn(&mut TeamConfig)) -> Vec<(String, bool)> {
    joined_on(change, |_| {})
}

/// As `joined`, on HCAs that `prepare` has prepared.
fn joined_on(change: fn(&mut TeamConfig), prepare: fn(&Hcas)) -> Vec<(String, bool)> {
    let setup = Setup { change, ..setup(2) };
    let hcas = Hcas::new(&setup);
    prepare(&hcas);
    let results = ranks::on_threads(2, |rank, store| {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || writer.clone())
            .without_time()
            .finish();
        let own = hcas.of(rank).iter().map(Arc::as_ref);
        let team = tracing::subscriber::with_default(subscriber, || {
            ranks::join(setup.of_rank(rank), own, store).unwrap()
        });
        team.window(4096).unwrap();
        let direct = team.is_direct(1 - rank).unwrap();
        team.barrier("seen").unwrap();
        let logged = lines.text();
        (logged, direct)
    });
    hcas.check();
    results
}

#[test]
fn by_default_no_peer_is_direct_and_the_first_line_says_so() {
    for (rank, (logged, direct)) in joined(|_| {}).into_iter().enumerate() {
        assert!(!direct, "rank {rank}");
        let first = logged.lines().next().expect("a line");
        for part in [
            format!("rank {rank} of 2, generation 1, on simt and mlx5_"),
            ": 1 peers by QP, 0 direct; 2 QPs to each, depth 256".to_owned(),
            "doorbell with".to_owned(),
            "queues in device memory, one CQE, 0 receive WQEs, signals inline, control heap by "
                .to_owned(),
        ] {
            assert!(first.contains(&part), "{part:?} is not in {first:?}");
        }
    }
}

#[test]
fn the_first_line_says_what_was_asked_for() {
    let asked = joined(|config| {
        config.modes.direct = true;
        config.modes.doorbell = Some(Doorbell::Mailbox);
        config.modes.queues = Some(Queues::Host);
        config.modes.cq = CqKind::Wide;
        config.modes.log_recv_depth = Some(4);
    });
    for (rank, (logged, direct)) in asked.into_iter().enumerate() {
        assert!(direct, "rank {rank}");
        let first = logged.lines().next().expect("a line");
        for part in [
            ": 0 peers by QP, 1 direct; ",
            "doorbell by a host thread, queues in host memory, one CQE per WQE, 16 receive WQEs",
        ] {
            assert!(first.contains(part), "{part:?} is not in {first:?}");
        }
    }
}

/// The HCA of rank 0 says that it can do without doorbell records, and refuses the first QP without one.
fn refuse_first(hcas: &Hcas) {
    hcas.of(0)[0].fail_command(FailCommand {
        opcode: Some(CREATE_QP),
        nth: 1,
        status: BAD_PARAM,
        syndrome: 0x00ab_cdef,
    });
}

const CREATE_QP: u16 = 0x500;
const BAD_PARAM: u8 = 3;

#[test]
fn a_refused_qp_without_a_record_is_made_with_one_and_logged_once() {
    let logs: Vec<_> = joined_on(|_| {}, refuse_first)
        .into_iter()
        .map(|(logged, _)| logged)
        .collect();
    assert!(logs[0].contains("doorbell with record"), "{}", logs[0]);
    assert!(logs[1].contains("doorbell without record"), "{}", logs[1]);
    let told = "doorbells by the GPU, which costs a fence and a store more";
    assert_eq!(logs[0].matches(told).count(), 1, "{}", logs[0]);
    assert!(logs[0].contains("syndrome 0x00abcdef"), "{}", logs[0]);
    assert!(!logs[1].contains(told), "{}", logs[1]);
}

/// The log of a founder of two places on such an HCA. Ranks on such HCAs write to each other.
fn logged_with(change: impl Fn(&mut HcaConfig)) -> String {
    let mut setup = setup(2);
    change(&mut setup.hca);
    let hcas = Hcas::new(&setup);
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone())
        .without_time()
        .finish();
    // A founder alone has its QPs to the other place, too.
    let alone = setup.of_rank(0).with_members(Some(RankSet::first(1)));
    let founded = || Rank::alone(alone, hcas.of(0), Arc::new(MemoryStore::new())).unwrap();
    drop(tracing::subscriber::with_default(subscriber, founded));
    run_on(&setup, &hcas, |rank| exchange(rank, 2));
    hcas.check();
    lines.text()
}

#[test]
fn a_team_works_without_refused_events_and_logs_the_refusal_once() {
    assert_eq!(logged_with(|_| {}), "");
    for (events, told) in [
        (
            EventSupport::Device,
            "failures of QPs are found by completions and deadlines only: ",
        ),
        (
            EventSupport::None,
            "failures are found by completions and deadlines only: ",
        ),
    ] {
        let logged = logged_with(|hca| hca.events = events);
        assert_eq!(logged.matches(told).count(), 1, "{events:?}: {logged}");
        assert_eq!(logged.lines().count(), 1, "{events:?}: {logged}");
    }
}

#[test]
fn a_team_works_without_a_counter_set_and_logs_the_refusal_once() {
    let logged = logged_with(|hca| hca.counter_sets_are_taken = true);
    for told in [
        "packets are counted with those of all programs on the device: ",
        "ALLOC_Q_COUNTER (0x771) refused: status NO_RES (0xf)",
        "no counter set left",
    ] {
        assert_eq!(logged.matches(told).count(), 1, "{told}: {logged}");
    }
    assert_eq!(logged.lines().count(), 1, "{logged}");
}

#[test]
fn an_hca_that_refuses_what_was_asked_for_is_an_error() {
    let mut setup = setup(2);
    setup.team.join_timeout = ranks::DEADLINE;
    setup.team.modes.doorbell = Some(Doorbell::NoRecord);
    let hcas = Hcas::new(&setup);
    refuse_first(&hcas);
    let errors = ranks::on_threads(2, |rank, store| {
        let own = hcas.of(rank).iter().map(Arc::as_ref);
        let joined = ranks::join(setup.of_rank(rank), own, store);
        joined.map(drop).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("syndrome 0x00abcdef"), "{error}");
    }
    hcas.check();
}
