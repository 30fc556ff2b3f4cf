//! Transfers between two processes of this machine: every byte, and the outcome where the other process ends, or lets no process
//! read its memory.

use std::env;
use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use softhca::HcaConfig;
use test_support::limits::HANG;
use test_support::process::Process;
use warpverbs::internal::engine::{
    EngineConfig, EngineError, EnginePath, HostError, HostMemory, Kind, Operation, Options,
    Outcome, Peer, PeerPath, Status,
};

use crate::descriptors::{descriptor, hex};
use crate::rig::{End, config};

const MIB: u64 = 1 << 20;
const BYTES: u64 = 8 * MIB;
/// What a process that a test starts is to do.
const SPEC: &str = "WV_TEST_ENGINE_PROCESS";

pub(crate) fn start(spec: &str) -> Process {
    Process::start("local_processes::an_engine_process", (SPEC, spec))
}

/// An engine whose memory other processes may map, or not.
fn end(config: EngineConfig, is_shared: bool) -> End {
    let memory = if is_shared {
        HostMemory::shared(BYTES)
    } else {
        HostMemory::new(BYTES)
    };
    End::over(HcaConfig::default(), config, memory.unwrap())
}

fn path_of(word: &str) -> EnginePath {
    match word {
        "local" => EnginePath::Local,
        "nic" => EnginePath::Nic,
        _ => EnginePath::Auto,
    }
}

/// Connects to the engine that has said this of itself. Where its region begins.
fn connect(own: &End, said: &str) -> Result<(Peer, u64), HostError> {
    let (address, region) = said.split_once(' ').unwrap();
    let peer = own.engine.connect(address)?;
    let region = descriptor(region);
    peer.import(&region)?;
    Ok((peer, region.address))
}

#[test]
#[ignore = "is started by the tests below"]
fn an_engine_process() {
    let spec = env::var(SPEC).expect("started by a test");
    let words: Vec<&str> = spec.split(' ').collect();
    if words[1] == "hidden" {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
        // Of this thread, and of those that it starts.
        let none = CapabilitySet::empty();
        let sets = CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        };
        set_capabilities(None, sets).unwrap();
    }
    match words[0] {
        "serves" => serve(&words[2..]),
        _ => use_peer(path_of(words[2]), &words[3..].join(" ")),
    }
}

/// Memory, name, and perhaps the address of an engine.
fn serve(words: &[&str]) {
    let config = config(words[1]).with_engine_path(EnginePath::Auto);
    let own = end(config, words[0] == "shared");
    let address = words.get(2).unwrap_or(&"127.0.0.1:0");
    let address = own.engine.listen(address.parse().unwrap()).unwrap();
    let region = own.engine.descriptor(own.region).unwrap().to_bytes();
    println!("said: {address} {}", hex(&region));
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let (what, seed) = line.split_once(' ').unwrap();
        let seed: u64 = seed.parse().unwrap();
        let answer = match what {
            "fill" => {
                own.fill(seed);
                "filled".to_owned()
            }
            "count" => {
                let counter = own.engine.counter(9).unwrap();
                let found = counter.wait(seed, HANG);
                format!("{found:?}")
            }
            _ => {
                let mut expected = vec![0; usize::try_from(BYTES).unwrap()];
                fastrand::Rng::with_seed(seed).fill(&mut expected);
                if own.bytes() == expected {
                    "same".to_owned()
                } else {
                    "other".to_owned()
                }
            }
        };
        println!("said: {answer}");
    }
}

fn use_peer(path: EnginePath, said: &str) {
    let own = end(config("a").with_engine_path(path), false);
    match connect(&own, said) {
        Err(error) => println!("said: {error}"),
        Ok((peer, at)) => {
            let id = peer.write(own.at(0), at, BYTES).unwrap();
            println!("said: {} {:?}", peer.path(), own.concluded(id));
        }
    }
}

