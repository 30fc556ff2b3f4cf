//! What a program holds of one engine and gives to another of the same process: it is refused by name, and nothing has changed.

use std::collections::HashSet;
use std::sync::Arc;

use warpverbs::internal::engine::{
    EngineError, HostError, HostMemory, Kind, Operation, Options, Outcome, Peer, RegionId, Side,
    ways,
};

use super::rig::{End, SHORT, config, connect, pair};

const MIB: u64 = 1 << 20;

/// Returns what every call says of this region that takes one.
fn answers(end: &End, peer: &Peer, region: RegionId) -> Vec<EngineError> {
    let engine = &end.engine;
    let results = [
        engine.descriptor(region).map(|_| ()),
        engine.deregister(region),
        engine.deregister_wait(region, SHORT),
        peer.export(region).map(|_| ()),
        ways(engine, region).map(|_| ()),
    ];
    let refused = results.map(|result| match result {
        Err(HostError::Refused(error)) => error,
        other => panic!("{region:?}: {other:?}"),
    });
    refused.to_vec()
}

/// Both memories are registered, and bytes go both ways between them.
fn assert_whole(a: &End, b: &End, [to_b, to_a]: &[Peer; 2]) {
    for (from, to, peer, seed) in [(a, b, to_b, 1), (b, a, to_a, 2)] {
        let expected = from.fill(seed);
        let id = peer.write(from.at(0), to.at(0), MIB).unwrap();
        assert_eq!(from.concluded(id), Outcome::Done);
        assert!(to.bytes() == expected);
        let descriptor = from.engine.descriptor(from.region).unwrap();
        assert_eq!((descriptor.address, descriptor.bytes), (from.at(0), MIB));
        assert_eq!(from.engine.grants(), 0);
    }
}

#[test]
fn a_region_of_another_engine_is_refused_by_every_call_and_stays() {
    let (a, b, peers) = pair(MIB);
    let before = [&a, &b].map(|end| end.hca.live_objects().mr);
    let mut named = Vec::new();
    for (asked, peer, region) in [(&a, &peers[0], b.region), (&b, &peers[1], a.region)] {
        for refused in answers(asked, peer, region) {
            let text = refused.to_string();
            let EngineError::ForeignRegion {
                number,
                named: of,
                engine,
            } = refused
            else {
                panic!("{text}");
            };
            assert_eq!(number, region.number());
            for words in [
                format!("names engine {of} of this"),
                format!("and engine {engine} was asked"),
            ] {
                assert!(text.contains(&words), "{text}");
            }
            named.push([of, engine]);
        }
    }
    let (of_a, of_b) = named.split_at(named.len() / 2);
    let [theirs, own] = of_a[0];
    assert_ne!(theirs, own);
    assert!(of_a.iter().all(|it| *it == [theirs, own]));
    assert!(of_b.iter().all(|it| *it == [own, theirs]));
    let after = [&a, &b].map(|end| end.hca.live_objects().mr);
    assert_eq!(after, before, "nothing was registered or taken away");
    assert_whole(&a, &b, &peers);
    // One that its engine has taken away is still of that engine.
    let inside = Arc::new(HostMemory::new(4096).unwrap());
    let gone = b.engine.register(&inside).unwrap();
    b.engine.deregister(gone).unwrap();
    for refused in answers(&a, &peers[0], gone) {
        let is_foreign = matches!(refused, EngineError::ForeignRegion { .. });
        assert!(is_foreign, "{refused}");
    }
}

#[test]
fn a_number_that_was_never_given_names_no_region() {
    let (a, b, peers) = pair(MIB);
    let own = a.region.number();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let made_up = std::iter::repeat_with(|| random.u64(..)).take(50);
    let few = [
        0,
        1,
        2,
        77,
        u64::MAX,
        own + 1,
        own - 1,
        own ^ 1 << 20,
        own ^ 1 << 39,
    ];
    for number in few.into_iter().chain(made_up) {
        let region = RegionId::of_number(number);
        for refused in answers(&a, &peers[0], region) {
            let found = match refused {
                EngineError::UnknownRegion { number: found } => found,
                EngineError::ForeignRegion { number: found, .. } => {
                    assert_ne!(found >> 40, own >> 40, "seed {seed}");
                    found
                }
                other => panic!("{number}: {other}, seed {seed}"),
            };
            assert_eq!(found, number, "seed {seed}");
        }
    }
    let unknown = EngineError::UnknownRegion { number: 0 };
    let zero = answers(&a, &peers[0], RegionId::of_number(0));
    assert!(zero.iter().all(|refused| *refused == unknown), "{zero:?}");
    assert_whole(&a, &b, &peers);
}

