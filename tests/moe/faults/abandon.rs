//! Calls that turn out to have no combine: they have ended when the program says so, and no change of membership waits for them.

// UNSAFETY: launches the end of a call.
#![expect(unsafe_code, reason = "launch of the end of a call")]

use std::sync::Arc;
use std::time::Duration;

use test_support::limits::HANG;
use warpverbs::abi::{CallStage, Status};
use warpverbs::moe::{Moe, MoeCall, MoeError, View};

use crate::group::Group;

const DEADLINE: Duration = Duration::from_secs(20);
const ALL: [u32; 2] = [0, 1];

/// Ends `call` of `moe`.
fn abandon(moe: &Arc<Moe>, call: &MoeCall) {
    let stream = moe.team().gpu().stream().unwrap();
    // SAFETY: handle and layer outlive the launch, which is waited for; nothing else runs.
    let event = unsafe { moe.abandon(&stream, call) }.unwrap();
    event.wait(HANG).unwrap();
}

fn abandon_all(group: &Group) {
    for (moe, work) in group.moes.iter().zip(&group.works) {
        abandon(moe, work.call());
    }
}

#[test]
fn a_view_does_not_wait_for_a_call_that_is_abandoned() {
    let mut group = Group::new(2, DEADLINE);
    group.whole_call(&ALL, 91, 1);
    let batches = group.batches(91, 2);
    group.send(&ALL, &batches);
    group.receive(&ALL, &batches, |_| ALL.to_vec());
    // Call 2 runs in the first view. Each of the next calls has a view of its own, as many as the layer has places.
    let view = |first: u32| View {
        first,
        epoch: first - 1,
        members: ALL.to_vec(),
        placement: group.moes[0].placement(),
    };
    for first in 3..=9 {
        for moe in &group.moes {
            moe.set_view(&view(first), DEADLINE).unwrap();
        }
    }
    for moe in &group.moes {
        let error = moe.set_view(&view(10), Duration::ZERO).unwrap_err();
        let waits = matches!(
            error,
            MoeError::ViewInUse {
                needed: 2,
                finished: 1,
                ..
            }
        );
        assert!(waits, "{error}");
    }
    abandon_all(&group);
    for (moe, work) in group.moes.iter().zip(&group.works) {
        assert_eq!((moe.started(), moe.finished()), (2, 2));
        moe.set_view(&view(10), Duration::ZERO).unwrap();
        // What dispatch has brought is as it was.
        let report = work.call().check().unwrap();
        assert_eq!(report.stage, CallStage::DISPATCHED);
    }
    for call in 3..=11 {
        group.whole_call(&ALL, 91, call);
        assert_eq!(group.report(0).epoch, (call - 1).min(9));
    }
    group.end();
}

#[test]
fn any_number_of_calls_in_a_row_is_abandoned_and_the_next_one_is_whole() {
    let mut group = Group::new(2, DEADLINE);
    for call in 1..=7 {
        let batches = group.batches(92, call);
        group.send(&ALL, &batches);
        group.receive(&ALL, &batches, |_| ALL.to_vec());
        // A second time changes nothing.
        abandon_all(&group);
        abandon_all(&group);
        for moe in &group.moes {
            assert_eq!((moe.started(), moe.finished()), (call, call));
        }
    }
    for call in 8..=11 {
        group.whole_call(&ALL, 92, call);
    }
    group.end();
}

#[test]
fn a_call_is_abandoned_between_dispatch_and_combine_and_at_no_other_time() {
    let mut group = Group::new(2, DEADLINE);
    let batches = group.batches(93, 1);
    group.send(&ALL, &batches);
    abandon_all(&group);
    for rank in ALL {
        assert_eq!(group.report(rank).phases[2], Status::INVALID);
        assert_eq!(group.moes[rank as usize].finished(), 0);
    }
    group.receive(&ALL, &batches, |_| ALL.to_vec());
    group.send_back(&ALL);
    abandon_all(&group);
    for moe in &group.moes {
        assert_eq!(moe.finished(), 0);
    }
    group.receive_back(&ALL, &batches, |_| ALL.to_vec());
    abandon_all(&group);
    for rank in ALL {
        let report = group.works[rank as usize].call().check().unwrap();
        assert_eq!(report.stage, CallStage::COMBINED);
        assert_eq!(group.moes[rank as usize].finished(), 1);
    }

    // Call 2 is abandoned, and then its combine refused.
    let batches = group.batches(93, 2);
    group.send(&ALL, &batches);
    group.receive(&ALL, &batches, |_| ALL.to_vec());
    abandon_all(&group);
    group.send_back(&ALL);
    for rank in ALL {
        let report = group.report(rank);
        assert_eq!(report.phases[2], Status::INVALID, "{report}");
        assert_eq!(report.stage, CallStage::DISPATCHED, "{report}");
        assert_eq!(group.moes[rank as usize].finished(), 2);
    }
    group.whole_call(&ALL, 93, 3);
    group.end();
}

#[test]
fn a_call_that_later_ones_have_closed_takes_nothing_from_them() {
    let mut group = Group::new(2, DEADLINE);
    let batches = group.batches(94, 1);
    group.send(&ALL, &batches);
    group.receive(&ALL, &batches, |_| ALL.to_vec());
    // The handles of call 1, and other ones for what follows.
    let others: Vec<_> = group
        .moes
        .iter()
        .map(|moe| warpverbs::moe::Workspace::new(moe).unwrap())
        .collect();
    let old = std::mem::replace(&mut group.works, others);
    for call in 2..=3 {
        group.whole_call(&ALL, 94, call);
    }
    for (moe, work) in group.moes.iter().zip(&old) {
        assert_eq!(moe.finished(), 3);
        abandon(moe, work.call());
        assert_eq!(moe.finished(), 3);
    }
    group.whole_call(&ALL, 94, 4);
    for moe in &group.moes {
        assert_eq!(moe.finished(), 4);
    }
    drop(old);
    group.end();
}

#[test]
fn a_call_has_ended_when_a_later_one_was_combined_before_it() {
    let mut group = Group::new(2, DEADLINE);
    let batches = group.batches(95, 1);
    group.send(&ALL, &batches);
    group.receive(&ALL, &batches, |_| ALL.to_vec());
    let others: Vec<_> = group
        .moes
        .iter()
        .map(|moe| warpverbs::moe::Workspace::new(moe).unwrap())
        .collect();
    let old = std::mem::replace(&mut group.works, others);
    // The combine of call 2 closes call 1, which takes part in nothing any more: no change waits for it.
    group.whole_call(&ALL, 95, 2);
    for (moe, work) in group.moes.iter().zip(&old) {
        assert_eq!((moe.started(), moe.finished()), (2, 2));
        abandon(moe, work.call());
        assert_eq!(moe.finished(), 2);
    }
    let late = std::mem::replace(&mut group.works, old);
    group.send_back(&ALL);
    for rank in ALL {
        let report = group.report(rank);
        assert_eq!(report.phases[2], Status::CLOSED, "{report}");
    }
    drop(std::mem::replace(&mut group.works, late));
    group.whole_call(&ALL, 95, 3);
    group.end();
}
