//! Keys of their own for peers: what they let a peer do and where. Each is one command, and no peer reads by a key that has
//! ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mlx5_prm::cmd::Opcode;
use softhca::HcaConfig;
use test_basics::limits::until;
use test_support::counts::seeds;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    EngineConfig, EngineError, Grant, HostError, Kind, Operation, Options, Outcome, Peer, Remote,
    Rights, TransferId,
};

use crate::drivers::{access, keeps_order};
use crate::rig::{End, SHORT, config, connect, listens};

const MIB: u64 = 1 << 20;
/// A range that is granted: it neither begins nor ends at a page.
const FIRST: u64 = 5000;
const BYTES: u64 = 70_001;

/// A reader and an owner, by memory or by packets.
fn ends(loopback: bool, reader: EngineConfig) -> (End, End, [Peer; 2]) {
    let hca = HcaConfig {
        loopback,
        ..HcaConfig::default()
    };
    let a = End::on(hca.clone(), reader, MIB);
    let b = End::on(hca, config("b"), MIB);
    let address = listens(&b.engine);
    let to_b = a.engine.connect(&address.to_string()).unwrap();
    let to_a = b.engine.accept(HANG).expect("it has connected");
    (a, b, [to_b, to_a])
}

fn refused(result: Result<impl std::fmt::Debug, HostError>) -> EngineError {
    match result.unwrap_err() {
        HostError::Refused(error) => error,
        other => panic!("{other}"),
    }
}

/// The transfer has failed at the peer's HCA, by its refusal, and nothing is under way.
fn assert_no_access(end: &End, id: TransferId) {
    assert_eq!(end.concluded(id), Outcome::Failed);
    let report = end.engine.report(id).unwrap();
    let first = report.first.expect("it is reported");
    assert_eq!(first.cause.expect("it was posted").syndrome, access());
    assert_eq!(report.remote, Remote::Quiet);
    end.engine.release(id).unwrap();
}

fn done(end: &End, id: TransferId) {
    assert_eq!(end.concluded(id), Outcome::Done);
    end.engine.release(id).unwrap();
}

fn opcodes(end: &End) -> Vec<Opcode> {
    let commands = end.hca.recorded_commands();
    let opcode = |command: &Vec<u8>| Opcode(u16::from_be_bytes([command[0], command[1]]));
    commands.iter().map(opcode).collect()
}

#[test]
fn a_key_for_a_peer_is_one_command_and_so_is_its_end() {
    let (_a, b, [_, to_a]) = ends(true, config("a"));
    let keys = b.hca.live_objects().mkey;
    let regions = b.hca.live_objects().mr;
    let mut grants = Vec::new();
    for nth in 0..10 {
        b.hca.record_commands();
        let grant = to_a.grant(b.at(nth), 8, Rights::Read, None).unwrap();
        assert_eq!(opcodes(&b), [Opcode::CREATE_MKEY]);
        grants.push(grant);
    }
    b.hca.record_commands();
    let whole = to_a.export(b.region).unwrap();
    assert_eq!(opcodes(&b), [Opcode::CREATE_MKEY]);
    assert_eq!((whole.bytes, whole.rights), (MIB, Rights::Both));
    grants.push(whole);
    assert_eq!(b.hca.live_objects().mkey, keys + 11);
    assert_eq!(
        b.hca.live_objects().mr,
        regions,
        "nothing more is registered"
    );
    assert_eq!(b.engine.grants(), 11);
    for grant in &grants {
        b.hca.record_commands();
        b.engine.revoke(grant).unwrap();
        assert_eq!(opcodes(&b), [Opcode::DESTROY_MKEY]);
    }
    // Once more it is no command.
    b.hca.record_commands();
    b.engine.revoke(&grants[0]).unwrap();
    assert_eq!(opcodes(&b), []);
    assert_eq!((b.hca.live_objects().mkey, b.engine.grants()), (keys, 0));
}

