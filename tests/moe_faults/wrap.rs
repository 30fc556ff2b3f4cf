//! Numbers that wrap: calls at 2^32, epochs at 2^16.

use std::time::Duration;

use warpverbs::moe::View;

use crate::group::Group;

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn a_thousand_calls_go_over_the_end_of_their_numbers_and_of_the_epochs() {
    let mut group = Group::new(2, DEADLINE);
    let all = [0, 1];
    let first = 0u32.wrapping_sub(500);
    for moe in &group.moes {
        moe.begin_at(first).unwrap();
    }
    let mut epoch = 0xffff_u32 - 4;
    for step in 0..1010u32 {
        let call = first.wrapping_add(step);
        if step % 100 == 50 {
            epoch += 1;
            let view = View {
                first: call,
                epoch,
                members: all.to_vec(),
                placement: group.moes[0].placement(),
            };
            for moe in &group.moes {
                moe.set_view(&view, DEADLINE).unwrap();
            }
        }
        group.whole_call(&all, 31, call);
        let report = group.report(0);
        assert_eq!(report.call, call);
        if step >= 50 {
            assert_eq!(report.epoch, epoch & 0xffff, "call {call}");
        }
    }
    for moe in &group.moes {
        let last = first.wrapping_add(1009);
        assert_eq!((moe.started(), moe.finished()), (last, last));
        assert!(moe.last_fault().is_none());
    }
    group.end();
}

#[test]
fn a_rank_that_is_late_where_numbers_wrap_loses_its_rows_and_catches_up() {
    let mut group = Group::new(2, Duration::from_secs(3));
    let all = [0, 1];
    let first = 0u32.wrapping_sub(3);
    for moe in &group.moes {
        moe.begin_at(first).unwrap();
    }
    group.whole_call(&all, 32, first);
    group.whole_call(&all, 32, first.wrapping_add(1));
    // Rank 0 alone over the end; in the fifth and sixth call it has no credit, so rank 1 is told that nothing comes.
    for step in 2..6 {
        let batches = group.batches(32, first.wrapping_add(step));
        group.send(&[0], &batches);
        group.receive(&[0], &batches, |_| vec![0]);
        group.send_back(&[0]);
        group.receive_back(&[0], &batches, |_| vec![0]);
    }
    group.settle();
    for step in 2..6 {
        let batches = group.batches(32, first.wrapping_add(step));
        let there = step < 4;
        group.send(&[1], &batches);
        group.receive(&[1], &batches, |_| if there { vec![0, 1] } else { vec![1] });
        group.send_back(&[1]);
        group.receive_back(&[1], &batches, |_| vec![1]);
    }
    group.settle();
    for moe in &group.moes {
        moe.set_deadlines(&warpverbs::moe::Deadlines::new(DEADLINE))
            .unwrap();
    }
    for step in 6..12 {
        group.whole_call(&all, 32, first.wrapping_add(step));
    }
    group.end();
}