#[test]
fn every_byte_goes_to_another_process_and_comes_from_it() {
    for word in ["own", "shared"] {
        let mut other = start(&format!("serves open {word} b"));
        let said = other.says();
        let mut counted = 0;
        for path in [EnginePath::Local, EnginePath::Auto] {
            let name = format!("a {path}");
            let own = end(config(&name).with_engine_path(path).with_workers(2), false);
            let (peer, at) = connect(&own, &said).unwrap();
            assert_eq!(peer.path(), PeerPath::Machine);
            let before = own.hca.counters();
            own.fill(5);
            let id = peer.write(own.at(0), at, BYTES).unwrap();
            assert_eq!(own.concluded(id), Outcome::Done);
            assert_eq!(other.asked("compare 5"), "same", "{word}");
            assert_eq!(other.asked("fill 6"), "filled");
            // In many pieces, the last of which comes first.
            let whole: Vec<Operation> = (0..BYTES / 512)
                .rev()
                .map(|nth| Operation {
                    kind: Kind::Read,
                    local: own.at(512 * nth),
                    remote: at + 512 * nth,
                    bytes: 512,
                })
                .collect();
            let id = peer.submit(&whole, &Options::default()).unwrap();
            assert_eq!(own.concluded(id), Outcome::Done);
            let found = own.bytes();
            assert!(found == own.fill(6), "{word}");
            own.fill(7);
            let writes: Vec<Operation> = whole
                .iter()
                .map(|read| Operation {
                    kind: Kind::Write,
                    ..*read
                })
                .collect();
            let counts = Options::default().with_counter(Some(9));
            let id = peer.submit(&writes, &counts).unwrap();
            counted += BYTES / 512;
            let answer = other.asked(&format!("count {counted}"));
            assert_eq!(answer, format!("Some({counted})"), "{word}");
            assert_eq!(other.asked("compare 7"), "same", "{word}");
            assert_eq!(own.concluded(id), Outcome::Done);
            let after = own.hca.counters();
            assert_eq!(
                (after.write_requests, after.read_requests),
                (before.write_requests, before.read_requests),
                "no packet was sent"
            );
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let is_mapped = |line: &str| {
                let mut range = line.split([' ', '-']);
                let mut next = || u64::from_str_radix(range.next()?, 16).ok();
                let (first, end) = (next(), next());
                line.contains("memfd:warpverbs-")
                    && first
                        .zip(end)
                        .is_some_and(|(first, end)| end - first == BYTES)
            };
            let mapped = maps.lines().filter(|line| is_mapped(line)).count();
            assert_eq!(mapped > 0, word == "shared", "{maps}");
            assert_eq!(own.engine.close().cut_off, 0);
        }
    }
}

#[test]
fn transfers_to_a_killed_process_end_with_the_reason_and_others_go_on() {
    let stays = start("serves open own stays");
    let stays_at = stays.says();
    for (word, path) in [
        ("own", EnginePath::Local),
        ("shared", EnginePath::Local),
        ("own", EnginePath::Auto),
    ] {
        let mut other = start(&format!("serves open {word} b"));
        let said = other.says();
        let own = end(config("a").with_engine_path(path).with_workers(2), false);
        let (peer, at) = connect(&own, &said).unwrap();
        let (to_other, at_other) = connect(&own, &stays_at).unwrap();
        // More than is copied before the end.
        let many = |kind| -> Vec<Operation> {
            let one = Operation {
                kind,
                local: own.at(0),
                remote: at,
                bytes: BYTES,
            };
            vec![one; 65_536]
        };
        let ids = [Kind::Write, Kind::Read]
            .map(|kind| peer.submit(&many(kind), &Options::default()).unwrap());
        let good = to_other.write(own.at(0), at_other, BYTES).unwrap();
        other.kill();
        for id in ids {
            assert_eq!(own.concluded(id), Outcome::Failed);
            let report = own.engine.report(id).unwrap();
            let cause = report.first.and_then(|first| first.cause);
            let errno = cause.and_then(|cause| cause.errno());
            assert_eq!(errno, Some(libc::ESRCH), "{word}: {cause:?}");
            assert!(report.bytes_landed < 65_536 * BYTES);
        }
        assert_eq!(own.concluded(good), Outcome::Done);
        let gone = own.engine.peer_gone(HANG).expect("the engine reports it");
        assert_eq!(gone.name, "b");
        let refused = peer.write(own.at(0), at, 8);
        assert!(
            matches!(refused, Err(EngineError::PeerGone { .. })),
            "{refused:?}"
        );
        assert_eq!(own.engine.poll(good), Ok(Status::Concluded(Outcome::Done)));
    }
}

#[test]
fn a_process_with_closed_memory_is_reached_by_the_nic_or_refused() {
    let other = start("serves hidden own b");
    let said = other.says();
    for (path, expected) in [("auto", "nic Done"), ("nic", "nic Done")] {
        let user = start(&format!("uses hidden {path} {said}"));
        assert_eq!(user.says(), expected, "{path}");
    }
    let user = start(&format!("uses hidden local {said}"));
    let refused = user.says();
    let expected = "b is not reached within this machine, and WARPVERBS_ENGINE_PATH is local: ";
    assert!(refused.starts_with(expected), "{refused}");
}
