//! Variables of the host engine: each changes what an engine does.

use std::net::TcpListener;

use test_support::limits::HANG;
use warpverbs::config::{EngineConfig, PathConfig};
use warpverbs::internal::engine::{
    Engine, EngineError, Kind, MOST_NOTICE_BYTES, Operation, OperationStatus, Options, Outcome,
    Report, SinkEngine, SinkFault, Status,
};

use crate::rig::{End, LOOPBACK, config, connect};

/// As these variables say, by their names behind `WARPVERBS_`.
fn of(name: &str, set: &[(&str, &str)]) -> EngineConfig {
    let variable = |asked: &str| {
        let asked = asked.strip_prefix("WARPVERBS_").unwrap();
        let found = set.iter().find(|(variable, _)| *variable == asked);
        found.map(|(_, value)| (*value).to_owned())
    };
    let config = EngineConfig::from_variables(name, variable).unwrap();
    config.with_drain(HANG)
}

fn write(local: u64, remote: u64, bytes: u64) -> Operation {
    Operation {
        kind: Kind::Write,
        local,
        remote,
        bytes,
    }
}

/// What becomes of `operations` on one lane without an HCA, which refuses its WQE of index `refuses`.
fn refused(set: &[(&str, &str)], refuses: u64, operations: &[Operation]) -> Report {
    let one_lane = [&[("ENGINE_QPS", "1")], set].concat();
    let engine = SinkEngine::new(
        of("a", &one_lane),
        1 << 30,
        Some(SinkFault::Refuses(refuses)),
    )
    .unwrap();
    let id = engine.submit(operations, &Options::default()).unwrap();
    assert_ne!(engine.wait(id, HANG).unwrap(), Status::Pending);
    engine.report(id).unwrap()
}

/// Whether all of `operations` is one WQE.
fn is_one(set: &[(&str, &str)], operations: &[Operation]) -> bool {
    refused(set, 1, operations).outcome == Outcome::Done
}

#[test]
fn slice_and_fragment_say_what_one_wqe_moves() {
    let whole = [write(0, 0, 1 << 17)];
    let slices = |slice, fragment| [("ENGINE_SLICE", slice), ("ENGINE_FRAGMENT", fragment)];
    assert!(!is_one(&slices("65536", "0"), &whole));
    assert!(is_one(&slices("131072", "0"), &whole));
    let longer = [write(0, 0, (1 << 16) + (1 << 12))];
    assert!(!is_one(&slices("65536", "4095"), &longer));
    assert!(is_one(&slices("65536", "4096"), &longer));
}

#[test]
fn gather_says_how_many_local_ranges_one_wqe_has() {
    let apart: Vec<Operation> = (0..4).map(|nth| write(nth << 12, nth * 64, 64)).collect();
    for (gather, one) in [("1", false), ("3", false), ("4", true)] {
        assert_eq!(
            is_one(&[("ENGINE_GATHER", gather)], &apart),
            one,
            "{gather}"
        );
    }
}

#[test]
fn chain_says_how_many_wqes_a_worker_takes_behind_one_doorbell() {
    let many: Vec<Operation> = (0..64).map(|nth| write(nth << 12, nth << 13, 64)).collect();
    for chain in [1usize, 16, 64] {
        // The chain that is refused was handed out, and nothing behind it.
        let report = refused(&[("ENGINE_CHAIN", &chain.to_string())], 0, &many);
        let failed = |status: &&OperationStatus| **status == OperationStatus::Failed;
        assert_eq!(report.operations.iter().filter(failed).count(), chain);
    }
}

#[test]
fn transfers_says_how_many_there_are_at_a_time() {
    for (most, second) in [("1", false), ("2", true)] {
        let engine =
            SinkEngine::new(of("a", &[("ENGINE_TRANSFERS", most)]), 1 << 20, None).unwrap();
        engine
            .submit(&[write(0, 0, 1)], &Options::default())
            .unwrap();
        let taken = engine.submit(&[write(0, 0, 1)], &Options::default());
        let blocked = matches!(taken, Err(EngineError::WouldBlock { slots: 1 }));
        assert_eq!((taken.is_ok(), blocked), (second, !second), "{taken:?}");
    }
}

#[test]
fn qps_says_how_many_a_connection_has() {
    for qps in ["1", "3", "8"] {
        let a = End::new(of("a", &[("ENGINE_QPS", "8")]), 4096);
        let b = End::new(of("b", &[("ENGINE_QPS", qps)]), 4096);
        let [to_b, to_a] = connect(&a, &b);
        assert_eq!([to_b.qps(), to_a.qps()], [qps.parse::<u64>().unwrap(); 2]);
    }
}

#[test]
fn workers_and_depth_say_how_many_qps_have_a_share_of_a_cq() {
    // A CQ of 512 entries.
    let connects = |set: &[(&str, &str)]| {
        let all = [&[("ENGINE_QPS", "2")], set].concat();
        let a = End::new(of("a", &all).with_log_entries(9), 4096);
        let b = End::new(of("b", &[]), 4096);
        let address = b.engine.listen(LOOPBACK).unwrap();
        a.engine.connect(&address.to_string()).is_ok()
    };
    assert!(connects(&[("ENGINE_DEPTH", "256")]));
    assert!(!connects(&[("ENGINE_DEPTH", "512")]));
    assert!(connects(&[
        ("ENGINE_DEPTH", "512"),
        ("ENGINE_WORKERS", "2")
    ]));
}

