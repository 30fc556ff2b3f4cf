//! Calls that the host holds back while a change of membership is prepared (B4), and those that are held for too long (B7).

use std::thread;
use std::time::{Duration, Instant};

use test_support::limits::until;
use test_support::moe::{batch, expert};
use warpverbs::abi::{MoeCause, Outcome, Status};
use warpverbs::moe::{Deadlines, View, Workspace};

use crate::group::{Group, SHAPE, TRAFFIC};

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
    thread::scope(|scope| {
        let held = scope.spawn(|| group.send(&[0, 1], &batches));
        for moe in &moes {
            until("call 3 takes its number", || moe.started() == 3);
        }
        thread::sleep(Duration::from_millis(50));
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

/// Held calls wait for so long from now on.
fn set_change(group: &Group, change: Duration) {
    for moe in &group.moes {
        let deadlines = Deadlines::new(DEADLINE).with_change(change);
        moe.set_deadlines(&deadlines).unwrap();
    }
}

#[test]
fn calls_held_in_vain_use_up_one_number_in_each_deadline() {
    let mut group = Group::new(2, DEADLINE);
    let change = Duration::from_millis(400);
    set_change(&group, change);
    group.whole_call(&[0, 1], 5, 1);
    for moe in &group.moes {
        moe.set_limit(Some(1));
    }
    let start = Instant::now();
    for number in 2..=5 {
        aborted_call(&mut group, &[0, 1], number);
    }
    assert!(start.elapsed() >= 4 * change, "{:?}", start.elapsed());
    for moe in &group.moes {
        moe.set_limit(None);
    }
    for number in 6..=9 {
        group.whole_call(&[0, 1], 5, number);
    }
    group.end();
}

#[test]
fn a_call_held_in_vain_ends_when_another_rank_has_begun_it() {
    let mut group = Group::new(2, DEADLINE);
    group.whole_call(&[0, 1], 5, 1);
    group.moes[0].control().board().set_refuse(true);
    group.moes[0].set_limit(Some(1));
    aborted_call(&mut group, &[0], 2);
    group.moes[0].control().board().set_refuse(false);
    set_change(&group, Duration::from_secs(3600));
    let first = group.moes[0].clone();
    group.each(&[0, 1], |rank, work| {
        // From call 4 on rank 1 waits for credits, too, which rank 0 tells after the calls that it was held in.
        for number in 2 + u32::from(rank == 0)..=6 {
            if rank == 1 && number > 2 {
                until("rank 0 takes the number", || first.started() == number);
            }
            work.send(&batch(&SHAPE, TRAFFIC, 5, number, rank)).unwrap();
            work.receive().unwrap();
            work.experts(expert).unwrap();
            work.send_back().unwrap();
            work.receive_back().unwrap();
            let report = work.call().report().unwrap();
            assert_eq!(report.call, number, "{report}");
            if rank == 0 {
                assert_eq!(report.phases, [Status::ABORTED; 4], "{report}");
            } else {
                assert_eq!(report.peers[0].dispatch_received, Outcome::NOT_SENT);
            }
        }
    });
    assert!(group.moes[1].suspected().is_empty());
    first.set_limit(None);
    drop(first);
    for number in 7..=10 {
        group.whole_call(&[0, 1], 5, number);
    }
    group.end();
}

#[test]
fn a_rank_that_is_held_owes_no_credit_for_calls_that_ended_aborted() {
    let deadline = Duration::from_secs(12);
    let mut group = Group::new(2, deadline);
    group.moes[0].control().board().set_refuse(true);
    group.moes[0].set_limit(Some(0));
    // As a hook has it: the next dispatch is sent before the combine is received.
    let mut other = Workspace::new(&group.moes[1]).unwrap();
    let own = |call| batch(&SHAPE, TRAFFIC, 5, call, 1);
    let finish = |work: &mut Workspace| {
        work.receive().unwrap();
        work.experts(expert).unwrap();
        work.send_back().unwrap();
    };
    aborted_call(&mut group, &[0], 1);
    let one = |rank: u32| [rank];
    group.each(&one(1), |_, work| work.send(&own(1)).unwrap());
    group.each(&one(1), |_, work| finish(work));
    other.send(&own(2)).unwrap();
    group.each(&one(1), |_, work| {
        work.receive_back().unwrap();
    });
    aborted_call(&mut group, &[0], 2);
    group.settle();
    finish(&mut other);
    group.moes[0].control().board().set_refuse(false);
    let moes = group.moes.clone();
    let long = Deadlines::new(deadline).with_change(Duration::from_secs(3600));
    moes[0].set_deadlines(&long).unwrap();
    group.each(&[0, 1], |rank, work| {
        if rank == 1 {
            until("rank 0 takes its number", || moes[0].started() == 3);
        }
        work.send(&batch(&SHAPE, TRAFFIC, 5, 3, rank)).unwrap();
        let report = work.call().report().unwrap();
        match rank {
            0 => assert_eq!(report.phases[0], Status::ABORTED, "{report}"),
            _ => assert_eq!(report.peers[0].dispatch_sent, Outcome::SENT, "{report}"),
        }
    });
    assert!(moes[1].suspected().is_empty());
    drop((moes, other));
    group.end();
}

#[test]
fn a_rank_that_aborts_alone_tells_the_others_at_once_and_stays_in_step() {
    let mut group = Group::new(2, DEADLINE);
    for number in 1..=2 {
        group.whole_call(&[0, 1], 5, number);
    }
    group.moes[0].control().board().set_refuse(true);
    group.moes[0].set_limit(Some(2));
    aborted_call(&mut group, &[0], 3);
    let batches = group.batches(5, 3);
    group.send(&[1], &batches);
    group.receive(&[1], &batches, |_| vec![1]);
    group.send_back(&[1]);
    group.receive_back(&[1], &batches, |_| vec![1]);
    // It got a word that says so in both phases, so no rank is waited for and no rank is suspected.
    let report = group.report(1);
    assert_eq!(report.peers[0].dispatch_received, Outcome::NOT_SENT);
    assert_eq!(report.peers[0].combine_received, Outcome::NOT_SENT);
    assert!(group.moes[1].suspected().is_empty());
    group.moes[0].set_limit(None);
    group.moes[0].control().board().set_refuse(false);
    for number in 4..=8 {
        group.whole_call(&[0, 1], 5, number);
    }
    assert!(group.moes[1].suspected().is_empty());
    group.end();
}

/// At each of two ranks the view from `first` on: of itself alone, or of both.
fn set_views(group: &Group, first: u32, epoch: u32, united: bool) {
    for (rank, moe) in (0u32..).zip(&group.moes) {
        let view = View {
            first,
            epoch,
            members: if united { vec![0, 1] } else { vec![rank] },
            placement: moe.placement(),
        };
        moe.set_view(&view, DEADLINE).unwrap();
    }
}

/// Two ranks that are parted forget each other, and are connected anew.
fn connect_anew(group: &Group) {
    for (rank, moe) in (0u32..).zip(&group.moes) {
        moe.team().fail_peer(1 - rank).unwrap();
    }
    for (rank, moe) in (0u32..).zip(&group.moes) {
        moe.control().clear_peer(1 - rank).unwrap();
    }
    thread::scope(|scope| {
        for (rank, moe) in (0u32..).zip(&group.moes) {
            scope.spawn(move || moe.team().recover(1 - rank).unwrap());
        }
    });
}

/// A call of `rank` in which it exchanges with no other, by word and without a fault of its own.
fn lone_call(group: &mut Group, rank: u32, number: u32) {
    let batches = group.batches(6, number);
    group.send(&[rank], &batches);
    group.receive(&[rank], &batches, |rank| vec![rank]);
    group.send_back(&[rank]);
    group.receive_back(&[rank], &batches, |rank| vec![rank]);
    assert_eq!(group.report(rank).call, number);
}

#[test]
fn a_new_member_learns_of_the_calls_that_were_held_for_it_in_vain() {
    // Aborted calls on both sides of the wrap, and number 0 among them.
    for (first, aborted) in [
        (1, 1),
        (2, 2),
        (1, 3),
        (0xffff_fffc, 1),
        (0xffff_fffc, 2),
        (0xffff_fffb, 3),
    ] {
        let what = format!("from {first:#x}, {aborted} aborted");
        let mut group = Group::new(2, DEADLINE);
        for moe in &group.moes {
            moe.control().begin_at(first).unwrap();
        }
        let call = |step: u32| first.wrapping_add(step);
        group.whole_call(&[0, 1], 6, call(0));
        group.whole_call(&[0, 1], 6, call(1));
        set_views(&group, call(2), 2, false);
        connect_anew(&group);
        for rank in [0, 1] {
            lone_call(&mut group, rank, call(2));
        }
        // Rank 0 is held for the view that unites the two, and waits for it in vain.
        group.moes[0].control().board().set_refuse(true);
        group.moes[0].set_limit(Some(call(2)));
        for step in 0..aborted {
            aborted_call(&mut group, &[0], call(3 + step));
        }
        set_views(&group, call(3), 3, true);
        group.moes[0].set_limit(None);
        group.moes[0].control().board().set_refuse(false);
        // Its next call says so before it waits for any rank.
        let last = call(3 + aborted);
        let batches = group.batches(6, last);
        group.send(&[0], &batches);
        group.settle();
        for step in 0..aborted {
            lone_call(&mut group, 1, call(3 + step));
            let report = group.report(1);
            let peer = &report.peers[0];
            let got = (peer.dispatch_received, peer.combine_received);
            assert_eq!(
                got,
                (Outcome::NOT_SENT, Outcome::NOT_SENT),
                "{what}: {report}"
            );
        }
        group.send(&[1], &batches);
        group.receive(&[0, 1], &batches, |_| vec![0, 1]);
        group.send_back(&[0, 1]);
        group.receive_back(&[0, 1], &batches, |_| vec![0, 1]);
        for moe in &group.moes {
            assert!(moe.suspected().is_empty(), "{what}");
        }
        for step in 4..8 {
            group.whole_call(&[0, 1], 6, call(aborted + step));
        }
        group.end();
    }
}
