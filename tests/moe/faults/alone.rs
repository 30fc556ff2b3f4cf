//! A rank that exchanges with no other for a while: it does not run ahead of the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use test_support::limits::{HANG, until};
use warpverbs::moe::{Moe, View};

use crate::group::Group;

/// Only a call that waits for it takes so long, on any machine.
const DEADLINE: Duration = HANG;

/// Rank 0, which is alone, begins call 2; `change` lets it go on.
fn begins_and_waits(group: &mut Group, change: impl FnOnce(&Moe)) {
    group.whole_call(&[0, 1], 31, 1);
    let batches = group.batches(31, 2);
    let moe = group.moes[0].clone();
    moe.control().board().set_alone(true);
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
    begins_and_waits(&mut group, |moe| moe.control().board().set_alone(false));
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
    group.moes[0].control().board().set_alone(true);
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
        moe.control().board().set_alone(true);
    }
    for call in 2..=4 {
        group.whole_call(&[0, 1], 31, call);
    }
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    for moe in &group.moes {
        moe.control().board().set_alone(false);
    }
    group.whole_call(&[0, 1], 31, 5);
    group.end();
}

/// Rank 0 makes `call` while no other rank says anything: it gives them all up.
fn gives_up_all(group: &mut Group, call: u32) {
    let batches = group.batches(31, call);
    group.send(&[0], &batches);
    group.receive(&[0], &batches, |_| vec![0]);
    group.send_back(&[0]);
    group.receive_back(&[0], &batches, |_| vec![0]);
}

#[test]
fn a_rank_with_silent_peers_begins_one_call_in_a_deadline() {
    let mut group = Group::new(3, DEADLINE);
    let deadline = Duration::from_millis(200);
    group.whole_call(&[0, 1, 2], 31, 1);
    group.set_deadline(deadline);
    gives_up_all(&mut group, 2);
    assert_eq!(group.moes[0].suspected(), [1, 2]);
    // The host says nothing of it: kernels know by themselves.
    let start = Instant::now();
    for call in 3..=5 {
        gives_up_all(&mut group, call);
        let begun = call - 2;
        assert!(
            start.elapsed() >= deadline * begun,
            "{begun} calls in {:?}",
            start.elapsed()
        );
    }
    group.set_deadline(DEADLINE);
    group.end();
}

#[test]
fn a_word_of_a_suspect_lets_the_next_call_begin_at_once() {
    let mut group = Group::new(3, DEADLINE);
    group.whole_call(&[0, 1, 2], 31, 1);
    group.set_deadline(Duration::from_millis(200));
    gives_up_all(&mut group, 2);
    group.set_deadline(DEADLINE);
    let (second, third) = (group.batches(31, 2), group.batches(31, 3));
    let (moe, start) = (group.moes[0].clone(), Instant::now());
    let words = AtomicBool::new(false);
    let works = &mut group.works;
    let [first, other, _] = &mut works[..] else {
        unreachable!("three ranks");
    };
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            first.send(&third[0]).unwrap();
            assert!(words.load(Ordering::SeqCst), "it begins before any word");
        });
        until("call 3 takes its number", || moe.started() == 3);
        words.store(true, Ordering::SeqCst);
        other.send(&second[1]).unwrap();
        waits.join().unwrap();
    });
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    drop(moe);
    group.end();
}

#[test]
fn a_rank_that_masks_its_silent_peers_does_not_wait() {
    let mut group = Group::new(3, DEADLINE);
    group.whole_call(&[0, 1, 2], 31, 1);
    group.set_deadline(Duration::from_millis(200));
    gives_up_all(&mut group, 2);
    group.set_deadline(DEADLINE);
    let start = Instant::now();
    group.moes[0].set_active(&[true, false, false]).unwrap();
    for call in 3..=5 {
        gives_up_all(&mut group, call);
    }
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    group.end();
}

#[test]
fn a_rank_with_one_peer_that_calls_does_not_wait_for_the_silent_one() {
    let mut group = Group::new(3, DEADLINE);
    group.whole_call(&[0, 1, 2], 31, 1);
    group.set_deadline(Duration::from_millis(500));
    group.whole_call(&[0, 1], 31, 2);
    assert_eq!(group.moes[0].suspected(), [2]);
    group.set_deadline(DEADLINE);
    let start = Instant::now();
    for call in 3..=5 {
        group.whole_call(&[0, 1], 31, call);
    }
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    group.end();
}
