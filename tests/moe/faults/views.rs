//! Membership changes between calls: each call runs in one view, from its begin to its end.

use std::time::Duration;

use warpverbs::abi::{MoeCause, Outcome};
use warpverbs::moe::View;

use crate::group::Group;

const DEADLINE: Duration = Duration::from_secs(20);

fn view(group: &Group, first: u32, epoch: u32, members: &[u32]) -> View {
    View {
        first,
        epoch,
        members: members.to_vec(),
        placement: group.moes[0].placement(),
    }
}

fn set(group: &Group, ranks: &[u32], view: &View) {
    for &rank in ranks {
        group.moes[rank as usize].set_view(view, DEADLINE).unwrap();
    }
}

#[test]
fn a_call_in_flight_ends_in_the_view_in_which_it_began() {
    let mut group = Group::new(3, DEADLINE);
    let (all, rest) = ([0, 1, 2], [0, 1]);
    group.whole_call(&all, 21, 1);
    let batches = group.batches(21, 2);
    group.send(&all, &batches);
    set(&group, &rest, &view(&group, 3, 2, &rest));
    let error = group.moes[2].set_view(&view(&group, 3, 2, &rest), DEADLINE);
    assert_eq!(
        error.unwrap_err().to_string(),
        "a view without rank 2, which sets it"
    );
    group.receive(&all, &batches, |_| all.to_vec());
    group.send_back(&all);
    group.receive_back(&all, &batches, |_| all.to_vec());
    for rank in all {
        let report = group.report(rank);
        assert!(report.is_complete(), "{report}");
        assert_eq!((report.call, report.epoch), (2, 1));
    }
    for number in 3..=6 {
        group.whole_call(&rest, 21, number);
        for rank in rest {
            let report = group.report(rank);
            assert!(report.is_complete(), "{report}");
            assert_eq!((report.call, report.epoch), (number, 2));
            let out = report.peers[2];
            assert_eq!((out.member, out.active), (0, 0), "{report}");
            assert_eq!(out.dispatch_sent, Outcome::NONE, "{report}");
            assert!(group.waited(rank) < DEADLINE);
        }
    }
    group.end();
}

#[test]
fn a_view_is_written_over_only_when_no_call_needs_it() {
    let mut group = Group::new(2, DEADLINE);
    let all = [0, 1];
    group.whole_call(&all, 22, 1);
    let batches = group.batches(22, 2);
    group.send(&all, &batches);
    // Call 2 runs in the first view, and each of the next calls has a view of its own.
    let later = |first: u32| view(&group, first, first - 1, &all);
    for first in 3..=9 {
        set(&group, &all, &later(first));
    }
    let one_too_many = later(10);
    let short = Duration::from_millis(50);
    let error = group.moes[0].set_view(&one_too_many, short).unwrap_err();
    assert_eq!(
        error.to_string(),
        "all 8 views are in use: the oldest begins at call 1, and call 2 has not ended; the last one that has is 1"
    );
    group.receive(&all, &batches, |_| all.to_vec());
    group.send_back(&all);
    group.receive_back(&all, &batches, |_| all.to_vec());
    set(&group, &all, &one_too_many);
    for call in 3..=11 {
        group.whole_call(&all, 22, call);
        assert_eq!(group.report(0).epoch, (call - 1).min(9));
    }
    let error = group.moes[0].set_view(&one_too_many, short).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a view from call 10 on; the newest one begins at call 10"
    );
    group.end();
}

#[test]
fn a_word_of_another_epoch_is_not_taken_and_is_counted() {
    let mut group = Group::new(2, DEADLINE);
    let short = Duration::from_secs(3);
    group.whole_call(&[0, 1], 23, 1);
    // Rank 1 has missed the change.
    set(&group, &[0], &view(&group, 2, 2, &[0, 1]));
    group.set_deadline(short);
    let batches = group.batches(23, 2);
    group.send(&[0, 1], &batches);
    group.receive(&[0, 1], &batches, |rank| vec![rank]);
    group.send_back(&[0, 1]);
    group.receive_back(&[0, 1], &batches, |rank| vec![rank]);
    for rank in [0, 1] {
        let report = group.report(rank);
        let fault = report.fault.as_ref().unwrap();
        assert_eq!(fault.cause, MoeCause::EPOCH, "{report}");
        assert_eq!(fault.peer, Some(1 - rank), "{report}");
    }
    group.end();
}
