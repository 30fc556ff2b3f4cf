//! Calls that the host holds back while a change of membership is prepared (B4), and those that are held for too long (B7).

use std::time::{Duration, Instant};

use test_support::limits::until;
use warpverbs::abi::{MoeCause, Outcome, Status};
use warpverbs::internal::MoeInternal;
use warpverbs::moe::Deadlines;

use crate::group::Group;

const DEADLINE: Duration = Duration::from_secs(20);

/// A call of all ranks that end it without having sent anything.
fn aborted_call(group: &mut Group, ranks: &[u32], number: u32) {
    let batches = group.batches(5, number);
    group.send(ranks, &batches);
    group.receive(ranks, &batches, |_| Vec::new());
    group.send_back(ranks);
    group.receive_back(ranks, &batches, |_| Vec::new());
    for &rank in ranks {
        let report = group.report(rank);
        assert_eq!(report.call, number, "{report}");
        assert_eq!(report.phases, [Status::ABORTED; 4], "{report}");
        let fault = report.fault.as_ref().unwrap();
        assert_eq!((fault.cause, fault.peer), (MoeCause::ABORTED, None));
        assert_eq!(group.moes[rank as usize].last_fault().as_ref(), Some(fault));
        assert_eq!(group.moes[rank as usize].started(), number);
    }
}

#[test]
fn a_held_call_goes_on_when_the_host_lets_it() {
    let mut group = Group::new(2, DEADLINE);
    group.whole_call(&[0, 1], 5, 1);
    for moe in &group.moes {
        assert_eq!(moe.set_limit(Some(2)), 1);
        assert_eq!((moe.started(), moe.finished()), (1, 1));
    }
    group.whole_call(&[0, 1], 5, 2);
    let batches = group.batches(5, 3);
    let moes = group.moes.clone();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| group.send(&[0, 1], &batches));
        for moe in &moes {
            until("call 3 takes its number", || moe.started() == 3);
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(!held.is_finished(), "it is held");
        // The promise of this rank: the largest number that has started.
        assert_eq!(moes[0].set_limit(Some(2)), 3);
        moes[0].set_limit(Some(3));
        moes[1].set_limit(None);
        held.join().unwrap();
    });
    drop(moes);
    group.receive(&[0, 1], &batches, |_| vec![0, 1]);
    group.send_back(&[0, 1]);
    group.receive_back(&[0, 1], &batches, |_| vec![0, 1]);
    group.moes[0].set_limit(None);
    group.whole_call(&[0, 1], 5, 4);
    group.end();
}

#[test]
fn a_call_that_is_held_for_too_long_uses_up_its_number_and_the_next_ones_end_at_once() {
    let mut group = Group::new(2, DEADLINE);
    let change = Duration::from_secs(3);
    for moe in &group.moes {
        let deadlines = Deadlines::new(DEADLINE).with_change(change);
        moe.set_deadlines(&deadlines).unwrap();
    }
    group.whole_call(&[0, 1], 5, 1);
    for moe in &group.moes {
        moe.set_limit(Some(1));
    }
    let start = Instant::now();
    aborted_call(&mut group, &[0, 1], 2);
    assert!(start.elapsed() >= change, "{:?}", start.elapsed());
    // A further one that was held would be held for all of this.
    let long = Duration::from_secs(60);
    for moe in &group.moes {
        let deadlines = Deadlines::new(DEADLINE).with_change(long);
        moe.set_deadlines(&deadlines).unwrap();
    }
    let start = Instant::now();
    for number in 3..=5 {
        aborted_call(&mut group, &[0, 1], number);
    }
    assert!(start.elapsed() < long, "{:?}", start.elapsed());
    for moe in &group.moes {
        moe.set_limit(None);
    }
    for number in 6..=9 {
        group.whole_call(&[0, 1], 5, number);
    }
    group.end();
}

#[test]
fn a_rank_that_aborts_alone_tells_the_others_at_once_and_stays_in_step() {
    let mut group = Group::new(2, DEADLINE);
    for number in 1..=2 {
        group.whole_call(&[0, 1], 5, number);
    }
    group.moes[0].set_refuse(true);
    group.moes[0].set_limit(Some(2));
    aborted_call(&mut group, &[0], 3);
    let batches = group.batches(5, 3);
    group.send(&[1], &batches);
    group.receive(&[1], &batches, |_| vec![1]);
    group.send_back(&[1]);
    group.receive_back(&[1], &batches, |_| vec![1]);
    // It was told so in both phases, so nobody is waited for and nobody is suspected.
    let report = group.report(1);
    assert_eq!(report.peers[0].dispatch_received, Outcome::NOT_SENT);
    assert_eq!(report.peers[0].combine_received, Outcome::NOT_SENT);
    assert!(group.moes[1].suspected().is_empty());
    group.moes[0].set_limit(None);
    group.moes[0].set_refuse(false);
    for number in 4..=8 {
        group.whole_call(&[0, 1], 5, number);
    }
    assert!(group.moes[1].suspected().is_empty());
    group.end();
}
