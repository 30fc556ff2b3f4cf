//! Transfers that are cancelled or meet their deadline while the HCA gets no answer. After a grace their QPs are flushed and
//! reset at both ends, and the other transfers of these QPs go on.

use std::time::Duration;

use softhca::HcaConfig;
use softhca::device::FaultSpec;
use test_basics::limits::until;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    EngineConfig, Kind, Operation, Options, Outcome, Peer, Remote, Status,
};
use warpverbs::internal::engine::{OperationStatus, TransferId};

use crate::rig::{End, SHORT, config, connect};

const MIB: u64 = 1 << 20;
const CANARY: u8 = 0xc7;

/// Gives a peer up after 8 times 1 s, longer than any part of a test takes.
fn patient(name: &str) -> EngineConfig {
    let mut config = config(name).with_workers(2);
    config.path.ack_timeout = Some(18);
    config
}

fn pair(grace: Duration) -> (End, End, [Peer; 2]) {
    let hca = HcaConfig {
        loopback: false,
        ..HcaConfig::default()
    };
    let a = End::on(hca.clone(), patient("a").with_grace(grace), 2 * MIB);
    let b = End::on(hca, patient("b"), 2 * MIB);
    let peers = connect(&a, &b);
    (a, b, peers)
}

fn part(end: &End, is_parted: bool) {
    let spec: FaultSpec = if is_parted {
        "partition=*".parse().unwrap()
    } else {
        FaultSpec::default()
    };
    end.hca.set_faults(&spec);
}

/// Moves the first MiB; with a deadline that is over at once, or to be cancelled.
fn submit(a: &End, b: &End, peer: &Peer, kind: Kind, deadline: Option<Duration>) -> TransferId {
    let whole = Operation {
        kind,
        local: a.at(0),
        remote: b.at(0),
        bytes: MIB,
    };
    let options = Options::default().with_deadline(deadline);
    peer.submit(&[whole], &options).unwrap()
}

#[test]
fn behind_the_grace_a_closed_transfer_ends_and_its_buffers_are_quiet() {
    for (kind, is_deadline) in [
        (Kind::Write, false),
        (Kind::Read, false),
        (Kind::Write, true),
    ] {
        let (a, b, [to_b, to_a]) = pair(SHORT);
        part(&b, true);
        let deadline = is_deadline.then_some(SHORT);
        let closed = submit(&a, &b, &to_b, kind, deadline);
        let other = to_b.write(a.at(MIB), b.at(MIB), MIB).unwrap();
        let expected = if is_deadline {
            Outcome::TimedOut
        } else {
            a.engine.cancel(closed).unwrap();
            Outcome::Cancelled
        };
        assert_eq!(a.concluded(closed), expected);
        let report = a.engine.report(closed).unwrap();
        assert_eq!((report.remote, report.bytes_landed), (Remote::Quiet, 0));
        assert_ne!(report.operations, [OperationStatus::Done]);
        // Its buffers are used again at once. What the other has lost it gets from other QPs, or from the same ones later.
        let canary = vec![CANARY; usize::try_from(MIB).unwrap()];
        a.memory.write(0, &canary).unwrap();
        b.memory.write(0, &canary).unwrap();
        let data: Vec<u8> = (0..MIB).map(|at| at.to_le_bytes()[0]).collect();
        a.memory.write(MIB, &data).unwrap();
        part(&b, false);
        assert_eq!(a.concluded(other), Outcome::Done, "{kind:?} {is_deadline}");
        for (end, peer) in [(&a, &to_b), (&b, &to_a)] {
            let bytes = end.bytes();
            assert!(bytes[..canary.len()] == canary, "{kind:?} {is_deadline}");
            assert!(peer.is_open());
        }
        assert!(b.bytes()[canary.len()..] == data);
    }
}

#[test]
fn within_the_grace_a_closed_transfer_waits_for_its_bytes() {
    let (a, b, [to_b, to_a]) = pair(HANG);
    part(&b, true);
    let closed = submit(&a, &b, &to_b, Kind::Write, None);
    a.engine.cancel(closed).unwrap();
    // Either nothing was handed out yet, or what was is waited for.
    let before = a.engine.wait(closed, SHORT).unwrap();
    part(&b, false);
    let outcome = a.concluded(closed);
    match before {
        Status::Pending => assert!(matches!(outcome, Outcome::Cancelled | Outcome::Done)),
        before => assert_eq!(before, Status::Concluded(Outcome::Cancelled)),
    }
    assert_eq!((to_b.resets(), to_a.resets()), (0, 0));
}

#[test]
fn qps_that_a_grace_has_ended_are_used_again() {
    let (a, b, [to_b, to_a]) = pair(SHORT);
    for round in 1..=5u64 {
        let before = to_b.resets();
        part(&b, true);
        // The workers get them in turn, and have posted some when the cancel comes.
        let ids: Vec<_> = (0..64)
            .map(|nth| to_b.write(a.at(8 * nth), b.at(8 * nth), 8).unwrap())
            .collect();
        for id in &ids {
            a.engine.cancel(*id).unwrap();
        }
        for id in ids {
            assert_eq!(a.concluded(id), Outcome::Cancelled);
            a.engine.release(id).unwrap();
        }
        part(&b, false);
        let expected = a.fill(round);
        let id = to_b.write(a.at(0), b.at(0), 2 * MIB).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        a.engine.release(id).unwrap();
        assert!(b.bytes() == expected);
        until("both ends agree", || to_b.resets() == to_a.resets());
        assert!(to_b.resets() >= before, "{round}");
    }
}