#[test]
pub(crate) fn a_grant_lets_its_peer_do_what_it_says_from_its_first_byte_to_its_last() {
    for loopback in [true, false] {
        let (a, b, [to_b, to_a]) = ends(loopback, config("a"));
        for (round, rights) in [Rights::Read, Rights::Write, Rights::Both]
            .into_iter()
            .enumerate()
        {
            let mut there = b.fill(round as u64);
            let here = a.fill(100 + round as u64);
            let grant = to_a.grant(b.at(FIRST), BYTES, rights, None).unwrap();
            let carried = Grant::from_bytes(&grant.to_bytes()).unwrap();
            to_b.import_grant(&carried).unwrap();
            to_b.import_grant(&carried).unwrap();
            let [first, bytes] = [FIRST, BYTES].map(|it| usize::try_from(it).unwrap());
            let places = first..first + bytes;
            for kind in [Kind::Write, Kind::Read] {
                let whole = Operation {
                    kind,
                    local: a.at(FIRST),
                    remote: grant.address,
                    bytes: BYTES,
                };
                if !rights.allow(kind) {
                    let wrong = EngineError::Right {
                        operation: 1,
                        kind,
                        rights,
                    };
                    let none = Operation { bytes: 0, ..whole };
                    let both = [none, whole];
                    let refused = to_b.submit(&both, &Options::default()).unwrap_err();
                    assert_eq!(refused, wrong);
                    assert_eq!(to_b.prepare(&both).unwrap_err(), wrong);
                    continue;
                }
                done(&a, to_b.submit(&[whole], &Options::default()).unwrap());
                match kind {
                    Kind::Write => there[places.clone()].copy_from_slice(&here[places.clone()]),
                    Kind::Read => assert!(a.bytes()[places.clone()] == there[places.clone()]),
                }
                assert!(b.bytes() == there, "{rights:?} {kind:?}");
                for (at, bytes) in [(BYTES, 1), (BYTES - 1, 2), (0, BYTES + 1)] {
                    let beyond = Operation {
                        remote: grant.address + at,
                        bytes,
                        ..whole
                    };
                    let refused = to_b.submit(&[beyond], &Options::default()).unwrap_err();
                    assert!(
                        matches!(refused, EngineError::NotRegistered { .. }),
                        "{refused}"
                    );
                }
            }
            b.engine.revoke(&grant).unwrap();
            to_b.forget(grant.address);
        }
    }
}

#[test]
pub(crate) fn the_hca_refuses_more_than_was_granted_and_the_connection_goes_on() {
    for (loopback, qps) in [(true, 1), (true, 4), (false, 4)] {
        let (a, b, [to_b, to_a]) = ends(loopback, config("a").with_qps(qps));
        let mut there = b.fill(1);
        a.fill(2);
        let ranges = [
            (Kind::Write, Rights::Read, 0, BYTES),
            (Kind::Read, Rights::Write, 0, BYTES),
            (Kind::Read, Rights::Read, BYTES, 1),
            (Kind::Read, Rights::Read, BYTES - 1, 2),
            (Kind::Write, Rights::Both, BYTES - 1, 70_000),
        ];
        for (kind, rights, at, bytes) in ranges {
            let grant = to_a.grant(b.at(FIRST), BYTES, rights, None).unwrap();
            let forged = Grant {
                bytes: BYTES + 100_000,
                rights: Rights::Both,
                ..grant
            };
            to_b.import_grant(&forged).unwrap();
            let before = a.bytes();
            let wrong = Operation {
                kind,
                local: a.at(0),
                remote: grant.address + at,
                bytes,
            };
            let id = to_b.submit(&[wrong], &Options::default()).unwrap();
            assert_no_access(&a, id);
            let (mut near, mut far) = (before, there);
            if !keeps_order() && rights.allow(kind) {
                // A part that keeps within the grant may land before another is refused.
                let part = usize::try_from(BYTES - at).unwrap();
                let [at_near, at_far] = [0, FIRST + at].map(|it| usize::try_from(it).unwrap());
                let (read, written) = (a.bytes(), b.bytes());
                if kind == Kind::Read {
                    near[at_near..][..part].copy_from_slice(&read[at_near..][..part]);
                } else {
                    far[at_far..][..part].copy_from_slice(&written[at_far..][..part]);
                }
            }
            assert!(b.bytes() == far, "{loopback} {kind:?} {at} {bytes}");
            assert!(a.bytes() == near, "{loopback} {kind:?} {at} {bytes}");
            there = far;
            assert!(to_b.is_open() && to_a.is_open());
            to_b.forget(grant.address);
            // Allowed operations are done all the same.
            if rights.allow(Kind::Read) {
                to_b.import_grant(&grant).unwrap();
                done(&a, to_b.read(a.at(0), grant.address, BYTES).unwrap());
                to_b.forget(grant.address);
            }
        }
    }
}

