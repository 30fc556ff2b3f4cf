//! QPs that fail while others of their connection go on. Slices are posted again on the others. Both ends reset the failed pair and
//! use it again.

use softhca::HcaConfig;
use softhca::device::FaultSpec;
use test_basics::limits::until;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    EngineConfig, EngineError, Kind, Operation, OperationStatus, Options, Outcome, Peer, Remote,
    Status, WaitsFor,
};

use crate::cable::Cable;
use crate::rig::{End, SHORT, config, connect, listens};

const MIB: u64 = 1 << 20;
/// Transport retry counter exceeded.
const NO_ANSWER: u8 = 0x15;

fn pair_of(own: EngineConfig) -> (End, End, [Peer; 2]) {
    let a = End::new(own, MIB);
    let b = End::new(config("b"), MIB);
    let peers = connect(&a, &b);
    (a, b, peers)
}

/// The WQEs of these numbers, counted from the next on, fail.
fn fail_wqes(end: &End, numbers: &[u32]) {
    let faults: Vec<String> = numbers
        .iter()
        .map(|number| format!("cqe=wqe#{number}:syndrome={NO_ANSWER:#x}"))
        .collect();
    end.hca.set_faults(&faults.join(",").parse().unwrap());
}

fn until_reset(peers: &[&Peer], times: u64) {
    for peer in peers {
        until("the pair is used again", || peer.resets() == times);
        assert!(peer.is_open());
    }
}

#[test]
pub(crate) fn a_qp_that_fails_is_used_again_and_no_transfer_fails() {
    for workers in [1, 2, 4] {
        let (a, b, [to_b, to_a]) = pair_of(config("a").with_workers(workers));
        for round in 0..12u32 {
            let (from, to) = match round % 2 {
                0 => (&a, &b),
                _ => (&b, &a),
            };
            let expected = from.fill(round.into());
            fail_wqes(&a, &[round % 5 + 1]);
            let kind = match round % 2 {
                0 => Kind::Write,
                _ => Kind::Read,
            };
            let whole = Operation {
                kind,
                local: a.at(0),
                remote: b.at(0),
                bytes: MIB,
            };
            let id = to_b.submit(&[whole], &Options::default()).unwrap();
            assert_eq!(a.concluded(id), Outcome::Done, "{workers} {round}");
            let report = a.engine.report(id).unwrap();
            let first = report.first.expect("it is reported all the same");
            assert_eq!(first.cause.unwrap().syndrome, NO_ANSWER);
            assert_eq!((report.bytes_landed, report.remote), (MIB, Remote::Quiet));
            assert_eq!(report.operations, [OperationStatus::Done]);
            assert!(to.bytes() == expected, "{workers} {round}");
            a.engine.release(id).unwrap();
            until_reset(&[&to_b, &to_a], u64::from(round) + 1);
        }
    }
}

#[test]
fn both_ends_log_a_qp_that_fails_with_the_peer_and_the_lane() {
    let log = crate::log::of_process();
    let (a, b, [to_b, to_a]) = pair_of(config("a").with_qps(2));
    fail_wqes(&a, &[1]);
    let id = to_b.write(a.at(0), b.at(0), MIB).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    until_reset(&[&to_b, &to_a], 1);
    for peer in ["a", "b"] {
        let has = |lane: u32, line: &str| {
            let span = format!("connection{{peer={peer}}}:qp_failure{{lane={lane}}}: ");
            let text = log.text();
            let mut lines = text.lines();
            lines.any(|it| it.contains(&span) && it.ends_with(line))
        };
        // Which of the two took the WQE that has failed is open.
        until("the log says that the QP works again", || {
            [0, 1].iter().any(|&lane| {
                has(lane, "no slice takes it until both ends have reset it")
                    && has(lane, "slices take it again")
            })
        });
    }
}

#[test]
pub(crate) fn a_slice_is_retried_up_to_its_limit_and_then_fails_with_its_first_cause() {
    for (retry, failures, outcome) in [
        (0, 1, Outcome::Failed),
        (1, 1, Outcome::Done),
        (1, 2, Outcome::Failed),
        (3, 3, Outcome::Done),
    ] {
        let (a, b, [to_b, to_a]) = pair_of(config("a").with_retry(retry));
        let expected = a.fill(7);
        let numbers: Vec<u32> = (1..=failures).collect();
        fail_wqes(&a, &numbers);
        let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
        assert_eq!(a.concluded(id), outcome, "{retry} {failures}");
        let report = a.engine.report(id).unwrap();
        let first = report.first.unwrap();
        assert_eq!(first.cause.unwrap().syndrome, NO_ANSWER, "{report:?}");
        assert_eq!(report.remote, Remote::Quiet);
        // The QPs are used again, and the connection goes on.
        until_reset(&[&to_b, &to_a], failures.into());
        let id = to_b.write(a.at(0), b.at(0), MIB).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert!(b.bytes() == expected);
    }
}

