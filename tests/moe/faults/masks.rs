//! Masks of callers: ranks do not agree on them, so two ranks may take different ranks for active.

use std::time::Duration;

use warpverbs::abi::{MoeCause, Outcome};

use crate::group::Group;

const DEADLINE: Duration = Duration::from_secs(20);

/// One call of all ranks in which rank `r` sees `sees(r)`; no rank waits for a deadline.
fn call(group: &mut Group, number: u32, sees: impl Fn(u32) -> Vec<u32> + Sync) {
    let all = group.ranks();
    let batches = group.batches(9, number);
    group.send(&all, &batches);
    group.receive(&all, &batches, &sees);
    group.send_back(&all);
    group.receive_back(&all, &batches, &sees);
    for &rank in &all {
        let waited = group.waited(rank);
        assert!(waited < DEADLINE, "rank {rank} has waited {waited:?}");
    }
}

#[test]
fn masks_that_differ_between_ranks_cost_rows_and_no_time() {
    let mut group = Group::new(3, DEADLINE);
    let all = group.ranks();
    group.whole_call(&all, 9, 1);
    group.moes[0].set_active(&[true, false, true]).unwrap();
    for number in 2..=5 {
        // Rank 1 has masked no rank: it gets a word that nothing comes.
        call(&mut group, number, |rank| match rank {
            0 => vec![0, 2],
            1 => vec![1, 2],
            _ => vec![0, 1, 2],
        });
        let (masks, masked) = (group.report(0), group.report(1));
        assert!(masks.is_complete(), "{masks}");
        let peer = masks.peers[1];
        assert_eq!((peer.member, peer.active), (1, 0), "{masks}");
        assert_eq!(peer.dispatch_sent, Outcome::SKIPPED, "{masks}");
        let peer = masked.peers[0];
        assert_eq!(peer.dispatch_received, Outcome::NOT_SENT, "{masked}");
        assert_eq!(peer.combine_received, Outcome::NOT_SENT, "{masked}");
        let fault = masked.fault.as_ref().unwrap();
        assert_eq!(fault.cause, MoeCause::MISSED_CALL, "{masked}");
        assert_eq!((fault.peer, &fault.suspects[..]), (Some(0), &[][..]));
        assert!(group.moes[1].suspected().is_empty());
    }
    group.moes[0].set_active(&[true; 3]).unwrap();
    for number in 6..=9 {
        group.whole_call(&all, 9, number);
    }
    group.end();
}

#[test]
fn ranks_that_mask_each_other_and_one_that_masks_all_go_on() {
    let mut group = Group::new(3, DEADLINE);
    let all = group.ranks();
    group.moes[0].set_active(&[true, false, false]).unwrap();
    group.moes[1].set_active(&[false, true, true]).unwrap();
    for number in 1..=4 {
        call(&mut group, number, |rank| match rank {
            0 => vec![0],
            _ => vec![1, 2],
        });
    }
    for moe in &group.moes {
        moe.set_active(&[true; 3]).unwrap();
    }
    for number in 5..=7 {
        group.whole_call(&all, 9, number);
    }
    let error = group.moes[0].set_active(&[true; 2]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the mask of the ranks has 2 elements; its shape needs 3"
    );
    group.end();
}

#[test]
fn a_call_goes_by_the_mask_of_its_dispatch_to_its_end() {
    let mut group = Group::new(3, DEADLINE);
    let all = group.ranks();
    group.whole_call(&all, 10, 1);
    for (number, masked) in [(2, false), (3, true), (4, false)] {
        let mask = |group: &Group, masked: bool| {
            group.moes[0].set_active(&[true, !masked, true]).unwrap();
        };
        let sees = |rank: u32| match (masked, rank) {
            (true, 0) => vec![0, 2],
            (true, 1) => vec![1, 2],
            _ => vec![0, 1, 2],
        };
        let batches = group.batches(10, number);
        mask(&group, masked);
        group.send(&all, &batches);
        // What the caller says from now on is for later calls.
        mask(&group, !masked);
        group.receive(&all, &batches, sees);
        mask(&group, masked);
        group.send_back(&all);
        mask(&group, !masked);
        group.receive_back(&all, &batches, sees);
        let report = group.report(0);
        assert_eq!(report.peers[1].active, u32::from(!masked), "{report}");
        assert!(report.is_complete(), "{report}");
    }
    group.end();
}
