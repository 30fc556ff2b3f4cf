//! Connections that end and are made again: what goes on, what is stale, which programs hear of it, and the reason of a refusal.

use std::io::Write;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use test_basics::limits::until;
use test_support::limits::HANG;
use warpverbs::internal::engine::{EngineError, Kind, Operation, Options, Outcome, Peer, Remote};

use crate::rig::{End, LOOPBACK, SHORT, as_other, config, frame, listens, message};

const MIB: u64 = 1 << 20;

fn whole(a: &End, b: &End) -> Operation {
    Operation {
        kind: Kind::Write,
        local: a.at(0),
        remote: b.at(0),
        bytes: MIB,
    }
}

fn import(peer: &Peer, end: &End) {
    let descriptor = end.engine.descriptor(end.region).unwrap();
    peer.import(&descriptor).unwrap();
}

#[test]
pub(crate) fn with_the_same_life_of_a_peer_its_regions_and_what_was_prepared_go_on() {
    let (a, b) = (End::new(config("a"), MIB), End::new(config("b"), MIB));
    let address = listens(&b.engine).to_string();
    let first = a.engine.connect(&address).unwrap();
    import(&first, &b);
    let prepared = first.prepare(&[whole(&a, &b)]).unwrap();
    for round in 0..4 {
        first.break_off();
        let again = a.engine.connect(&address).unwrap();
        let expected = a.fill(round);
        let ids = [
            again.post(&prepared, &Options::default()).unwrap(),
            again.write(a.at(0), b.at(0), MIB).unwrap(),
        ];
        for id in ids {
            assert_eq!(a.concluded(id), Outcome::Done);
        }
        assert!(b.bytes() == expected);
        let gone = first.write(a.at(0), b.at(0), 8).unwrap_err();
        assert!(matches!(gone, EngineError::PeerGone { .. }), "{gone}");
    }
}

#[test]
pub(crate) fn a_new_life_of_a_peer_makes_everything_of_the_old_stale() {
    let a = End::new(config("a"), MIB);
    let old = End::new(config("b"), MIB);
    let address = listens(&old.engine).to_string();
    let before = a.engine.connect(&address).unwrap();
    import(&before, &old);
    let prepared = before.prepare(&[whole(&a, &old)]).unwrap();
    let descriptor = old.engine.descriptor(old.region).unwrap();
    let incarnation = old.engine.incarnation();
    drop(old);
    let gone = a.engine.peer_gone(HANG).expect("it is gone");
    assert_eq!((&*gone.name, gone.incarnation), ("b", incarnation));
    let new = End::new(config("b"), MIB);
    let address = listens(&new.engine).to_string();
    let now = a.engine.connect(&address).unwrap();
    let refused = before.write(a.at(0), new.at(0), 8).unwrap_err();
    assert!(matches!(refused, EngineError::PeerGone { .. }), "{refused}");
    let refused = now.import(&descriptor).unwrap_err();
    let expected = EngineError::Incarnation {
        found: incarnation,
        peer: new.engine.incarnation(),
    };
    assert_eq!(refused, expected);
    let refused = now.post(&prepared, &Options::default()).unwrap_err();
    let expected = EngineError::ForeignPrepared {
        found: incarnation,
        peer: new.engine.incarnation(),
    };
    assert_eq!(refused, expected);
    // Nothing of the old one's memory is known of the new one.
    let refused = now.write(a.at(0), new.at(0), 8).unwrap_err();
    assert!(
        matches!(refused, EngineError::NotRegistered { .. }),
        "{refused}"
    );
    import(&now, &new);
    let id = now.write(a.at(0), new.at(0), MIB).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    assert_eq!(a.engine.peer_gone(SHORT), None, "it was reported once");
}