#[test]
pub(crate) fn nothing_that_has_lost_a_qp_is_concluded_before_both_ends_are_reset() {
    for is_cut in [false, true] {
        let (a, b) = (End::new(config("a"), MIB), End::new(config("b"), MIB));
        let at_b = listens(&b.engine).to_string();
        let cable = Cable::to(&at_b);
        let to_b = a.engine.connect(&cable.address).unwrap();
        to_b.import(&b.engine.descriptor(b.region).unwrap())
            .unwrap();
        let expected = a.fill(9);
        cable.hold();
        fail_wqes(&a, &[2]);
        let id = to_b.write(a.at(0), b.at(0), MIB).unwrap();
        until("other QPs have moved all of it", || b.bytes() == expected);
        assert_eq!(a.engine.wait(id, SHORT), Ok(Status::Pending));
        assert_eq!(a.engine.waits_for(id), Ok(Some(WaitsFor::Reset)));
        // What has lost no QP need not wait.
        let other = to_b.write(a.at(0), b.at(0), 8).unwrap();
        assert_eq!(a.concluded(other), Outcome::Done);
        let (outcome, remote) = if is_cut {
            cable.cut();
            (Outcome::Failed, Remote::Unknown)
        } else {
            cable.release();
            (Outcome::Done, Remote::Quiet)
        };
        assert_eq!(a.concluded(id), outcome);
        assert_eq!(a.engine.report(id).unwrap().remote, remote);
        assert_eq!(to_b.is_open(), !is_cut);
    }
}

#[test]
pub(crate) fn with_the_last_qp_the_connection_ends() {
    let (a, b, [to_b, to_a]) = pair_of(config("a").with_qps(1));
    fail_wqes(&a, &[1]);
    let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
    assert_eq!(a.concluded(id), Outcome::Failed);
    let report = a.engine.report(id).unwrap();
    assert_eq!(report.first.unwrap().cause.unwrap().syndrome, NO_ANSWER);
    let gone = to_b.write(a.at(0), b.at(0), 8).unwrap_err();
    assert!(matches!(gone, EngineError::PeerGone { .. }), "{gone}");
    until("the other end has found out", || !to_a.is_open());
}

#[test]
fn nothing_waits_for_a_connection_without_qps_and_a_new_one_goes_on() {
    for workers in [1, 2] {
        let (a, b, [to_b, to_a]) = pair_of(config("a").with_qps(2).with_workers(workers));
        let prepared = to_b
            .prepare(&[Operation {
                kind: Kind::Write,
                local: a.at(0),
                remote: b.at(0),
                bytes: MIB,
            }])
            .unwrap();
        // The QPs in the error state come back, unless both are in it at once: then every post fails.
        fail_wqes(&a, &(1..=4096).collect::<Vec<u32>>());
        let mut begun = Vec::new();
        let refused = loop {
            match to_b.post(&prepared, &Options::default()) {
                Ok(id) => begun.push(id),
                Err(EngineError::WouldBlock { .. }) => {
                    for id in begun.drain(..) {
                        assert_eq!(a.concluded(id), Outcome::Failed);
                        a.engine.release(id).unwrap();
                    }
                }
                Err(refused) => break refused,
            }
        };
        let peer = "b".to_owned();
        assert_eq!(refused, EngineError::PeerGone { peer });
        for id in begun {
            assert_eq!(a.concluded(id), Outcome::Failed);
        }
        let whole = [];
        let waited = to_b.submit(&whole, &Options::default().with_wait(HANG));
        assert!(matches!(waited, Err(EngineError::PeerGone { .. })));
        for (end, name) in [(&a, "b"), (&b, "a")] {
            let gone = end.engine.peer_gone(HANG).expect("it has lost its last QP");
            assert_eq!((&*gone.name, gone.remote), (name, Remote::Quiet));
        }
        assert!(!to_b.is_open() && !to_a.is_open());
        a.hca.set_faults(&FaultSpec::default());
        let address = listens(&b.engine).to_string();
        let again = a.engine.connect(&address).unwrap();
        let expected = a.fill(workers.into());
        let id = again.post(&prepared, &Options::default()).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert!(b.bytes() == expected);
    }
}

#[test]
pub(crate) fn a_cancelled_transfer_whose_qp_fails_is_tried_no_more() {
    let hca = HcaConfig {
        loopback: false,
        ..HcaConfig::default()
    };
    let a = End::on(hca.clone(), config("a"), MIB);
    let b = End::on(hca, config("b"), MIB);
    let [to_b, to_a] = connect(&a, &b);
    // Late packets, so that the cancel comes first.
    let late = format!("delay=20ms,cqe=wqe#1:syndrome={NO_ANSWER:#x}");
    a.hca.set_faults(&late.parse::<FaultSpec>().unwrap());
    let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
    a.engine.cancel(id).unwrap();
    // It had failed before, was not posted yet, or was posted and has failed after the cancel.
    let outcome = a.concluded(id);
    let report = a.engine.report(id).unwrap();
    assert!(
        matches!(outcome, Outcome::Cancelled | Outcome::Done),
        "{report:?}"
    );
    assert_eq!(report.remote, Remote::Quiet);
    assert!(to_b.is_open() && to_a.is_open());
}
