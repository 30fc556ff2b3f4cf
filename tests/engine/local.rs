//! Transfers within a process, and the same by the NIC: every byte, every report.

use std::sync::Arc;
use std::time::Duration;

use softhca::HcaConfig;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    EngineConfig, EngineError, EnginePath, HostError, HostMemory, Kind, Operation, OperationStatus,
    Options, Outcome, Peer, PeerPath, Remote, Rights, Status,
};

use crate::rig::{End, SHORT, config, connect};

const MIB: u64 = 1 << 20;
const PATHS: [(EnginePath, PeerPath); 2] = [
    (EnginePath::Nic, PeerPath::Nic),
    (EnginePath::Local, PeerPath::Process),
];

fn on(path: EnginePath, name: &str) -> EngineConfig {
    config(name).with_engine_path(path).with_workers(2)
}

fn pair((path, found): (EnginePath, PeerPath), bytes: u64) -> (End, End, [Peer; 2]) {
    let a = End::new(on(path, "a").with_gather(16), bytes);
    let b = End::new(on(path, "b"), bytes);
    let peers = connect(&a, &b);
    assert_eq!(peers.each_ref().map(Peer::path), [found; 2]);
    (a, b, peers)
}

fn operation(kind: Kind, local: u64, remote: u64, bytes: u64) -> Operation {
    Operation {
        kind,
        local,
        remote,
        bytes,
    }
}

#[test]
fn every_byte_arrives_by_either_path_and_no_other_changes() {
    for path in PATHS {
        let (a, b, [to_b, _]) = pair(path, 8 * MIB);
        for (seed, bytes) in (1..).zip([0, 1, 8, 4097, 65_536, 131_073, 5 * MIB + 3]) {
            for kind in [Kind::Write, Kind::Read] {
                let (mut here, mut there) = (a.fill(seed), b.fill(seed + 100));
                let range = |at: usize| at..at + usize::try_from(bytes).unwrap();
                match kind {
                    Kind::Write => there[range(57)].copy_from_slice(&here[range(13)]),
                    Kind::Read => here[range(13)].copy_from_slice(&there[range(57)]),
                }
                let whole = operation(kind, a.at(13), b.at(57), bytes);
                let id = to_b.submit(&[whole], &Options::default()).unwrap();
                assert_eq!(a.concluded(id), Outcome::Done, "{path:?} {kind:?} {bytes}");
                assert!(
                    a.bytes() == here && b.bytes() == there,
                    "{path:?} {kind:?} {bytes}"
                );
                let report = a.engine.report(id).unwrap();
                assert_eq!(report.operations, [OperationStatus::Done]);
                assert_eq!((report.bytes_landed, report.first), (bytes, None));
                assert_eq!(report.remote, Remote::Quiet);
                a.engine.release(id).unwrap();
            }
        }
    }
}

#[test]
fn vectors_longer_than_a_call_and_across_regions_arrive_by_either_path() {
    let seed = fastrand::u64(..);
    for path in PATHS {
        let mut random = fastrand::Rng::with_seed(seed);
        let (a, b, [to_b, _]) = pair(path, MIB);
        // A second region here, after the first only by chance.
        let more = Arc::new(HostMemory::new(MIB).unwrap());
        a.engine.register(&more).unwrap();
        let fill = |seed| {
            let mut bytes = vec![0; usize::try_from(MIB).unwrap()];
            fastrand::Rng::with_seed(seed).fill(&mut bytes);
            more.write(0, &bytes).unwrap();
            bytes
        };
        for kind in [Kind::Write, Kind::Read] {
            let (mut here, mut there, mut second) = (a.fill(seed), b.fill(!seed), fill(seed ^ 7));
            // Pieces that follow each other at the peer, and none of which do here: up to 16 of them are one WQE.
            let mut operations = Vec::new();
            let mut at = 0usize;
            for tile in 0..4096usize {
                let (place, bytes) = ((tile * 7 % 4096) * 256, random.usize(1..=200));
                let own = if tile % 2 == 0 {
                    &mut here
                } else {
                    &mut second
                };
                let base = match tile % 2 {
                    0 => a.at(0),
                    _ => more.address(),
                };
                operations.push(operation(
                    kind,
                    base + place as u64,
                    b.at(at as u64),
                    bytes as u64,
                ));
                match kind {
                    Kind::Write => {
                        there[at..at + bytes].copy_from_slice(&own[place..place + bytes]);
                    }
                    Kind::Read => own[place..place + bytes].copy_from_slice(&there[at..at + bytes]),
                }
                at += bytes;
            }
            let id = to_b.submit(&operations, &Options::default()).unwrap();
            assert_eq!(a.concluded(id), Outcome::Done, "{path:?} seed {seed}");
            let mut found = vec![0; second.len()];
            more.read(0, &mut found).unwrap();
            assert!(found == second, "{path:?} {kind:?} seed {seed}");
            assert!(
                a.bytes() == here && b.bytes() == there,
                "{path:?} {kind:?} seed {seed}"
            );
        }
    }
}

