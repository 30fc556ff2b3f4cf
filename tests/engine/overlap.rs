//! Transfers within the memory of one process, whose sources are their targets too.

use warpverbs::internal::engine::{EngineError, Kind, Operation, Options, Outcome};

use crate::rig::{End, config, pair};

const MIB: u64 = 1 << 20;

fn of(kind: Kind, local: u64, remote: u64, bytes: u64) -> Operation {
    Operation {
        kind,
        local,
        remote,
        bytes,
    }
}

#[test]
fn a_read_into_itself_is_refused_and_a_write_onto_itself_reported() {
    let (a, b, [to_b, _]) = pair(MIB);
    // The peer offers memory that this side has registered too.
    let shared = b.engine.register(&a.memory).unwrap();
    to_b.import(&b.engine.descriptor(shared).unwrap()).unwrap();
    let read = |local: u64, remote: u64, bytes| of(Kind::Read, a.at(local), a.at(remote), bytes);
    let write = |local: u64, remote: u64, bytes| of(Kind::Write, a.at(local), a.at(remote), bytes);
    let submit = |operations: &[Operation]| to_b.submit(operations, &Options::default());
    for operations in [
        &[read(0, 0, 1)][..],
        &[read(64, 0, 65)],
        &[read(0, 64, 65)],
        // Each for itself would do.
        &[read(0, 100, 8), read(107, 300, 8)],
    ] {
        let refused = submit(operations).unwrap_err();
        let is_named = matches!(refused, EngineError::ReadIntoItself { .. });
        assert!(is_named, "{operations:?}: {refused}");
        assert_eq!(to_b.prepare(operations).unwrap_err(), refused);
    }
    assert_eq!(a.engine.in_use(), 0, "nothing was begun");
    // Its neighbours are no part of a range.
    let before = a.fill(3);
    let id = submit(&[read(0, 64, 64)]).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    assert!(!a.engine.report(id).unwrap().overlaps);
    assert_eq!(a.bytes()[..64], before[64..128]);
    // Source and target are the same bytes, so they stay.
    let onto_itself = to_b.prepare(&[write(512, 512, 4096)]).unwrap();
    let before = a.fill(4);
    for id in [
        submit(&[write(512, 512, 4096)]).unwrap(),
        to_b.post(&onto_itself, &Options::default()).unwrap(),
    ] {
        assert_eq!(a.concluded(id), Outcome::Done);
        assert!(a.engine.report(id).unwrap().overlaps);
        assert!(a.bytes() == before);
    }
    let id = submit(&[write(0, 4096, 4096)]).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    assert!(!a.engine.report(id).unwrap().overlaps);
}

#[test]
fn an_engine_that_is_its_own_peer_is_checked_too() {
    let a = End::new(config("a"), MIB);
    let address = crate::rig::listens(&a.engine);
    let own = a.engine.connect(&address.to_string()).unwrap();
    own.import(&a.engine.descriptor(a.region).unwrap()).unwrap();
    let refused = own.read(a.at(0), a.at(8), 9).unwrap_err();
    let expected = EngineError::ReadIntoItself {
        operation: 0,
        reader: 0,
        address: a.at(8),
    };
    assert_eq!(refused, expected);
    let before = a.fill(5);
    let id = own.read(a.at(0), a.at(8), 8).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    assert_eq!(a.bytes()[..8], before[8..16]);
}
