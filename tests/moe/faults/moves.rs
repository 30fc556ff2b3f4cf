//! Experts move with a view, while calls run: each call goes by the placement in which it began, to its end.

use std::time::Duration;

use test_support::limits::until;
use warpverbs::moe::{Placement, View};

use crate::group::{Group, SHAPE};

const DEADLINE: Duration = Duration::from_secs(20);
const ALL: [u32; 3] = [0, 1, 2];

/// Every expert at one or two ranks, at random; some rank may hold none.
fn scattered(seed: u64) -> Placement {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut held = vec![Vec::new(); ALL.len()];
    for expert in 0..SHAPE.experts {
        let first = random.usize(..held.len());
        held[first].push(expert);
        if random.bool() {
            let other = (first + 1 + random.usize(..2)) % held.len();
            held[other].push(expert);
        }
    }
    for held in &mut held {
        random.shuffle(held);
    }
    Placement::from_slots(SHAPE.experts, held).unwrap()
}

fn set(group: &Group, first: u32, placement: &Placement) {
    for moe in &group.moes {
        let view = View {
            first,
            epoch: first,
            members: ALL.to_vec(),
            placement: placement.clone(),
        };
        moe.set_view(&view, DEADLINE).unwrap();
    }
}

#[test]
fn a_call_in_flight_ends_with_the_experts_where_they_were() {
    for seed in 0..3 {
        let mut group = Group::new(3, DEADLINE);
        group.whole_call(&ALL, seed, 1);
        let mut before = group.moes[0].placement();
        for call in 2..=9 {
            let after = scattered(seed << 8 | u64::from(call));
            let batches = group.batches(seed, call);
            let what = format!("seed {seed}, call {call}");
            // The next view comes at every point of the call.
            let point = (u64::from(call) + seed) % 4;
            let change = |group: &Group, at: u64| {
                if at == point {
                    set(group, call + 1, &after);
                    assert_eq!(group.moes[0].placement(), after, "{what}");
                    let view = group.moes[0].control().view_of(call).unwrap();
                    assert_eq!(view.placement, before, "{what}");
                }
            };
            group.send(&ALL, &batches);
            change(&group, 0);
            group.receive(&ALL, &batches, |_| ALL.to_vec());
            change(&group, 1);
            group.send_back(&ALL);
            change(&group, 2);
            group.receive_back(&ALL, &batches, |_| ALL.to_vec());
            change(&group, 3);
            for rank in ALL {
                let report = group.report(rank);
                assert!(report.is_complete(), "{what}: {report}");
                assert_eq!(group.works[rank as usize].placement(), &before, "{what}");
                let moe = &group.moes[rank as usize];
                assert_eq!(moe.local_experts(), after.of_rank(rank), "{what}");
            }
            before = after;
        }
        assert!(
            group.moes[0].control().view_of(1).is_none(),
            "its view is gone"
        );
        group.end();
    }
}

#[test]
fn a_view_takes_the_place_of_one_in_which_no_call_has_begun() {
    let mut group = Group::new(3, DEADLINE);
    group.whole_call(&ALL, 7, 1);
    let (unused, used) = (scattered(1), scattered(2));
    set(&group, 2, &unused);
    // No rank has made call 2. The old view still serves call 1, and need not end for this one.
    set(&group, 2, &used);
    assert_eq!(group.moes[0].placement(), used);
    group.whole_call(&ALL, 7, 2);
    assert_eq!(group.works[1].placement(), &used);
    // A call that is held has begun, but in no view yet.
    for moe in &group.moes {
        moe.set_limit(Some(2));
    }
    set(&group, 3, &unused);
    let batches = group.batches(7, 3);
    let moes = group.moes.clone();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| group.send(&ALL, &batches));
        for moe in &moes {
            until("call 3 takes its number", || moe.started() == 3);
            let view = View::clone(&moe.view());
            let again = View {
                placement: used.clone(),
                ..view
            };
            moe.set_view(&again, DEADLINE).unwrap();
        }
        for moe in &moes {
            moe.set_limit(None);
        }
        held.join().unwrap();
    });
    drop(moes);
    group.receive(&ALL, &batches, |_| ALL.to_vec());
    group.send_back(&ALL);
    group.receive_back(&ALL, &batches, |_| ALL.to_vec());
    assert_eq!(group.works[2].placement(), &used);
    group.end();
}

#[test]
fn a_call_without_a_combine_ends_when_its_dispatch_has_been_received() {
    let mut group = Group::new(3, DEADLINE);
    for work in &mut group.works {
        work.set_combine_options(warpverbs::moe::CombineOptions::default().with_no_combine(true));
    }
    let finished = |group: &Group| {
        group
            .moes
            .iter()
            .map(|moe| moe.finished())
            .collect::<Vec<_>>()
    };
    for call in 1..=4 {
        let batches = group.batches(8, call);
        group.send(&ALL, &batches);
        assert_eq!(finished(&group), [call - 1; 3]);
        group.receive(&ALL, &batches, |_| ALL.to_vec());
        assert_eq!(finished(&group), [call; 3]);
        // Each of these takes the place of the view before the last: no call may need it after its last one.
        set(&group, call + 1, &scattered(call.into()));
    }
    group.send_back(&[0]);
    let report = group.report(0);
    assert_eq!(
        report.phases[2],
        warpverbs::abi::Status::INVALID,
        "{report}"
    );
    group.end();
}
