//! An idle engine takes next to no time of a CPU: its threads sleep until something happens. Only a worker looks twice in a second
//! whether an interrupt of the HCA was lost.

use std::process::Command;
use std::time::{Duration, Instant};

use softhca::HcaConfig;
use test_support::limits::{HANG, until};
use warpverbs::internal::engine::{Engine, HostMemory, Outcome, wakes};

use crate::rig::{SHORT, Side, config, device, listens};

const PEERS: usize = 64;
/// Longer than any time of the engine for which a thread sleeps at most.
const WINDOW: Duration = Duration::from_secs(3);
/// A worker that has posted receives sleeps so long at most.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Alone in its process, so that its threads are those of the engines and of the software HCAs.
#[test]
fn the_threads_of_an_engine_with_64_peers_sleep_until_something_happens() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "idle::watched", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let said = text.lines().find(|line| line.starts_with("idle: "));
    println!("{}", said.unwrap_or_else(|| panic!("{text}")));
}

/// Nanoseconds for which threads of engines ran, and how many there are. The name of a thread is cut at 15 bytes.
fn ran() -> (u64, usize) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let times = tasks.filter_map(|task| {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let is_own = name.starts_with("wv-engine");
        is_own.then(|| times.split(' ').next()?.parse::<u64>().ok())?
    });
    let times: Vec<u64> = times.collect();
    (times.iter().sum(), times.len())
}

#[test]
#[ignore = "is started by the_threads_of_an_engine_with_64_peers_sleep_until_something_happens"]
fn watched() {
    let (hub_hca, hub_context) = device(HcaConfig::default());
    let (hca, context) = device(HcaConfig::default());
    let of = |context, name: &str| {
        let engine = Engine::new(context, config(name).with_qps(1)).unwrap();
        Side::new(engine, HostMemory::new(4096).unwrap())
    };
    let hub = of(&hub_context, "hub");
    let address = listens(&hub.engine).to_string();
    let descriptor = hub.engine.descriptor(hub.region).unwrap();
    let ends: Vec<Side> = (0..PEERS)
        .map(|nth| of(&context, &format!("{nth}")))
        .collect();
    let connected: Vec<_> = ends
        .iter()
        .map(|end| {
            let peer = end.engine.connect(&address).unwrap();
            peer.import(&descriptor).unwrap();
            let back = hub.engine.accept(HANG).expect("it has connected");
            let id = peer.write(end.at(0), hub.at(0), 4096).unwrap();
            assert_eq!(end.concluded(id), Outcome::Done);
            back.notify(b"hello").unwrap();
            assert_eq!(
                *end.engine.notice(HANG).expect("it has come").bytes,
                *b"hello"
            );
            [peer, back]
        })
        .collect();
    let all = || -> Vec<[u64; 2]> {
        let engines = ends.iter().chain([&hub]);
        engines.map(|end| wakes(&end.engine)).collect()
    };
    let of_connections = |all: &[[u64; 2]]| -> Vec<u64> { all.iter().map(|it| it[1]).collect() };
    until("all connections are at rest", || {
        let before = all();
        // An event that does not come.
        let nothing = hub.engine.accept(SHORT);
        nothing.is_none() && of_connections(&all()) == of_connections(&before)
    });
    let (before, (ran_before, threads)) = (all(), ran());
    let begin = Instant::now();
    assert!(hub.engine.accept(WINDOW).is_none());
    let (took, (ran_after, _)) = (begin.elapsed(), ran());
    let after = all();
    assert_eq!(of_connections(&after), of_connections(&before));
    // At any speed of this machine: between two looks a worker sleeps as long as said.
    let most = u64::try_from(took.as_nanos() / LOOK_AGAIN.as_nanos()).unwrap() + 1;
    let looks = before
        .iter()
        .zip(&after)
        .map(|(before, after)| after[0] - before[0]);
    let looks: Vec<u64> = looks.collect();
    assert!(
        looks.iter().all(|looks| *looks <= most),
        "{looks:?}, at most {most}"
    );
    println!(
        "idle: {threads} threads of 65 engines with 64 connections ran {:.3} ms in {took:.3?}, and looked {} times",
        (ran_after - ran_before) as f64 / 1e6,
        looks.iter().sum::<u64>()
    );
    // Then they are as quick to act, and only those whose work it is.
    let back = &connected[7][1];
    back.notify(b"again").unwrap();
    assert_eq!(
        *ends[7].engine.notice(HANG).expect("it has come").bytes,
        *b"again"
    );
    let woken = of_connections(&all());
    let others = (0..PEERS).filter(|nth| *nth != 7);
    assert!(woken[7] > after[7][1]);
    assert!(others.into_iter().all(|nth| woken[nth] == after[nth][1]));
    let (peer, end) = (&connected[7][0], &ends[7]);
    let id = peer.write(end.at(0), hub.at(0), 8).unwrap();
    assert_eq!(end.concluded(id), Outcome::Done);
    drop((connected, ends, hub));
    for hca in [hub_hca, hca] {
        assert_eq!(hca.findings(), Vec::<String>::new());
    }
}