#[test]
pub(crate) fn a_gone_peer_is_reported_once_behind_the_end_of_its_transfers() {
    let (a, b) = (End::new(config("a"), MIB), End::new(config("b"), MIB));
    let address = listens(&b.engine).to_string();
    let first = a.engine.connect(&address).unwrap();
    let at_b = b.engine.accept(HANG).unwrap();
    let second = a.engine.connect(&address).unwrap();
    let _second_at_b = b.engine.accept(HANG).unwrap();
    import(&first, &b);
    // One of two connections has ended: the peer is still connected.
    first.break_off();
    until("the other end has found out", || !at_b.is_open());
    assert_eq!(b.engine.peer_gone(SHORT), None);
    let id = second.write(a.at(0), b.at(0), MIB).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    // The side that wants the end gets no event.
    assert_eq!(second.close(), 0);
    assert_eq!(a.engine.peer_gone(SHORT), None);
    let gone = b.engine.peer_gone(HANG).expect("a is gone");
    assert_eq!((&*gone.name, gone.remote), ("a", Remote::Quiet));
    assert_eq!(gone.reason, "it has ended it");
    assert_eq!(b.engine.peer_gone(SHORT), None);
    // Its transfers have ended by then.
    let third = a.engine.connect(&address).unwrap();
    let many: Vec<_> = (0..16)
        .map(|_| third.write(a.at(0), b.at(0), MIB).unwrap())
        .collect();
    drop(b);
    let gone = a.engine.peer_gone(HANG).expect("b is gone");
    assert_eq!(gone.name, "b");
    for id in many {
        let status = a.engine.poll(id).unwrap();
        assert_ne!(status, warpverbs::internal::engine::Status::Pending);
    }
    assert_eq!(a.engine.peer_gone(Duration::ZERO), None);
}

#[test]
fn a_refused_peer_gets_the_reason() {
    let b = End::new(config("b").with_peers(1), 4096);
    let address = listens(&b.engine).to_string();
    let a = End::new(config("a"), 4096);
    let _there = a.engine.connect(&address).unwrap();
    for _ in 0..20 {
        let said = a.engine.connect(&address).unwrap_err().to_string();
        assert!(
            said.ends_with("it refuses: this engine has 1 peers, its most"),
            "{said}"
        );
    }
    let twin = End::new(config("a"), 4096);
    let said = twin.engine.connect(&address).unwrap_err().to_string();
    assert!(said.contains("it refuses"), "{said}");
    // The name of a connected one.
    let b = End::new(config("b"), 4096);
    let address = listens(&b.engine).to_string();
    let c = End::new(config("c"), 4096);
    let _there = c.engine.connect(&address).unwrap();
    let twin = End::new(config("c"), 4096);
    for _ in 0..20 {
        let said = twin.engine.connect(&address).unwrap_err().to_string();
        assert!(
            said.ends_with("it refuses: another engine with the name 'c' is connected"),
            "{said}"
        );
    }
}

#[test]
fn a_refusal_is_read_even_if_the_peer_closed_before_the_first_write() {
    let a = End::new(config("a"), 4096);
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let peer = thread::spawn(move || {
        let mut hello = String::new();
        for round in 0..50 {
            let (mut stream, _) = listener.accept().unwrap();
            // What is not read before the end resets the connection: what the other end writes then fails at once.
            if round == 0 {
                hello = as_other(&message(&mut stream), "b");
            }
            // In one: of two, the reset may overtake the second.
            let refused = frame(r#"{"refused":"no room today"}"#);
            let both = [frame(&hello), refused].concat();
            stream.write_all(&both).unwrap();
        }
    });
    for _ in 0..50 {
        let said = a.engine.connect(&address).unwrap_err().to_string();
        assert!(said.ends_with("it refuses: no room today"), "{said}");
    }
    peer.join().unwrap();
}

#[test]
fn an_end_whose_qps_are_not_reset_lets_the_other_not_wait_for_that() {
    for (refused, remotes) in [
        ([false, false], [Remote::Quiet, Remote::Quiet]),
        ([true, false], [Remote::Quiet, Remote::Unknown]),
        ([false, true], [Remote::Unknown, Remote::Quiet]),
        ([true, true], [Remote::Unknown, Remote::Unknown]),
    ] {
        let new = |name| End::new(config(name).with_qps(1), MIB);
        let (a, b) = (new("a"), new("b"));
        let address = listens(&b.engine).to_string();
        let peer = a.engine.connect(&address).unwrap();
        import(&peer, &b);
        for (end, is_refused) in [&a, &b].into_iter().zip(refused) {
            let command = if is_refused {
                ",cmd=TO_RST_QP:status=0x5:syndrome=0x7"
            } else {
                ""
            };
            // The only QP fails, so the connection ends by itself.
            let faults = format!("cqe=wqe#1:syndrome=0x15{command}");
            end.hca.set_faults(&faults.parse().unwrap());
        }
        let id = peer.write(a.at(0), b.at(0), MIB).unwrap();
        assert_eq!(a.concluded(id), Outcome::Failed, "{refused:?}");
        let report = a.engine.report(id).unwrap();
        assert_eq!(report.remote, remotes[0], "{refused:?}");
        for (end, remote) in [&a, &b].into_iter().zip(remotes) {
            let gone = end.engine.peer_gone(HANG).expect("it is gone");
            assert_eq!(gone.remote, remote, "{refused:?}: {gone:?}");
        }
    }
}