#[test]
fn a_foreign_key_fails_the_transfer_with_one_cause_by_either_path() {
    for path in PATHS {
        let (a, b, [to_b, _]) = pair(path, MIB);
        let descriptor = b.engine.descriptor(b.region).unwrap();
        let mut forged = descriptor;
        let mut rkeys = *forged.rkeys.all();
        rkeys[0] ^= 0x5a00;
        forged.rkeys = rkeys.into();
        // A range that the peer's region does not have.
        let mut longer = descriptor;
        longer.bytes += 4096;
        for (bad, at, bytes) in [(forged, 0, MIB), (longer, MIB - 7, 8)] {
            to_b.forget(descriptor.address);
            to_b.import(&bad).unwrap();
            // Not the first byte: that may follow the last of b.
            let id = to_b
                .read(a.at(bytes.min(64)), b.at(at), bytes.min(MIB - 64))
                .unwrap();
            assert_eq!(a.concluded(id), Outcome::Failed, "{path:?}");
            let report = a.engine.report(id).unwrap();
            let cause = report.first.unwrap().cause.unwrap();
            assert_eq!(cause.syndrome, 0x13, "{path:?} {report:?}");
            assert_eq!(report.operations, [OperationStatus::Failed]);
            assert_eq!((report.bytes_landed, report.remote), (0, Remote::Quiet));
        }
        to_b.forget(descriptor.address);
        to_b.import(&descriptor).unwrap();
        let id = to_b.write(a.at(0), b.at(0), MIB).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert_eq!(to_b.path(), path.1);
    }
}

#[test]
fn a_grant_is_a_key_for_copies_too_until_it_is_revoked() {
    let (a, b, [to_b, to_a]) = pair(PATHS[1], MIB);
    let expected = b.fill(3);
    let grant = to_a.grant(b.at(4096), 8192, Rights::Read, None).unwrap();
    to_b.import_grant(&grant).unwrap();
    let read = || to_b.read(a.at(0), grant.address, 8192).unwrap();
    assert_eq!(a.concluded(read()), Outcome::Done);
    assert!(a.bytes()[..8192] == expected[4096..12_288]);
    b.engine.revoke(&grant).unwrap();
    let id = read();
    assert_eq!(a.concluded(id), Outcome::Failed);
    let cause = a.engine.report(id).unwrap().first.unwrap().cause;
    assert_eq!(cause.unwrap().syndrome, 0x13);
    assert_eq!(to_b.path(), PeerPath::Process);
}

#[test]
fn a_region_that_its_owner_takes_away_is_read_by_no_peer_any_more() {
    let (a, b, [to_b, _]) = pair(PATHS[1], MIB);
    let passing = Arc::new(HostMemory::new(MIB).unwrap());
    for round in 0..20u8 {
        passing.write(0, &vec![round; 1 << 20]).unwrap();
        let region = b.engine.register(&passing).unwrap();
        let descriptor = b.engine.descriptor(region).unwrap();
        to_b.import(&descriptor).unwrap();
        let whole = operation(Kind::Read, a.at(0), passing.address(), MIB);
        let ids = [(); 3].map(|()| to_b.submit(&[whole], &Options::default()).unwrap());
        b.engine.deregister(region).unwrap();
        // Memory that is used again.
        passing.write(0, &vec![0xff; 1 << 20]).unwrap();
        for id in ids {
            let outcome = a.concluded(id);
            assert!(
                matches!(outcome, Outcome::Done | Outcome::Failed),
                "{outcome:?}"
            );
            let bytes = a.bytes();
            let none = bytes.iter().all(|byte| *byte != 0xff);
            assert!(none, "a byte of later came");
            a.engine.release(id).unwrap();
        }
        to_b.forget(descriptor.address);
    }
}