#[test]
fn peers_says_how_many_there_are_at_a_time() {
    let a = End::new(of("a", &[("ENGINE_PEERS", "1")]), 4096);
    let [b, c] = ["b", "c"].map(|name| End::new(of(name, &[]), 4096));
    connect(&a, &b);
    let address = c.engine.listen(LOOPBACK).unwrap().to_string();
    let refused = a.engine.connect(&address).unwrap_err().to_string();
    assert!(refused.contains("1 peers, its most"), "{refused}");
}

#[test]
fn peers_says_for_how_many_a_worker_has_queues() {
    let a = End::new(of("a", &[("ENGINE_PEERS", "9"), ("ENGINE_QPS", "8")]), 4096);
    let other = |nth: usize| End::new(config(&nth.to_string()).with_qps(8), 4096);
    let others: Vec<End> = (0..9).map(other).collect();
    for other in &others {
        let [to_other, _] = connect(&a, other);
        assert_eq!(to_other.qps(), 8);
    }
    let last = other(9);
    let address = last.engine.listen(LOOPBACK).unwrap().to_string();
    let refused = a.engine.connect(&address).unwrap_err().to_string();
    assert!(refused.contains("9 peers, its most"), "{refused}");
}

#[test]
fn connect_timeout_says_how_long_an_end_that_is_silent_is_waited_for() {
    let silent = TcpListener::bind(LOOPBACK).unwrap();
    let address = silent.local_addr().unwrap().to_string();
    for (value, said) in [("7", "7ms"), ("30", "30ms")] {
        let a = End::new(of("a", &[("ENGINE_CONNECT_TIMEOUT_MS", value)]), 4096);
        let refused = a.engine.connect(&address).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn the_device_and_its_address_are_those_that_are_named() {
    let [a, b] = ["a", "b"].map(|name| End::new(of(name, &[]), 4096));
    for end in [&a, &b] {
        let named = Engine::start(of("c", &[("DEVICE", end.hca.name())])).unwrap();
        assert_eq!(named.device(), end.hca.name());
    }
    let refused = |set: &[(&str, &str)]| Engine::start(of("c", set)).unwrap_err().to_string();
    let both = format!("{},{}", a.hca.name(), b.hca.name());
    let several = refused(&[("DEVICE", &both)]);
    assert_eq!(several, "an engine on 2 RDMA devices: name one");
    let none = refused(&[("DEVICE", "nosuch_0")]);
    assert!(none.contains("nosuch_0"), "{none}");
    let but = format!("^{}", a.hca.name());
    if let Ok(other) = Engine::start(of("c", &[("DEVICE", &but)])) {
        assert_ne!(other.device(), a.hca.name());
    }
    let gid = refused(&[("DEVICE", a.hca.name()), ("GID", "4000000000")]);
    assert!(gid.contains("4000000000"), "{gid}");
}

#[test]
fn packets_go_as_they_do_for_a_team() {
    let set = [
        ("MTU", "1024"),
        ("RETRY_COUNT", "3"),
        ("TRAFFIC_CLASS", "17"),
    ];
    let path = PathConfig::default()
        .with_mtu(Some(1024))
        .with_retry_count(3)
        .with_traffic_class(Some(17));
    assert_eq!(of("a", &set).path, path);
    let a = End::new(of("a", &[]), 4096);
    let config = of("c", &[("DEVICE", a.hca.name())]);
    let bad = config
        .clone()
        .with_path(PathConfig::default().with_mtu(Some(257)));
    let refused = Engine::start(bad).unwrap_err().to_string();
    assert!(
        refused.starts_with("mtu is 257: expected one of"),
        "{refused}"
    );
    Engine::start(config).unwrap();
}

#[test]
fn retry_says_how_often_a_slice_is_posted_again_on_another_qp() {
    for (retry, outcome) in [("0", Outcome::Failed), ("1", Outcome::Done)] {
        let a = End::new(of("a", &[("ENGINE_RETRY", retry)]), 4096);
        let b = End::new(of("b", &[]), 4096);
        let [to_b, _] = connect(&a, &b);
        // Transport retry counter exceeded.
        a.hca
            .set_faults(&"cqe=wqe#1:syndrome=0x15".parse().unwrap());
        let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
        assert_eq!(a.concluded(id), outcome, "{retry}");
    }
}

#[test]
fn inbox_says_how_many_notices_wait_for_a_program() {
    for (bytes, second) in [("131072", false), ("262144", true)] {
        let a = End::new(of("a", &[]), 4096);
        let b = End::new(of("b", &[("ENGINE_INBOX", bytes)]), 4096);
        let [to_b, _] = connect(&a, &b);
        to_b.notify(&[0; MOST_NOTICE_BYTES]).unwrap();
        let refused = to_b.notify(&[0; MOST_NOTICE_BYTES]);
        let full = matches!(refused, Err(EngineError::InboxFull { .. }));
        assert_eq!((refused.is_ok(), full), (second, !second), "{refused:?}");
    }
}
