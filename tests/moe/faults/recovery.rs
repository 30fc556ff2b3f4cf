//! The QPs to a peer are reset while kernels of a layer run.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use test_support::limits::until;
use warpverbs::abi::{MoeCause, Outcome};
use warpverbs::moe::Moe;

use crate::group::Group;

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn a_recovery_ends_the_wait_for_the_peer_and_later_calls_go_through() {
    let mut group = Group::new(2, DEADLINE);
    group.whole_call(&[0, 1], 41, 1);
    group.whole_call(&[0, 1], 41, 2);
    let batches = group.batches(41, 3);
    group.send(&[0], &batches);
    group.settle();
    let moes = group.moes.clone();
    thread::scope(|scope| {
        // Rank 1 has not sent: rank 0 waits for it.
        let waits = scope.spawn(|| group.receive(&[0], &batches, |_| vec![0]));
        // Until it has waited for so long that it holds a guard, a recovery does not concern it: rank 1 may still send.
        until("it holds a guard", || moes[0].team().guards(1).unwrap() > 0);
        let other = scope.spawn(|| moes[1].team().recover(0).unwrap());
        assert_eq!(moes[0].team().recover(1).unwrap(), 1);
        assert_eq!(other.join().unwrap(), 1);
        waits.join().unwrap();
    });
    drop(moes);
    let report = group.report(0);
    assert_eq!(report.peers[1].dispatch_received, Outcome::GAVE_UP);
    let fault = report.fault.as_ref().unwrap();
    assert_eq!((fault.cause, fault.peer), (MoeCause::ABORTED, Some(1)));
    assert!(group.waited(0) < DEADLINE, "{report}");
    group.send_back(&[0]);
    group.receive_back(&[0], &batches, |_| vec![0]);
    // What was on its way before has arrived; of rank 1's rows none was processed.
    group.send(&[1], &batches);
    group.receive(&[1], &batches, |_| vec![0, 1]);
    group.send_back(&[1]);
    group.receive_back(&[1], &batches, |_| vec![1]);
    for number in 4..=8 {
        group.settle();
        group.whole_call(&[0, 1], 41, number);
        for moe in &group.moes {
            assert!(moe.suspected().is_empty());
        }
    }
    for (moe, peer) in group.moes.iter().zip([1, 0]) {
        assert_eq!(moe.team().guards(peer).unwrap(), 0);
    }
    group.end();
}

#[test]
fn a_dead_peer_ends_waits_at_once_and_its_qps_are_used_no_more() {
    let mut group = Group::new(3, DEADLINE);
    group.whole_call(&[0, 1, 2], 42, 1);
    group.unplug(2);
    let batches = group.batches(42, 2);
    group.send(&[0, 1], &batches);
    let moes = group.moes.clone();
    thread::scope(|scope| {
        let waits = scope.spawn(|| group.receive(&[0, 1], &batches, |_| vec![0, 1]));
        let waiting = |moe: &Arc<Moe>| moe.team().guards(2).unwrap() > 0;
        until("both wait for rank 2", || {
            moes[..2].iter().all(waiting) || waits.is_finished()
        });
        for moe in &moes[..2] {
            moe.mark_dead(2).unwrap();
        }
        waits.join().unwrap();
    });
    drop(moes);
    group.send_back(&[0, 1]);
    group.receive_back(&[0, 1], &batches, |_| vec![0, 1]);
    for rank in [0, 1] {
        assert!(group.waited(rank) < DEADLINE, "{}", group.report(rank));
    }
    for number in 3..=6 {
        group.whole_call(&[0, 1], 42, number);
        for rank in [0, 1] {
            assert!(group.waited(rank) < DEADLINE, "{}", group.report(rank));
            let sent = group.report(rank).peers[2].dispatch_sent;
            assert!(
                matches!(sent, Outcome::SKIPPED | Outcome::FAILED),
                "{sent:?}"
            );
        }
    }
    group.end();
}