#[test]
fn a_cancel_and_a_deadline_end_a_transfer_whose_slices_are_long() {
    let long = |name| {
        let config = on(EnginePath::Local, name);
        config
            .with_slice(1 << 29)
            .with_fragment(0)
            .with_grace(SHORT)
    };
    let bytes = 64 * MIB;
    let a = End::new(long("a"), bytes);
    let b = End::new(long("b"), bytes);
    let [to_b, _] = connect(&a, &b);
    let many: Vec<Operation> = (0..4096)
        .map(|_| operation(Kind::Write, a.at(0), b.at(0), bytes))
        .collect();
    for with_deadline in [false, true] {
        let options = if with_deadline {
            Options::default().with_deadline(Some(Duration::from_millis(1)))
        } else {
            Options::default()
        };
        let id = to_b.submit(&many, &options).unwrap();
        if !with_deadline {
            a.engine.cancel(id).unwrap();
        }
        let expected = if with_deadline {
            Outcome::TimedOut
        } else {
            Outcome::Cancelled
        };
        assert_eq!(a.concluded(id), expected);
        let report = a.engine.report(id).unwrap();
        assert!(report.bytes_landed < 4096 * bytes, "{report:?}");
        a.fill(1);
        // Nothing more is written, and what follows goes on by the same path.
        assert_eq!(to_b.path(), PeerPath::Process);
        let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
    }
}

#[test]
fn the_end_of_a_peer_of_this_process_ends_its_transfers() {
    let (a, b, [to_b, _]) = pair(PATHS[1], 64 * MIB);
    let many: Vec<Operation> = (0..4096)
        .map(|_| operation(Kind::Write, a.at(0), b.at(0), 64 * MIB))
        .collect();
    let id = to_b.submit(&many, &Options::default()).unwrap();
    assert_eq!(b.engine.close().cut_off, 0);
    assert_eq!(a.concluded(id), Outcome::Failed);
    let refused = to_b.write(a.at(0), b.at(0), 8);
    assert!(
        matches!(refused, Err(EngineError::PeerGone { .. })),
        "{refused:?}"
    );
    assert!(a.engine.peer_gone(HANG).is_some());
}

#[test]
fn notices_come_behind_the_bytes_and_statuses_are_the_same() {
    let (a, b, [to_b, _]) = pair(PATHS[1], MIB);
    for round in 0..50u64 {
        let expected = a.fill(round);
        let whole = operation(Kind::Write, a.at(0), b.at(0), MIB);
        let id = to_b
            .submit(
                &[whole],
                &Options::default().with_notice(Some(&round.to_le_bytes())),
            )
            .unwrap();
        let notice = b.engine.notice(HANG).expect("it comes");
        assert_eq!(*notice.bytes, round.to_le_bytes());
        assert_eq!(notice.transfer.unwrap().outcome, Outcome::Done);
        assert!(b.bytes() == expected);
        assert_eq!(a.concluded(id), Outcome::Done);
        a.engine.release(id).unwrap();
        assert_eq!(a.engine.poll(id), Ok(Status::Unknown));
    }
    let nothing = operation(Kind::Read, a.at(0), b.at(0), 0);
    let id = to_b.submit(&[nothing], &Options::default()).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
}

#[test]
fn an_engine_of_the_nic_alone_refuses_one_that_wants_no_nic() {
    let a = End::over(
        HcaConfig::default(),
        on(EnginePath::Local, "a"),
        HostMemory::shared(4096).unwrap(),
    );
    let b = End::new(on(EnginePath::Nic, "b"), 4096);
    let address = crate::rig::listens(&b.engine).to_string();
    let refused = a.engine.connect(&address).unwrap_err();
    let expected = EngineError::NotLocal {
        peer: "b".to_owned(),
        reason: "its path is nic".to_owned(),
    };
    assert!(
        matches!(&refused, HostError::Refused(error) if *error == expected),
        "{refused}"
    );
}
