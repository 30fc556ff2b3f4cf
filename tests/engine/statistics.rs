//! What an engine counts of itself: each slice once at each place, whatever becomes of it, and which rail has failed.

use softhca::device::FaultSpec;
use test_support::limits::until;
use warpverbs::internal::engine::{
    EngineError, EnginePath, Kind, Operation, Options, Outcome, Peer, RailState, Statistics,
};

use crate::rig::{End, Side, config, connect, pair};

const SLICE: u32 = 1 << 14;
const BYTES: u64 = 40 * SLICE as u64;

fn whole(kind: Kind, from: &Side, to: &Side) -> Operation {
    Operation {
        kind,
        local: from.at(0),
        remote: to.at(0),
        bytes: BYTES,
    }
}

/// Each slice that was queued or put back was posted or given up, and each that was posted is finished.
fn check_at_rest(all: &Statistics) {
    assert_eq!(
        all.slices.posted + all.not_posted,
        all.queued + all.retried,
        "{all:?}"
    );
    assert_eq!(all.slices.in_flight(), 0, "{all:?}");
    let ended = all.done + all.failed + all.cancelled + all.timed_out;
    assert_eq!(ended, all.submitted, "{all:?}");
}

fn on(path: EnginePath) -> (End, End, [Peer; 2]) {
    let end = |name| {
        let config = config(name).with_slice(SLICE).with_fragment(0);
        End::new(config.with_engine_path(path), BYTES)
    };
    let (a, b) = (end("a"), end("b"));
    let peers = connect(&a, &b);
    (a, b, peers)
}

#[test]
fn what_is_done_is_counted_once_by_each_path_and_rail() {
    for path in [EnginePath::Nic, EnginePath::Auto] {
        let (a, b, [to_b, _]) = on(path);
        assert_eq!(a.engine.statistics(), Statistics::default());
        for kind in [Kind::Write, Kind::Read, Kind::Write] {
            let id = to_b
                .submit(&[whole(kind, &a, &b)], &Options::default())
                .unwrap();
            assert_eq!(a.concluded(id), Outcome::Done);
            a.engine.release(id).unwrap();
        }
        // No byte needs no slice.
        let id = to_b.write(a.at(0), b.at(0), 0).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        let all = a.engine.statistics();
        check_at_rest(&all);
        assert_eq!((all.submitted, all.done), (4, 4));
        assert_eq!((all.queued, all.retried, all.not_posted), (120, 0, 0));
        assert_eq!(
            (all.done_bytes, all.slices.posted_bytes),
            (3 * BYTES, 3 * BYTES)
        );
        assert_eq!((all.slices.completed, all.slices.failed), (120, 0));
        let rails = a.engine.rails();
        let [rail] = rails.as_slice() else {
            panic!("{rails:?}");
        };
        let port = a.context.port().number;
        assert_eq!((&*rail.device, rail.port), (a.hca.name(), port));
        assert_eq!((rail.state, rail.rests), (RailState::Works, 0));
        match path {
            EnginePath::Nic => assert_eq!(rail.slices.posted, 120),
            _ => assert_eq!(rail.slices.posted, 0),
        }
        // The peer has submitted nothing.
        assert_eq!(b.engine.statistics(), Statistics::default());
    }
}

#[test]
fn slices_of_a_cancelled_transfer_are_posted_or_given_up() {
    let (a, b, [to_b, _]) = on(EnginePath::Nic);
    let mut tries = 0;
    until("some slice was never posted", || {
        tries += 1;
        let id = to_b
            .submit(&[whole(Kind::Write, &a, &b)], &Options::default())
            .unwrap();
        a.engine.cancel(id).unwrap();
        a.concluded(id);
        a.engine.release(id).unwrap();
        let all = a.engine.statistics();
        check_at_rest(&all);
        all.not_posted > 0
    });
    let all = a.engine.statistics();
    assert_eq!((all.queued, all.submitted), (40 * tries, tries));
    assert!(all.cancelled > 0, "{all:?}");
}

#[test]
fn a_refusal_counts_as_such_and_as_nothing_else() {
    let a = End::new(config("a").with_transfers(1), BYTES);
    let b = End::new(config("b"), BYTES);
    let [to_b, _] = connect(&a, &b);
    let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
    a.concluded(id);
    let refused = to_b.write(a.at(0), b.at(0), 8).unwrap_err();
    assert_eq!(refused, EngineError::WouldBlock { slots: 1 });
    a.engine.release(id).unwrap();
    // Outside its region: nothing was submitted.
    assert!(to_b.write(a.at(BYTES), b.at(0), 8).is_err());
    let all = a.engine.statistics();
    assert_eq!((all.submitted, all.refused, all.queued), (1, 1, 1));
}

#[test]
fn a_report_names_the_rail_and_device_that_have_failed() {
    let a = End::new(config("a").with_retry(0), BYTES);
    let b = End::new(config("b"), BYTES);
    let [to_b, _] = connect(&a, &b);
    let fault: FaultSpec = "cqe=wqe#1:syndrome=0x15".parse().unwrap();
    a.hca.set_faults(&fault);
    let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
    assert_eq!(a.concluded(id), Outcome::Failed);
    let report = a.engine.report(id).unwrap();
    let first = report.first.expect("it has failed");
    assert_eq!((first.rail, first.qp.is_some()), (Some(0), true));
    assert_eq!(report.device.as_deref(), Some(a.hca.name()));
    let all = a.engine.statistics();
    check_at_rest(&all);
    assert_eq!((all.failed, all.slices.failed), (1, 1));
    // Where nothing was posted no rail has failed.
    let (a, b, [to_b, _]) = pair(BYTES);
    let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    let report = a.engine.report(id).unwrap();
    assert_eq!((report.first, report.device), (None, None));
}

#[test]
fn workers_that_have_no_room_count_how_long() {
    // More slices than the only QP has room for.
    const MIB: u64 = 1 << 20;
    let own = config("a").with_log_depth(8).with_qps(1);
    let a = End::new(own.with_slice(1 << 12).with_fragment(0), 4 * MIB);
    let b = End::new(config("b"), 4 * MIB);
    let [to_b, _] = connect(&a, &b);
    until("it stalls", || {
        let id = to_b.write(a.at(0), b.at(0), 4 * MIB).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        a.engine.release(id).unwrap();
        !a.engine.statistics().slices.stalled.is_zero()
    });
    // The last turn of a worker may be after the conclusion.
    until("it stalls no more", || {
        let [one, other] = [(); 2].map(|()| a.engine.statistics().slices.stalled);
        one == other
    });
    let all = a.engine.statistics();
    check_at_rest(&all);
    assert_eq!(all.slices, a.engine.rails()[0].slices);
}
