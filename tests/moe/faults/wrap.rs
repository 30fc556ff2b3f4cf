//! Numbers that wrap: calls at 2^32, epochs at 2^16.

use std::time::Duration;

use warpverbs::internal::moe_abi::KIND_COMBINE;
use warpverbs::moe::{CombineOptions, View};

use crate::group::Group;

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn a_thousand_calls_go_over_the_end_of_their_numbers_and_of_the_epochs() {
    let mut group = Group::new(2, DEADLINE);
    let all = [0, 1];
    let first = 0u32.wrapping_sub(500);
    for moe in &group.moes {
        moe.control().begin_at(first).unwrap();
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
    let mut group = Group::new(2, DEADLINE);
    let all = [0, 1];
    let first = 0u32.wrapping_sub(3);
    for moe in &group.moes {
        moe.control().begin_at(first).unwrap();
    }
    group.whole_call(&all, 32, first);
    group.whole_call(&all, 32, first.wrapping_add(1));
    group.set_deadline(Duration::from_secs(3));
    // Rank 0 alone over the end; in the fifth and sixth call it has no credit, so rank 1 gets a word that nothing comes.
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
    group.set_deadline(DEADLINE);
    for step in 6..12 {
        group.whole_call(&all, 32, first.wrapping_add(step));
    }
    group.end();
}

#[test]
fn a_rank_that_was_sent_nothing_for_2_to_the_31_calls_gets_rows_again() {
    for jump in [1 << 29, (1 << 30) + 2, (1 << 31) - 8, 1 << 31] {
        let mut group = Group::new(2, DEADLINE);
        let all = [0, 1];
        for call in 1..=2 {
            group.whole_call(&all, 33, call);
        }
        group.moes[0].set_active(&[true, false]).unwrap();
        for step in 3..=8 {
            // As if all calls between had been made like these.
            if step == 7 {
                for moe in &group.moes {
                    moe.control().begin_at(jump + step).unwrap();
                }
            }
            let call = if step < 7 { step } else { jump + step };
            let batches = group.batches(33, call);
            group.send(&all, &batches);
            group.receive(&all, &batches, |rank| vec![rank]);
            group.send_back(&all);
            group.receive_back(&all, &batches, |rank| vec![rank]);
        }
        group.moes[0].set_active(&[true; 2]).unwrap();
        for step in 9..=12 {
            group.whole_call(&all, 33, jump + step);
            let waited = group.waited(0).max(group.waited(1));
            assert!(waited < DEADLINE, "jump of {jump}, step {step}: {waited:?}");
        }
        group.end();
    }
}

#[test]
fn words_that_are_not_in_use_are_written_again_every_2_to_the_28_calls() {
    let mut group = Group::new(2, DEADLINE);
    let all = [0, 1];
    for call in 1..=2 {
        group.whole_call(&all, 34, call);
    }
    for work in &mut group.works {
        work.set_combine_options(CombineOptions::default().with_no_combine(true));
    }
    let middle = 1u32 << 27;
    for moe in &group.moes {
        moe.control().begin_at(middle - 4).unwrap();
    }
    // The newest dispatch that its writer has closed, as the words of combines say.
    let told = |group: &Group, set: u32| {
        let word = |[reader, writer]: [u32; 2]| group.signal(reader, writer, KIND_COMBINE, set);
        [[0, 1], [1, 0]].map(|pair| word(pair).credit >> 32)
    };
    for call in middle - 4..middle + 4 {
        let batches = group.batches(34, call);
        group.send(&all, &batches);
        group.receive(&all, &batches, |_| all.to_vec());
        group.settle();
        for set in 0..2 {
            let renewed = call >= middle + set;
            let credits = told(&group, set);
            let new = credits.map(|credit| credit >= u64::from(middle - 1));
            assert_eq!(new, [renewed; 2], "call {call}, set {set}: {credits:?}");
        }
    }
    group.end();
}

#[test]
fn a_view_may_stand_for_longer_than_half_of_all_numbers() {
    // So many calls after the first ones, in one go; then over the numbers with which both views began.
    for far in [
        1 << 30,
        (1 << 31) - 1,
        (1u32 << 31) + 7,
        3 << 30,
        0u32.wrapping_sub(9),
    ] {
        let mut group = Group::new(2, DEADLINE);
        let all = [0, 1];
        let set = |group: &Group, first: u32, epoch: u32| {
            for moe in &group.moes {
                let view = View {
                    first,
                    epoch,
                    members: all.to_vec(),
                    placement: moe.placement(),
                };
                moe.set_view(&view, DEADLINE).unwrap();
            }
        };
        let whole = |group: &mut Group, call: u32, epoch: u32| {
            group.whole_call(&all, 35, call);
            let report = group.report(0);
            assert_eq!((report.call, report.epoch), (call, epoch), "far {far:#x}");
            let view = group.moes[0].control().view_of(call).unwrap();
            assert_eq!(view.epoch, epoch, "far {far:#x}, call {call:#x}");
        };
        let mut call = 1;
        for epoch in [1, 2] {
            if epoch == 2 {
                set(&group, call, 2);
            }
            for _ in 0..3 {
                whole(&mut group, call, epoch);
                call += 1;
            }
        }
        for to in [far, 0u32.wrapping_sub(3), 1 << 20] {
            for moe in &group.moes {
                moe.control().leap_to(to).unwrap();
            }
            call = to;
            for _ in 0..12 {
                call = call.wrapping_add(1);
                whole(&mut group, call, 2);
            }
        }
        let next = call.wrapping_add(1);
        set(&group, next, 3);
        // The view before is that of the calls before.
        assert_eq!(group.moes[0].control().view_of(call).unwrap().epoch, 2);
        for step in 0..3 {
            whole(&mut group, next.wrapping_add(step), 3);
        }
        set(&group, next.wrapping_add(3), 4);
        whole(&mut group, next.wrapping_add(3), 4);
        group.end();
    }
}
