//! A rank that exchanges with no other for a while: it does not run ahead of the others.

use std::thread;
use std::time::{Duration, Instant};

use test_support::limits::until;
use warpverbs::internal::MoeInternal;
use warpverbs::moe::{Moe, View};

use crate::group::Group;

const DEADLINE: Duration = Duration::from_secs(20);

/// Rank 0, which is alone, begins call 2; `change` lets it go on.
fn begins_and_waits(group: &mut Group, change: impl FnOnce(&Moe)) {
    group.whole_call(&[0, 1], 31, 1);
    let batches = group.batches(31, 2);
    let moe = group.moes[0].clone();
    moe.set_alone(true);
    thread::scope(|scope| {
        let waits = scope.spawn(|| group.send(&[0], &batches));
        until("call 2 takes its number", || moe.started() == 2);
        thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished(), "it waits");
        change(&moe);
        waits.join().unwrap();
    });
    drop(moe);
    group.send(&[1], &batches);
    group.receive(&[0, 1], &batches, |_| vec![0, 1]);
    group.send_back(&[0, 1]);
    group.receive_back(&[0, 1], &batches, |_| vec![0, 1]);
    for rank in [0, 1] {
        let report = group.report(rank);
        assert!(report.is_complete(), "{report}");
    }
}

#[test]
fn it_goes_on_when_the_host_finds_another() {
    let mut group = Group::new(2, DEADLINE);
    begins_and_waits(&mut group, |moe| moe.set_alone(false));
    group.whole_call(&[0, 1], 31, 3);
    group.end();
}

#[test]
fn it_goes_on_when_a_change_is_prepared() {
    let mut group = Group::new(2, DEADLINE);
    begins_and_waits(&mut group, |moe| {
        assert_eq!(moe.set_limit(Some(2)), 2);
    });
    // Whatever the limit: calls that are caught up with do not wait.
    group.moes[0].set_limit(Some(3));
    group.whole_call(&[0, 1], 31, 3);
    group.end();
}

#[test]
fn its_call_begins_at_its_deadline_if_nothing_changes() {
    let mut group = Group::new(2, DEADLINE);
    let deadline = Duration::from_millis(300);
    group.whole_call(&[0, 1], 31, 1);
    group.set_deadline(deadline);
    group.moes[0].set_alone(true);
    let batches = group.batches(31, 2);
    let start = Instant::now();
    group.send(&[0], &batches);
    assert!(start.elapsed() >= deadline, "{:?}", start.elapsed());
    group.set_deadline(DEADLINE);
    group.send(&[1], &batches);
    group.end();
}

#[test]
fn calls_before_the_newest_view_do_not_wait() {
    let mut group = Group::new(2, DEADLINE);
    group.whole_call(&[0, 1], 31, 1);
    let behind = View {
        first: 5,
        epoch: 2,
        members: vec![0, 1],
        placement: group.moes[0].placement(),
    };
    let start = Instant::now();
    for moe in &group.moes {
        moe.set_view(&behind, DEADLINE).unwrap();
        moe.set_alone(true);
    }
    for call in 2..=4 {
        group.whole_call(&[0, 1], 31, call);
    }
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    for moe in &group.moes {
        moe.set_alone(false);
    }
    group.whole_call(&[0, 1], 31, 5);
    group.end();
}