#[test]
pub(crate) fn an_ended_key_lets_no_peer_in_even_where_another_has_its_number() {
    for loopback in [true, false] {
        let (a, b, [to_b, to_a]) = ends(loopback, config("a"));
        b.fill(1);
        let old = to_a.grant(b.at(0), 4096, Rights::Both, None).unwrap();
        to_b.import_grant(&old).unwrap();
        done(&a, to_b.read(a.at(0), old.address, 4096).unwrap());
        b.engine.revoke(&old).unwrap();
        assert_no_access(&a, to_b.read(a.at(0), old.address, 4096).unwrap());
        to_b.forget(old.address);
        // The same bytes again: another key, other addresses.
        let new = to_a.grant(b.at(0), 4096, Rights::Both, None).unwrap();
        assert_ne!((new.address, new.number), (old.address, old.number));
        // As if it had got the very number of the old one.
        let alias = Grant {
            rkeys: new.rkeys,
            ..old
        };
        to_b.import_grant(&alias).unwrap();
        let before = (a.bytes(), b.bytes());
        assert_no_access(&a, to_b.read(a.at(8192), alias.address, 4096).unwrap());
        assert_no_access(&a, to_b.write(a.at(8192), alias.address, 4096).unwrap());
        assert!((a.bytes(), b.bytes()) == before);
        to_b.import_grant(&new).unwrap();
        done(&a, to_b.read(a.at(0), new.address, 4096).unwrap());
    }
}

#[test]
pub(crate) fn a_region_stays_as_long_as_it_is_granted() {
    let (_a, b, [_, to_a]) = ends(true, config("a"));
    let grants = [0, 8].map(|at| to_a.grant(b.at(at), 8, Rights::Read, None).unwrap());
    let number = b.region.number();
    let users = 2;
    assert_eq!(
        refused(b.engine.deregister(b.region)),
        EngineError::Busy { number, users }
    );
    b.engine.revoke(&grants[0]).unwrap();
    let late = refused(b.engine.deregister_wait(b.region, SHORT));
    assert_eq!(late, EngineError::Busy { number, users: 1 });
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| b.engine.deregister_wait(b.region, HANG));
        b.engine.revoke(&grants[1]).unwrap();
        waiter.join().unwrap().unwrap();
    });
    let gone = refused(b.engine.deregister_wait(b.region, HANG));
    assert_eq!(gone, EngineError::UnknownRegion { number });
    let (address, bytes) = (b.at(0), 8);
    let range = refused(to_a.grant(address, bytes, Rights::Read, None));
    assert_eq!(range, EngineError::GrantRange { address, bytes });
}

