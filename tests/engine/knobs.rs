//! Variables of the host engine: each changes what an engine does.

use std::fs::{self, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity};
use softhca::HcaConfig;
use test_support::limits::{HANG, until};
use warpverbs::config::{EngineConfig, GpuSelector, PathConfig};
use warpverbs::internal::engine::{
    Engine, EngineError, EnginePairing, HostError, HostMemory, Kind, MOST_NOTICE_BYTES, Operation,
    OperationStatus, Options, Outcome, Peer, PeerPath, Report, SinkFault, Status,
};

use crate::rig::{End, LOOPBACK, SHORT, Side, config, connect, device, listens, over_sinks};

/// As these variables say, by their names after `WARPVERBS_`.
pub(crate) fn of(name: &str, set: &[(&str, &str)]) -> EngineConfig {
    let variable = |asked: &str| {
        let asked = asked.strip_prefix("WARPVERBS_").unwrap();
        let set = [&[("ENGINE_PATH", "nic")], set].concat();
        let found = set.iter().rfind(|(variable, _)| *variable == asked);
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

/// Returns what becomes of `operations` on one lane without an HCA, which refuses its WQE of index `refuses`.
fn refused(set: &[(&str, &str)], refuses: u64, operations: &[Operation]) -> Report {
    let one_lane = [&[("ENGINE_QPS", "1")], set].concat();
    let fault = Some(SinkFault::Refuses(refuses));
    let (engine, peer) = over_sinks(of("a", &one_lane), 1 << 30, fault);
    let id = peer.submit(operations, &Options::default()).unwrap();
    assert_ne!(engine.wait(id, HANG).unwrap(), Status::Pending);
    engine.report(id).unwrap()
}

/// Returns whether all of `operations` is one WQE.
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
fn inline_says_which_writes_carry_their_bytes_as_they_are_when_posted() {
    for (inline, bytes, is_carried) in [("0", 1, false), ("8", 8, true), ("8", 9, false)] {
        let a = End::new(of("a", &[("ENGINE_INLINE", inline)]), 4096);
        let b = End::new(of("b", &[]), 4096);
        let [to_b, _to_a] = connect(&a, &b);
        a.memory.write(0, &[1; 16]).unwrap();
        // The device takes no doorbell, so it reads nothing before the memory is changed.
        a.hca.pause(HANG);
        let id = to_b.write(a.at(0), b.at(0), bytes).unwrap();
        until("the WRITE is posted", || {
            a.engine.statistics().slices.posted == 1
        });
        a.memory.write(0, &[2; 16]).unwrap();
        a.hca.pause(Duration::ZERO);
        assert_eq!(a.concluded(id), Outcome::Done);
        let expected = if is_carried { 1 } else { 2 };
        let mut there = vec![0; usize::try_from(bytes).unwrap()];
        b.memory.read(0, &mut there).unwrap();
        assert!(
            there.iter().all(|it| *it == expected),
            "{inline}: {there:?}"
        );
    }
    let bad = EngineConfig::new("a").with_inline(29);
    let hca = End::new(of("b", &[]), 4096);
    let refused = Engine::new(&hca.context, bad).unwrap_err().to_string();
    assert_eq!(refused, "inline is 29; it must be 0 to 28");
    let variable = |name: &str| (name == "WARPVERBS_ENGINE_INLINE").then(|| "29".to_owned());
    let refused = EngineConfig::from_variables("a", variable).unwrap_err();
    assert!(refused.to_string().contains("0 to 28"), "{refused}");
}

#[test]
fn chain_says_how_many_wqes_a_worker_takes_behind_one_doorbell() {
    let many: Vec<Operation> = (0..64).map(|nth| write(nth << 12, nth << 13, 64)).collect();
    for chain in [1usize, 16, 64] {
        // A worker takes two chains at a time. The first is refused, and nothing after the second was handed out.
        let report = refused(&[("ENGINE_CHAIN", &chain.to_string())], 0, &many);
        let failed = |status: &&OperationStatus| **status == OperationStatus::Failed;
        assert_eq!(
            report.operations.iter().filter(failed).count(),
            64.min(2 * chain)
        );
    }
}

#[test]
fn transfers_says_how_many_there_are_at_a_time() {
    for (most, second) in [("1", false), ("2", true)] {
        let config = of("a", &[("ENGINE_TRANSFERS", most)]);
        let (_engine, peer) = over_sinks(config, 1 << 20, None);
        peer.submit(&[write(0, 0, 1)], &Options::default()).unwrap();
        let taken = peer.submit(&[write(0, 0, 1)], &Options::default());
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
fn rails_says_how_many_ports_auto_takes_from_1_to_8() {
    // What it changes: `auto.rs`.
    for (value, rails) in [("1", 1), ("2", 2), ("8", 8)] {
        assert_eq!(of("a", &[("ENGINE_RAILS", value)]).rails, rails);
    }
    for value in ["0", "9", "-1", "two"] {
        let variable = |name: &str| (name == "WARPVERBS_ENGINE_RAILS").then(|| value.to_owned());
        let refused = EngineConfig::from_variables("a", variable).unwrap_err();
        let expected =
            format!("WARPVERBS_ENGINE_RAILS is '{value}'; it must be a number from 1 to 8");
        assert_eq!(refused.to_string(), expected);
    }
    for rails in [0, 9] {
        let config = of("a", &[]).with_rails(rails);
        let refused = Engine::start(config).unwrap_err().to_string();
        assert_eq!(refused, format!("rails is {rails}; it must be 1 to 8"));
    }
}

#[test]
fn gpu_says_near_which_device_auto_looks_for_ports() {
    // What it changes: `cuda_fake/devices.rs`, where a driver shows two GPUs.
    for (value, gpu) in [("auto", GpuSelector::Auto), ("3", GpuSelector::Cuda(3))] {
        assert_eq!(of("a", &[("GPU", value)]).gpu, gpu);
    }
    let variable = |name: &str| (name == "WARPVERBS_GPU").then(|| "gpu3".to_owned());
    let refused = EngineConfig::from_variables("a", variable).unwrap_err();
    assert!(refused.to_string().contains("'gpu3'"), "{refused}");
}

#[test]
fn workers_and_depth_say_how_many_qps_have_a_share_of_a_cq() {
    // The first CQ of each worker has 512 entries.
    let grows = |set: &[(&str, &str)]| {
        let all = [&[("ENGINE_QPS", "2")], set].concat();
        let a = End::new(of("a", &all).with_log_entries(9), 4096);
        let b = End::new(of("b", &[]), 4096);
        let first = a.hca.live_objects().cq;
        let [to_b, _] = connect(&a, &b);
        assert_eq!(to_b.qps(), 2);
        a.hca.live_objects().cq > first
    };
    assert!(!grows(&[("ENGINE_DEPTH", "256")]));
    assert!(grows(&[("ENGINE_DEPTH", "512")]));
    assert!(!grows(&[("ENGINE_DEPTH", "512"), ("ENGINE_WORKERS", "2")]));
}

/// CPUs of this process's threads that work for an engine, as the system lists them.
fn cpus_of_workers() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let of_task = |task: io::Result<fs::DirEntry>| {
        let task = task.ok()?.path();
        let read = |file| fs::read_to_string(task.join(file)).ok();
        if !read("comm")?.starts_with("wv-engine-") {
            return None;
        }
        let status = read("status")?;
        let line = status
            .lines()
            .find_map(|it| it.strip_prefix("Cpus_allowed_list:"));
        Some(line?.trim().to_owned())
    };
    tasks.filter_map(of_task).collect()
}

#[test]
fn cpus_say_where_workers_run() {
    let allowed = sched_getaffinity(None).unwrap();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let last = cpus.next_back().unwrap().to_string();
    let all = [("ENGINE_CPUS", &*last), ("ENGINE_WORKERS", "3")];
    let on_last = || cpus_of_workers().iter().filter(|it| **it == last).count();
    {
        let [a, b] = ["a", "b"].map(|name| End::new(of(name, &all), 4096));
        until("the workers run there", || on_last() >= 6);
        let [to_b, _] = connect(&a, &b);
        let sent = a.fill(1);
        let id = to_b.write(a.at(0), b.at(0), 4096).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert!(b.bytes() == sent);
    }
    // The threads that others start meanwhile may run on all.
    if let Some(other) = cpus.next_back().map(|it| it.to_string()) {
        // As many CPUs as workers: each has one.
        let both = format!("{other},{last}");
        let each = [("ENGINE_CPUS", &*both), ("ENGINE_WORKERS", "2")];
        let is_there = |cpu: &String| cpus_of_workers().contains(cpu);
        {
            let _a = End::new(of("a", &each), 4096);
            let is_divided = || is_there(&other) && is_there(&last);
            until("each worker has a CPU of its own", is_divided);
        }
        let any = [("ENGINE_CPUS", "any"), ("ENGINE_WORKERS", "3")];
        let before = on_last();
        let _a = End::new(of("a", &any), 4096);
        assert!(on_last() <= before);
    }
    let absent = (0..1024).rev().find(|cpu| !allowed.is_set(*cpu)).unwrap();
    let (_hca, context) = device(HcaConfig::default());
    let refused = Engine::new(&context, of("a", &[("ENGINE_CPUS", &absent.to_string())]));
    let words = refused
        .expect_err("it names no CPU of this process")
        .to_string();
    let expected = format!(
        "a CPU in WARPVERBS_ENGINE_CPUS is {absent}; it must be of those that this process may use, "
    );
    assert!(words.contains(&expected), "{words}");
    let variable = |name: &str| (name == "WARPVERBS_ENGINE_CPUS").then(|| "0-".to_owned());
    let refused = EngineConfig::from_variables("a", variable).unwrap_err();
    let expected = "WARPVERBS_ENGINE_CPUS: '0-' is not `near`, `any` or CPUs below 8192, as 0-3,8";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn cq_says_whether_the_workers_of_a_nic_share_one() {
    // CQs of sends and of receives.
    for (cq, workers, expected) in [("worker", "3", 6), ("nic", "3", 2), ("nic", "1", 2)] {
        let set = [("ENGINE_CQ", cq), ("ENGINE_WORKERS", workers)];
        let [a, b] = ["a", "b"].map(|name| End::new(of(name, &set), 1 << 20));
        assert_eq!(a.hca.live_objects().cq, expected, "{cq} {workers}");
        let [to_b, to_a] = connect(&a, &b);
        let sent = a.fill(1);
        // Both ways at once, over QPs of all workers, and counted at all of them.
        for round in 0..8 {
            let half = 1 << 19;
            let read = Operation {
                kind: Kind::Read,
                ..write(b.at(half), a.at(half), half)
            };
            let counting = Options::default().with_counter(Some(round));
            let small: Vec<Operation> = (0..64).map(|nth| write(a.at(nth), b.at(nth), 1)).collect();
            let ids = [
                to_b.submit(&[write(a.at(0), b.at(0), half)], &Options::default()),
                to_b.submit(&small, &counting),
            ];
            let back = to_a.submit(&[read], &Options::default()).unwrap();
            for id in ids {
                assert_eq!(a.concluded(id.unwrap()), Outcome::Done, "{cq}");
            }
            assert_eq!(b.concluded(back), Outcome::Done, "{cq}");
            let counter = b.engine.counter(round).unwrap();
            assert_eq!(counter.wait(64, HANG), Some(64), "{cq}");
            assert_eq!(b.bytes(), sent);
            b.memory.write(0, &vec![0; 1 << 20]).unwrap();
        }
    }
    let variable = |name: &str| (name == "WARPVERBS_ENGINE_CQ").then(|| "all".to_owned());
    let refused = EngineConfig::from_variables("a", variable).unwrap_err();
    assert!(refused.to_string().contains("nic"), "{refused}");
}

#[test]
fn peers_says_how_many_there_are_at_a_time() {
    let a = End::new(of("a", &[("ENGINE_PEERS", "1")]), 4096);
    let [b, c] = ["b", "c"].map(|name| End::new(of(name, &[]), 4096));
    connect(&a, &b);
    let address = listens(&c.engine).to_string();
    let refused = a.engine.connect(&address).unwrap_err().to_string();
    assert!(refused.contains("1 peers, its most"), "{refused}");
}

#[test]
fn queues_grow_with_peers_and_a_place_is_given_back_by_one_that_goes() {
    const PEERS: usize = 66;
    let most = PEERS.to_string();
    let a = End::new(of("a", &[("ENGINE_PEERS", &most)]), 4096);
    let (hca, context) = device(HcaConfig::default());
    let other = |nth: usize| {
        let engine = Engine::new(&context, config(&format!("peer {nth}")).with_log_entries(8));
        Side::new(engine.unwrap(), HostMemory::new(4096).unwrap())
    };
    let meet = |other: &Side| {
        let peers = connect(&a, other);
        let id = peers[0].write(a.at(0), other.at(64), 64).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        peers
    };
    let first = a.hca.live_objects().cq;
    let mut others: Vec<(Side, [Peer; 2])> = Vec::new();
    for nth in 0..PEERS {
        let other = other(nth);
        let peers = meet(&other);
        others.push((other, peers));
    }
    // For 16, 16, 32 and 64 peers, and as many for receives.
    let grown = a.hca.live_objects().cq;
    assert_eq!(grown, first + 6);
    let last = other(PEERS);
    let address = listens(&last.engine).to_string();
    let refused = a.engine.connect(&address).unwrap_err();
    assert!(matches!(refused, HostError::Connection { .. }));
    let reason = refused.to_string();
    assert!(reason.contains("66 peers, its most"), "{reason}");
    // One in the middle goes, and the newcomer has its place and its queues.
    let (gone, peers) = others.swap_remove(PEERS / 2);
    let _ = gone.engine.close();
    drop(peers);
    assert!(a.engine.peer_gone(HANG).is_some());
    let [to_last, _] = meet(&last);
    assert_eq!((to_last.qps(), a.hca.live_objects().cq), (4, grown));
    drop((others, last, to_last, context, hca));
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
        assert_eq!(named.devices(), [end.hca.name()]);
    }
    let refused = |set: &[(&str, &str)]| Engine::start(of("c", set)).unwrap_err().to_string();
    let both = format!("{},{}", a.hca.name(), b.hca.name());
    let several = Engine::start(of("c", &[("DEVICE", &both)])).unwrap();
    assert_eq!(several.devices(), [a.hca.name(), b.hca.name()]);
    let few = refused(&[("DEVICE", &both), ("ENGINE_QPS", "1")]);
    assert!(
        few.starts_with("a connection has 1 QPs for 2 RDMA devices"),
        "{few}"
    );
    let nine = refused(&[("DEVICE", "a,b,c,d,e,f,g,h,i")]);
    assert_eq!(nine, "an engine on 9 RDMA devices; they must be 1 to 8");
    let none = refused(&[("DEVICE", "nosuch_0")]);
    assert!(none.contains("nosuch_0"), "{none}");
    let but = format!("^{}", a.hca.name());
    if let Ok(other) = Engine::start(of("c", &[("DEVICE", &but)])) {
        assert!(!other.devices().contains(&a.hca.name()));
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
        refused.starts_with("mtu is 257; it must be one of"),
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

#[test]
fn deadline_says_how_long_transfers_run_that_name_none() {
    let hca = HcaConfig {
        loopback: false,
        ..HcaConfig::default()
    };
    for (value, outcome) in [("1", Outcome::TimedOut), ("0", Outcome::Cancelled)] {
        let config = of("a", &[("ENGINE_DEADLINE_MS", value)]).with_grace(SHORT);
        let a = End::on(hca.clone(), config, 4096);
        let b = End::on(hca.clone(), of("b", &[]), 4096);
        let [to_b, _to_a] = connect(&a, &b);
        b.hca.set_faults(&"partition=*".parse().unwrap());
        let operations = [write(a.at(0), b.at(0), 8)];
        let prepared = to_b.prepare(&operations).unwrap();
        let options = Options::default();
        let ids = [
            to_b.submit(&operations, &options).unwrap(),
            to_b.post(&prepared, &options).unwrap(),
        ];
        for id in ids {
            if outcome == Outcome::Cancelled {
                assert_eq!(a.engine.wait(id, SHORT).unwrap(), Status::Pending);
                a.engine.cancel(id).unwrap();
            }
            assert_eq!(a.concluded(id), outcome, "{value}");
        }
        // One that names its own has that.
        let own = options.with_deadline(Some(HANG));
        let id = to_b.submit(&operations, &own).unwrap();
        assert_eq!(a.engine.wait(id, SHORT).unwrap(), Status::Pending);
        a.engine.cancel(id).unwrap();
        assert_eq!(a.concluded(id), Outcome::Cancelled);
    }
}

#[test]
fn listen_says_where_an_engine_listens_without_an_address() {
    let found_at = |set: &[(&str, &str)]| {
        let end = End::new(of("a", set), 4096);
        end.engine.listen_as_configured().map(|it| it.to_string())
    };
    assert!(found_at(&[]).unwrap().starts_with("127.0.0.1:"));
    let found = found_at(&[("ENGINE_LISTEN", "127.0.0.2:0")]).unwrap();
    assert!(found.starts_with("127.0.0.2:"), "{found}");
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", directory.path().join("e").display());
    assert_eq!(found_at(&[("ENGINE_LISTEN", &socket)]).unwrap(), socket);
    let refused = found_at(&[("ENGINE_LISTEN", "0.0.0.0:0")]).unwrap_err();
    assert!(matches!(refused, HostError::Insecure { .. }), "{refused}");
    let variable = |name: &str| (name == "WARPVERBS_ENGINE_LISTEN").then(|| "here".to_owned());
    let refused = EngineConfig::from_variables("a", variable).unwrap_err();
    assert!(refused.to_string().contains("'here'"), "{refused}");
}

#[test]
fn allow_says_with_whom_an_engine_connects() {
    for (allow, taken) in [("b", true), ("c, b", true), ("c", false)] {
        let a = End::new(of("a", &[("ENGINE_ALLOW", allow)]), 4096);
        let b = End::new(of("b", &[]), 4096);
        for (from, to) in [(&a, &b), (&b, &a)] {
            let address = listens(&to.engine).to_string();
            let found = from.engine.connect(&address);
            assert_eq!(found.is_ok(), taken, "'{allow}'");
            if let Err(error) = found {
                let expected = "'b' is none of the engines that 'a' connects with";
                assert!(error.to_string().contains(expected), "{error}");
            }
        }
    }
    // An empty list would let every engine in.
    for wrong in ["a,,b", ""] {
        let variable = |name: &str| (name == "WARPVERBS_ENGINE_ALLOW").then_some(wrong);
        assert!(EngineConfig::from_variables("a", variable).is_err());
    }
}

#[test]
fn key_file_names_the_key_of_peers_which_only_its_user_may_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8], mode: u32| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let end = |name: &str, file: &str| End::new(of(name, &[("ENGINE_KEY_FILE", file)]), 4096);
    let raw = file("raw", &[0xab; 32], 0o600);
    let digits = file("digits", format!("{}\n", "ab".repeat(32)).as_bytes(), 0o400);
    let other = file("other", &[0xac; 32], 0o600);
    for (theirs, taken) in [(&raw, true), (&digits, true), (&other, false)] {
        let (a, b) = (end("a", &raw), end("b", theirs));
        // With a key it listens anywhere.
        let address = b.engine.listen("0.0.0.0:0".parse().unwrap()).unwrap();
        let address = address.to_string();
        let port = address.rsplit_once(':').unwrap().1;
        let found = a.engine.connect(&format!("127.0.0.1:{port}"));
        assert_eq!(found.is_ok(), taken, "{found:?}");
    }
    let hca = End::new(of("c", &[]), 4096);
    let refused = |file: &str| {
        let config = of("d", &[("ENGINE_KEY_FILE", file)]);
        match Engine::new(&hca.context, config).unwrap_err() {
            HostError::KeyFile { problem, .. } => problem,
            error => panic!("{error}"),
        }
    };
    let open = file("open", &[1; 32], 0o640);
    assert!(refused(&open).contains("mode 0640"));
    assert!(refused(&file("short", &[1; 31], 0o600)).contains("it has 31 bytes"));
    assert!(refused(&file("long", &[b'a'; 67], 0o600)).contains("more than 66 bytes"));
    assert!(refused(directory.path().to_str().unwrap()).contains("no regular file"));
    refused("/nosuch");
}

#[test]
fn pairing_says_whether_rails_meet_by_place_or_near_the_memory() {
    for (word, expected) in [
        ("place", EnginePairing::Place),
        ("near", EnginePairing::Near),
    ] {
        // What it changes: `pairing.rs`.
        assert_eq!(of("a", &[("ENGINE_PAIRING", word)]).pairing, expected);
    }
    let variable = |name: &str| (name == "WARPVERBS_ENGINE_PAIRING").then(|| "far".to_owned());
    let refused = EngineConfig::from_variables("a", variable).unwrap_err();
    assert!(refused.to_string().contains("near"), "{refused}");
}

#[test]
fn path_says_whether_transfers_to_a_peer_of_this_process_go_by_the_nic() {
    for (path, other, expected) in [
        ("auto", "auto", Some(PeerPath::Process)),
        ("auto", "local", Some(PeerPath::Process)),
        ("nic", "auto", Some(PeerPath::Nic)),
        ("auto", "nic", Some(PeerPath::Nic)),
        ("local", "nic", None),
        ("nic", "local", None),
    ] {
        let a = End::new(of("a", &[("ENGINE_PATH", path)]), 4096);
        let b = End::new(of("b", &[("ENGINE_PATH", other)]), 4096);
        let Some(expected) = expected else {
            let address = listens(&b.engine).to_string();
            let refused = a.engine.connect(&address).unwrap_err().to_string();
            assert!(refused.contains("path is nic"), "{refused}");
            continue;
        };
        let [to_b, to_a] = connect(&a, &b);
        assert_eq!([to_b.path(), to_a.path()], [expected; 2], "{path} {other}");
        let before = a.hca.counters().write_requests;
        let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        let by_nic = a.hca.counters().write_requests > before;
        assert_eq!(by_nic, expected == PeerPath::Nic, "{path} {other}");
    }
}