#[test]
fn a_region_that_was_taken_away_is_unknown_and_its_number_not_used_again() {
    let (a, b, peers) = pair(MIB);
    let mut seen = HashSet::from([a.region, b.region]);
    for _ in 0..100 {
        for (end, peer) in [(&a, &peers[0]), (&b, &peers[1])] {
            let region = end.engine.register(&end.memory).unwrap();
            assert!(region.number() > 0 && seen.insert(region), "{region:?}");
            end.engine.deregister(region).unwrap();
            let number = region.number();
            for refused in answers(end, peer, region) {
                assert_eq!(refused, EngineError::UnknownRegion { number });
            }
        }
    }
    let mut memories = [&a, &b].map(|end| Arc::clone(&end.memory)).to_vec();
    memories.push(Arc::clone(&a.memory));
    for end in [&a, &b] {
        for region in end.engine.register_all(&memories).unwrap() {
            assert!(seen.insert(region), "{region:?}");
        }
    }
    assert_whole(&a, &b, &peers);
    // A closed engine knows whose a region is.
    assert_eq!(b.engine.close().cut_off, 0);
    let number = b.region.number();
    let unknown = EngineError::UnknownRegion { number };
    let refused = b.engine.descriptor(b.region).unwrap_err();
    assert!(matches!(refused, HostError::Refused(error) if error == unknown));
    let refused = b.engine.descriptor(a.region).unwrap_err();
    let foreign = |error: &EngineError| matches!(error, EngineError::ForeignRegion { .. });
    assert!(
        matches!(&refused, HostError::Refused(error) if foreign(error)),
        "{refused}"
    );
}

/// Both engines are connected to a third.
#[test]
fn a_transfer_that_another_engine_has_prepared_is_not_posted() {
    let ends = ["a", "b", "c"].map(|name| End::new(config(name), MIB));
    let [a, b, c] = &ends;
    let [from_a, _] = connect(a, c);
    let [from_b, _] = connect(b, c);
    let whole = |end: &End| {
        [Operation {
            kind: Kind::Write,
            local: end.at(0),
            remote: c.at(0),
            bytes: MIB,
        }]
    };
    let prepared = from_a.prepare(&whole(a)).unwrap();
    let options = Options::default();
    a.fill(7);
    let before = c.bytes();
    let post = from_b.post(&prepared, &options).unwrap_err();
    let wait = from_b
        .post(&prepared, &options.with_wait(SHORT))
        .unwrap_err();
    let notify = from_b
        .post(&prepared, &options.with_notice(Some(b"n")))
        .unwrap_err();
    for refused in [post, wait, notify] {
        let text = refused.to_string();
        let EngineError::PreparedElsewhere { by, engine } = refused else {
            panic!("{text}");
        };
        assert_ne!(by, engine);
        for words in [format!("engine {by} of"), format!("by engine {engine}:")] {
            assert!(text.contains(&words), "{text}");
        }
    }
    assert_eq!((a.engine.in_use(), b.engine.in_use()), (0, 0));
    assert!(c.engine.notice(SHORT).is_none());
    assert!(c.bytes() == before, "nothing was written");
    // Both go on, each with its own.
    for (end, peer, prepared) in [
        (a, &from_a, prepared),
        (b, &from_b, from_b.prepare(&whole(b)).unwrap()),
    ] {
        let expected = end.fill(8);
        let id = peer.post(&prepared, &options).unwrap();
        assert_eq!(end.concluded(id), Outcome::Done);
        assert!(c.bytes() == expected);
    }
}

#[test]
fn a_prepared_transfer_whose_memory_was_taken_away_says_which_memory() {
    let (a, b, [to_b, _]) = pair(MIB);
    let other = Arc::new(HostMemory::new(4096).unwrap());
    let region = a.engine.register(&other).unwrap();
    let write = |local, remote, bytes| Operation {
        kind: Kind::Write,
        local,
        remote,
        bytes,
    };
    let address = other.address() + 8;
    let both = [write(a.at(0), b.at(0), 16), write(address, b.at(64), 16)];
    let prepared = to_b.prepare(&both).unwrap();
    a.engine.deregister(region).unwrap();
    let refused = to_b.post(&prepared, &Options::default()).unwrap_err();
    let expected = EngineError::NotRegistered {
        operation: 1,
        side: Side::Local,
        address,
    };
    assert_eq!(refused, expected);
    assert_eq!(a.engine.in_use(), 0);
    // Nothing keeps the region that it had entered.
    a.engine.deregister(a.region).unwrap();
}