#[test]
fn keys_end_with_their_connection_and_with_the_engine() {
    let (a, b, [to_b, to_a]) = ends(true, config("a"));
    let c = End::new(config("c"), MIB);
    let [to_c, from_c] = connect(&b, &c);
    let old = to_a.grant(b.at(0), 4096, Rights::Read, None).unwrap();
    to_a.export(b.region).unwrap();
    let kept = to_c.grant(b.at(0), 4096, Rights::Read, None).unwrap();
    assert_eq!(to_b.close(), 0);
    b.engine.peer_gone(HANG).expect("a is gone");
    assert_eq!(b.engine.grants(), 1, "that of c");
    let gone = refused(to_a.grant(b.at(0), 8, Rights::Read, None));
    let peer = "a".to_owned();
    assert_eq!(gone, EngineError::PeerGone { peer });
    // The same lives connect again: earlier grants have ended all the same.
    let address = listens(&b.engine).to_string();
    let again = a.engine.connect(&address).unwrap();
    again.import_grant(&old).unwrap();
    assert_no_access(&a, again.read(a.at(0), old.address, 4096).unwrap());
    from_c.import_grant(&kept).unwrap();
    done(&c, from_c.read(c.at(0), kept.address, 4096).unwrap());
    let keys = b.hca.live_objects().mkey;
    assert_eq!(b.engine.close().cut_off, 0);
    assert_eq!(b.hca.live_objects().mkey, keys - 1);
    assert_eq!(b.engine.grants(), 0);
    let closed = refused(to_c.grant(b.at(0), 8, Rights::Read, None));
    assert_eq!(closed, EngineError::Closing);
}

#[test]
fn what_cannot_be_granted_or_taken_is_refused() {
    let (a, b, [to_b, to_a]) = ends(true, config("a"));
    let end = b.at(0) + MIB;
    for (address, bytes) in [
        (b.at(0), 0),
        (b.at(0), MIB + 1),
        (b.at(1), MIB),
        (end, 1),
        (b.at(0) - 1, 2),
        (u64::MAX, 2),
        (8, u64::MAX),
    ] {
        let range = refused(to_a.grant(address, bytes, Rights::Both, None));
        assert_eq!(range, EngineError::GrantRange { address, bytes });
    }
    let none = refused(to_a.grant(b.at(0), 8, Rights::Read, Some(Duration::ZERO)));
    assert_eq!(none, EngineError::TimeToLive);
    // A time that ends after the last instant is none.
    let grant = to_a
        .grant(end - 1, 1, Rights::Read, Some(Duration::MAX))
        .unwrap();
    for number in [0, grant.number + 1, u64::MAX] {
        let unknown = refused(b.engine.revoke(&Grant { number, ..grant }));
        assert_eq!(unknown, EngineError::UnknownGrant { number });
    }
    let number = grant.number;
    let not_its_own = refused(a.engine.revoke(&grant));
    assert_eq!(not_its_own, EngineError::UnknownGrant { number });
    let [own, peer] = [&a, &b].map(|end| end.engine.incarnation());
    let found = 7;
    let other_owner = to_b.import_grant(&Grant {
        owner: found,
        ..grant
    });
    assert_eq!(other_owner, Err(EngineError::Incarnation { found, peer }));
    let other_peer = to_b.import_grant(&Grant {
        peer: found,
        ..grant
    });
    assert_eq!(other_peer, Err(EngineError::ForeignGrant { found, own }));
    to_b.import_grant(&grant).unwrap();
    let mut rkeys = *grant.rkeys.all();
    rkeys[0] ^= 1;
    let rkeys = rkeys.into();
    let (address, bytes) = (grant.address, grant.bytes);
    let overlap = to_b.import_grant(&Grant { rkeys, ..grant });
    assert_eq!(overlap, Err(EngineError::Overlap { address, bytes }));
    // The HCA refuses to make a key, and to end one.
    b.hca.set_faults(&"cmd=CREATE_MKEY#1".parse().unwrap());
    let made = to_a.grant(b.at(0), 8, Rights::Read, None).unwrap_err();
    assert!(matches!(made, HostError::Provider(_)), "{made}");
    assert_eq!(b.engine.grants(), 1);
    b.hca.set_faults(&"cmd=DESTROY_MKEY#1".parse().unwrap());
    let ended = b.engine.revoke(&grant).unwrap_err();
    assert!(matches!(ended, HostError::Provider(_)), "{ended}");
    done(&a, to_b.read(a.at(0), grant.address, 1).unwrap());
    b.engine.revoke(&grant).unwrap();
    assert_no_access(&a, to_b.read(a.at(0), grant.address, 1).unwrap());
}

/// What the owner writes for the reader, what it writes when the key has ended, and what others are granted.
const GOOD: u8 = 0x11;
const LATE: u8 = 0xee;
const OTHERS: u8 = 0xbb;
/// Bytes of a read, and reads of a round.
const READ_LENGTH: usize = 16 << 10;
const READ: u64 = READ_LENGTH as u64;
const READS: u64 = 50;

#[test]
pub(crate) fn no_read_that_races_with_a_revocation_returns_a_byte_written_later() {
    // 10,000 reads with WV_TEST_FULL, half of them by packets.
    let mut outcomes = [0u64; 2];
    for loopback in [true, false] {
        let (a, b, [to_b, to_a]) = ends(loopback, config("a"));
        let c = End::new(config("c"), MIB);
        let [to_c, _] = connect(&b, &c);
        let zeros = vec![0; a.bytes().len()];
        b.memory.write(READ, &[OTHERS; READ_LENGTH]).unwrap();
        for round in seeds(10, 100) {
            a.memory.write(0, &zeros).unwrap();
            b.memory.write(0, &[GOOD; READ_LENGTH]).unwrap();
            let grant = to_a.grant(b.at(0), READ, Rights::Read, None).unwrap();
            to_b.import_grant(&grant).unwrap();
            let posted = AtomicU64::new(0);
            let ids: Vec<TransferId> = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let read = |nth: u64| {
                        let id = to_b.read(a.at(nth * READ), grant.address, READ).unwrap();
                        posted.fetch_add(1, Ordering::SeqCst);
                        id
                    };
                    (0..READS).map(read).collect()
                });
                until("some reads have begun", || {
                    posted.load(Ordering::SeqCst) >= round * 7 % READS
                });
                b.engine.revoke(&grant).unwrap();
                b.memory.write(0, &[LATE; READ_LENGTH]).unwrap();
                let other = to_c.grant(b.at(READ), READ, Rights::Read, None).unwrap();
                let ids = reader.join().unwrap();
                b.engine.revoke(&other).unwrap();
                ids
            });
            let late = to_b.read(a.at(READS * READ), grant.address, READ).unwrap();
            // A read before it may have taken the QP along.
            assert_eq!(a.concluded(late), Outcome::Failed);
            a.engine.release(late).unwrap();
            for id in ids {
                let outcome = a.concluded(id);
                outcomes[usize::from(outcome == Outcome::Done)] += 1;
                a.engine.release(id).unwrap();
            }
            let later = to_b.read(a.at(READS * READ), grant.address, READ).unwrap();
            assert_no_access(&a, later);
            let wrong = |byte: &u8| !matches!(*byte, 0 | GOOD);
            let found = a.bytes().into_iter().find(wrong);
            assert_eq!(found, None, "loopback {loopback}, round {round}");
            to_b.forget(grant.address);
        }
        assert!(to_b.is_open() && to_a.is_open());
    }
    println!("{} reads were done, {} failed", outcomes[1], outcomes[0]);
}

#[test]
fn what_is_refused_before_the_other_end_sends_leaves_the_connection() {
    // An end that sends may ask before the other end's QP has left Rtr, which then fails as that. The window is short: each round tries it.
    for qps in [1, 2] {
        let (a, b) = (
            End::new(config("a").with_qps(qps), MIB),
            End::new(config("b"), MIB),
        );
        let [to_b, to_a] = connect(&a, &b);
        let old = to_a.grant(b.at(0), 4096, Rights::Read, None).unwrap();
        b.engine.revoke(&old).unwrap();
        let address = listens(&b.engine).to_string();
        for _ in 0..50 {
            let again = a.engine.connect(&address).unwrap();
            // All connections to this life of the peer have it.
            again.import_grant(&old).unwrap();
            assert_no_access(&a, again.read(a.at(0), old.address, 64).unwrap());
            let from_a = b.engine.accept(HANG).expect("it has connected");
            assert!(again.is_open() && from_a.is_open());
            done(&a, again.write(a.at(0), b.at(0), 64).unwrap());
            assert_eq!(again.close(), 0);
        }
        assert!(to_b.is_open());
    }
}
