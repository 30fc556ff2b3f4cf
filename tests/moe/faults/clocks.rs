//! The clocks against peers: beats of those that wait themselves start them again, a change that is being prepared stops them.

// UNSAFETY: launches a kernel of the tests on buffers of the test.
#![expect(unsafe_code, reason = "launch of a test kernel")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use test_support::limits::{HANG, until};
use test_support::moe::expert;
use warpverbs::abi::{CallStage, DevicePtr, MoeCause, Outcome};
use warpverbs::gpu::Launch;
use warpverbs::internal::moe_abi::{DispatchReceiveParams, KIND_DISPATCH, MoeHandle, SETS};
use warpverbs::moe::{Batch, Deadlines, Moe, Workspace};

use crate::group::{Group, SHAPE};

/// Of the call with a slow rank. Half of it is what a busy machine may keep a thread from its core.
const DEADLINE: Duration = Duration::from_secs(10);
/// Deadline of calls in which no rank is late.
const LONG: Duration = Duration::from_secs(60);

/// The receive phase of dispatch as the library has it.
const BEATS: &str = "wv_moe_dispatch_receive";

/// The receive phase of dispatch through a kernel of the tests; no code looks at the rows.
fn receive_by(kernel: &str, moe: &Arc<Moe>, work: &Workspace) {
    let gpu = moe.team().gpu();
    let ranks = moe.team().ranks();
    let rows = SHAPE.experts * ranks * SHAPE.max_tokens;
    let [recv_x, counts, _] = work.expert_buffers();
    let src_info = gpu.alloc(rows as usize * 4, 128).unwrap();
    let ranges = gpu
        .alloc((SHAPE.experts * ranks) as usize * 8, 128)
        .unwrap();
    let params = DispatchReceiveParams {
        moe: DevicePtr::new(moe.context_addr()),
        handle: DevicePtr::new(work.call().addr()),
        recv_x: DevicePtr::new(recv_x),
        counts: DevicePtr::new(counts),
        src_info: DevicePtr::new(src_info.addr()),
        layout_range: DevicePtr::new(ranges.addr()),
        ..DispatchReceiveParams::default()
    };
    let launch = Launch::new(kernel, moe.grid().blocks, moe.grid().threads)
        .with_cooperative(true)
        .with_deadline(HANG);
    // SAFETY: the buffers have the sizes of the shape, and stay until the kernel has ended, in the next line.
    let event = unsafe { gpu.launch(&launch, bytemuck::bytes_of(&params)) }.unwrap();
    gpu.wait(&event, HANG).unwrap();
}

/// Rank 0 has reached rank 2 with its dispatch, and not rank 1, and then says nothing any more. Rank 2 goes on to combine and
/// waits for rank 1, which waits for rank 0, in `kernel`, and began a little later. What rank 2 concludes about rank 1.
fn a_slow_rank_that_reached_one(kernel: &str) -> (Outcome, Vec<u32>, Duration) {
    let mut group = Group::new(3, LONG);
    let all = [0, 1, 2];
    group.whole_call(&all, 61, 1);
    group.set_deadline(DEADLINE);
    let before = group.signal(1, 0, KIND_DISPATCH, 2);
    let batches = group.batches(61, 2);
    group.send(&all, &batches);
    group.settle();
    group.put_signal(1, 0, KIND_DISPATCH, 2, &before);
    group.receive(&[2], &batches, |_| all.to_vec());
    group.send_back(&[2]);
    let (moe, waits) = (Arc::clone(&group.moes[1]), Arc::clone(&group.moes[2]));
    let beats = kernel == BEATS;
    let waiting = group.works[2].call().addr();
    let gpu = Arc::clone(group.moes[2].team().gpu());
    let started = Instant::now();
    group.each(&[1, 2], |rank, work| {
        if rank == 2 {
            work.receive_back().unwrap();
            return;
        }
        // Rank 2's clock runs out before this one's. Until then the rank without beats sends nothing. So rank 2 sees it in time,
        // even if the machine stops rank 2 for a while.
        let mut handle = MoeHandle::zeroed();
        until("rank 2 has combined", || {
            gpu.read(waiting, bytemuck::bytes_of_mut(&mut handle))
                .unwrap();
            handle.stage == CallStage::COMBINED
        });
        thread::sleep(DEADLINE / 4);
        receive_by(kernel, &moe, work);
        if !beats {
            until("rank 2 gives up", || waits.suspected().contains(&1));
        }
        work.send_back().unwrap();
    });
    assert!(started.elapsed() >= DEADLINE);
    drop(waits);
    let (waits, healthy) = (group.report(2), group.report(1));
    assert_eq!(
        healthy.peers[0].dispatch_received,
        Outcome::GAVE_UP,
        "{healthy}"
    );
    assert_eq!(
        healthy.peers[2].dispatch_received,
        Outcome::ACCEPTED,
        "{healthy}"
    );
    assert_eq!(waits.peers[0].combine_received, Outcome::GAVE_UP, "{waits}");
    let found = (
        waits.peers[1].combine_received,
        group.moes[2].suspected(),
        group.waited(2),
    );
    drop(moe);
    group.settle();
    group.end();
    found
}

#[test]
fn a_healthy_rank_that_waits_for_a_slow_one_is_kept_because_it_beats() {
    let (outcome, suspected, waited) = a_slow_rank_that_reached_one(BEATS);
    assert_eq!(outcome, Outcome::ACCEPTED);
    assert_eq!(suspected, [0]);
    // Longer than its deadline, since every beat starts the clock again.
    println!("with beats rank 2 has waited {waited:?} of {DEADLINE:?}");
}

#[test]
fn without_beats_a_healthy_rank_is_given_up() {
    let (outcome, suspected, waited) =
        a_slow_rank_that_reached_one("wv_test_moe_dispatch_receive_no_beat");
    println!("without beats rank 2 has waited {waited:?} of {DEADLINE:?}");
    assert_eq!(outcome, Outcome::GAVE_UP);
    assert_eq!(suspected, [0, 1]);
    // With beats it would have waited for the two deadlines that a phase has at most.
    assert!(waited >= DEADLINE && waited < 2 * DEADLINE, "{waited:?}");
}

const STEADY: Duration = Duration::from_secs(1);

fn pair(change: Duration) -> Group {
    let mut group = Group::new(2, Duration::from_secs(20));
    group.whole_call(&[0, 1], 62, 1);
    for moe in &group.moes {
        let deadlines = Deadlines::new(STEADY).with_change(change);
        moe.set_deadlines(&deadlines).unwrap();
    }
    group
}

#[test]
fn the_clock_against_a_promised_rank_stops_while_a_change_is_prepared() {
    let mut group = pair(Duration::from_secs(120));
    let batches = group.batches(62, 2);
    group.send(&[0], &batches);
    let moe = Arc::clone(&group.moes[0]);
    moe.control().board().set_preparing(Some(&[1])).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| group.receive(&[0], &batches, |_| vec![0]));
        // Its guard says that it waits.
        until("rank 0 waits", || moe.team().guards(1).unwrap() > 0);
        thread::sleep(2 * STEADY + STEADY / 2);
        assert!(!waits.is_finished(), "its clock has run");
        assert!(moe.suspected().is_empty());
        // From now on it runs.
        moe.control().board().set_preparing(None).unwrap();
        waits.join().unwrap();
    });
    let report = group.report(0);
    assert_eq!(
        report.peers[1].dispatch_received,
        Outcome::GAVE_UP,
        "{report}"
    );
    assert!(group.waited(0) >= 3 * STEADY, "{report}");
    assert_eq!(moe.suspected(), [1]);
    drop(moe);
    group.settle();
    group.end();
}

/// A rank that has promised hears of the end of a change later than another one, and has a whole deadline from then on.
#[test]
fn a_clock_that_stood_still_starts_again() {
    let deadline = 4 * STEADY;
    let mut group = pair(Duration::from_secs(120));
    group.set_deadline(deadline);
    let batches = group.batches(62, 2);
    group.send(&[0], &batches);
    let moe = Arc::clone(&group.moes[0]);
    let moved_on = thread::scope(|scope| {
        let waits = scope.spawn(|| {
            group.receive(&[0], &batches, |_| vec![0]);
            Instant::now()
        });
        until("rank 0 waits", || moe.team().guards(1).unwrap() > 0);
        // Half of its deadline is used up when the change begins.
        thread::sleep(deadline / 2);
        moe.control().board().set_preparing(Some(&[1])).unwrap();
        thread::sleep(deadline / 8);
        let over = Instant::now();
        moe.control().board().set_preparing(None).unwrap();
        waits.join().unwrap() - over
    });
    // It looks at the words of the host 128 times per deadline.
    assert!(moved_on >= deadline - deadline / 64, "{moved_on:?}");
    assert_eq!(moe.suspected(), [1]);
    drop(moe);
    group.settle();
    group.end();
}

#[test]
fn a_rank_that_comes_while_clocks_stand_still_is_no_suspect() {
    let mut group = pair(Duration::from_secs(120));
    let batches = group.batches(62, 2);
    group.moes[0]
        .control()
        .board()
        .set_preparing(Some(&[1]))
        .unwrap();
    group.send(&[0], &batches);
    let sent = group.each(&[0, 1], |rank, work| {
        if rank == 0 {
            work.receive().unwrap();
            return Instant::now();
        }
        thread::sleep(2 * STEADY);
        let now = Instant::now();
        work.send(&batches[1]).unwrap();
        now
    });
    assert!(sent[0] >= sent[1]);
    let report = group.report(0);
    assert_eq!(
        report.peers[1].dispatch_received,
        Outcome::ACCEPTED,
        "{report}"
    );
    assert!(report.is_complete(), "{report}");
    assert!(group.moes[0].suspected().is_empty());
    group.settle();
    group.end();
}

#[test]
fn clocks_stop_no_longer_than_a_change_and_only_for_ranks_that_promised() {
    let short = Duration::from_secs(1);
    for (promised, change, stands) in [(&[1][..], short, short), (&[0], HANG, Duration::ZERO)] {
        let mut group = pair(change);
        let batches = group.batches(62, 2);
        group.moes[0]
            .control()
            .board()
            .set_preparing(Some(promised))
            .unwrap();
        group.send(&[0], &batches);
        group.receive(&[0], &batches, |_| vec![0]);
        let (report, waited) = (group.report(0), group.waited(0));
        let fault = report.fault.as_ref().unwrap();
        assert_eq!(
            (fault.cause, fault.peer),
            (MoeCause::TIMEOUT, Some(1)),
            "{report}"
        );
        assert!(waited >= STEADY + stands, "{promised:?}: {waited:?}");
        // A clock that stood still against rank 1 all the same would have done so for as long as a change may take.
        assert!(
            stands == change || waited < change,
            "{promised:?}: {waited:?}"
        );
        group.settle();
        group.end();
    }
}

/// So many calls ranks 0 and 1 make without ranks 2 and 3. The first 5 are those that a word has passed by 4.
const AHEAD: u32 = 9;
const PASSED: u32 = 5;

/// From call `first` on all ranks are whole. Then ranks 2 and 3 stop for a while, and catch up one after the other. In a call that ranks 0
/// and 1 have passed, neither waits for the other, nor for its credit. In the rest they have each other.
fn two_ranks_are_passed(first: u32) {
    let mut group = Group::new(4, LONG);
    let (all, well, behind) = ([0, 1, 2, 3], [0, 1], [2, 3]);
    for moe in &group.moes {
        moe.control().begin_at(first).unwrap();
    }
    group.whole_call(&all, 63, first);
    group.settle();
    for rank in well {
        let moe = &group.moes[rank as usize];
        moe.control().board().set_suspects(&behind).unwrap();
    }
    let batches = |group: &Group, step: u32| group.batches(63, first.wrapping_add(step));
    for step in 1..=AHEAD {
        let batches = batches(&group, step);
        group.whole_call_among(&well, &batches);
        // A suspect gets nothing while anything to it is in flight.
        group.settle();
    }
    for late in behind {
        for step in 1..=PASSED {
            let batches = batches(&group, step);
            catch_up(&mut group, late, step, &batches);
        }
        group.settle();
    }
    for step in PASSED + 1..=AHEAD {
        let batches = batches(&group, step);
        group.whole_call_among(&behind, &batches);
    }
    for rank in well {
        group.moes[rank as usize]
            .control()
            .board()
            .set_suspects(&[])
            .unwrap();
    }
    group.whole_call(&all, 63, first.wrapping_add(AHEAD + 1));
    group.settle();
    group.end();
}

/// One call of rank `late` that ranks 0 and 1 have passed.
fn catch_up(group: &mut Group, late: u32, step: u32, batches: &[Batch]) {
    let other = 5 - late;
    // A rank that was not heard gets rows in each set once more. Rank 3 catches up after rank 2 has.
    let sent = |rank: &u32| *rank == late || (*rank < late && step <= SETS);
    let seen: Vec<u32> = (0..4).filter(sent).collect();
    group.send(&[late], batches);
    group.receive(&[late], batches, |_| seen.clone());
    group.send_back(&[late]);
    group.works[late as usize].receive_back().unwrap();
    let (report, waited) = (group.report(late), group.waited(late));
    println!("rank {late}, call {step}: waited {waited:?} of {LONG:?}");
    if !seen.contains(&other) {
        let cause = report.peers[other as usize].cause;
        assert_eq!(cause, MoeCause::MISSED_CALL, "{report}");
    }
    assert!(group.moes[late as usize].suspected().is_empty(), "{report}");
}

#[test]
fn of_two_ranks_that_others_have_passed_none_waits_for_the_other() {
    two_ranks_are_passed(1);
}

#[test]
fn numbers_of_calls_that_were_passed_wrap() {
    for first in [u32::MAX - 3, u32::MAX - 7] {
        two_ranks_are_passed(first);
    }
}

/// Other ranks hear of a change later than the rank whose calls it holds, and wait for it meanwhile.
#[test]
fn a_rank_whose_call_is_held_is_kept_because_it_beats() {
    let mut group = Group::new(4, LONG);
    let all = [0, 1, 2, 3];
    group.whole_call(&all, 64, 1);
    for moe in &group.moes {
        let deadlines = Deadlines::new(DEADLINE).with_change(HANG);
        moe.set_deadlines(&deadlines).unwrap();
    }
    let held = Arc::clone(&group.moes[1]);
    held.set_limit(Some(1));
    let waits: Vec<Arc<Moe>> = [0, 2, 3].map(|rank| Arc::clone(&group.moes[rank])).into();
    thread::scope(|scope| {
        let batches = group.batches(64, 2);
        let group = &mut group;
        let calls = scope.spawn(move || {
            group.each(&all, |rank, work| {
                work.send(&batches[rank as usize]).unwrap();
                work.receive().unwrap();
                work.experts(expert).unwrap();
                work.send_back().unwrap();
                work.receive_back().unwrap();
                let report = work.call().report().unwrap();
                assert!(report.is_complete(), "{report}");
            });
        });
        until("call 2 is held", || held.started() == 2);
        for moe in &waits {
            until("the others wait", || moe.started() == 2);
        }
        thread::sleep(DEADLINE * 5 / 4);
        assert!(!calls.is_finished());
        held.set_limit(None);
        calls.join().unwrap();
    });
    drop((held, waits));
    group.settle();
    group.end();
}

/// When the others have given it up, a beat would make them wait for it in each of their calls.
#[test]
fn a_rank_whose_call_is_held_for_long_beats_for_two_deadlines() {
    let mut group = Group::new(4, LONG);
    let (all, rest) = ([0, 1, 2, 3], [0, 2, 3]);
    group.whole_call(&all, 65, 1);
    let short = Duration::from_millis(400);
    group.set_deadline(short);
    let deadlines = Deadlines::new(short).with_change(HANG);
    group.moes[1].set_deadlines(&deadlines).unwrap();
    let held = Arc::clone(&group.moes[1]);
    held.set_limit(Some(1));
    let beats =
        |group: &Group, reader| group.signal(reader, 1, KIND_DISPATCH, 1).alive & 0xffff_ffff;
    let batches = group.batches(65, 2);
    let mut own = group.works.remove(1);
    thread::scope(|scope| {
        let call = scope.spawn(|| own.send(&batches[1]));
        until("all beats have come", || {
            rest.iter().all(|reader| beats(&group, *reader) == 8)
        });
        thread::sleep(2 * short);
        for reader in rest {
            assert_eq!(beats(&group, reader), 8, "at rank {reader}");
        }
        held.control().board().set_refuse(true);
        call.join().unwrap().unwrap();
    });
    group.works.insert(1, own);
    drop(held);
    group.settle();
    group.end();
}

/// Ranks 0 and 1 wait for rank 2 in a call of the view before. Rank 3 has come in and waits for them in the next call.
#[test]
fn a_newcomer_keeps_ranks_that_wait_in_a_call_of_the_view_before() {
    let mut group = Group::new(4, LONG);
    let (all, before) = ([0, 1, 2, 3], [0, 1, 2]);
    group.whole_call(&all, 66, 1);
    group.set_view(&before, 2, 2, &before);
    // Rank 3 leaves call 2 out.
    group.moes[3].control().board().set_refuse(true);
    group.moes[3].set_limit(Some(1));
    let batches = [2, 3].map(|call| group.batches(66, call));
    group.each(&[3], |_, work| {
        work.send(&batches[0][3]).unwrap();
        work.receive().unwrap();
        work.send_back().unwrap();
        work.receive_back().unwrap();
    });
    group.moes[3].control().board().set_refuse(false);
    group.moes[3].set_limit(None);
    // Rank 3 does not wait for rank 2, which is late.
    group.set_deadline(2 * DEADLINE);
    let newcomer = Arc::clone(&group.moes[3]);
    newcomer.set_deadlines(&Deadlines::new(DEADLINE)).unwrap();
    group.send(&[0, 1], &batches[0]);
    group.set_view(&all, 3, 3, &all);
    newcomer.control().board().set_suspects(&[2]).unwrap();
    group.send(&[3], &batches[1]);
    group.each(&all, |rank, work| {
        match rank {
            3 => drop(work.receive().unwrap()),
            2 => {
                until("rank 3 waits", || newcomer.team().guards(0).unwrap() > 0);
                thread::sleep(DEADLINE * 5 / 4);
                work.send(&batches[0][2]).unwrap();
                work.receive().unwrap();
            }
            _ => drop(work.receive().unwrap()),
        }
        if rank != 3 {
            work.send_back().unwrap();
            work.receive_back().unwrap();
            assert!(work.call().report().unwrap().is_complete());
            work.send(&batches[1][rank as usize]).unwrap();
        }
    });
    let report = group.report(3);
    for rank in [0, 1] {
        let received = report.peers[rank].dispatch_received;
        assert_eq!(received, Outcome::ACCEPTED, "{report}");
    }
    assert_eq!(newcomer.suspected(), [2], "{report}");
    drop(newcomer);
    group.settle();
    group.end();
}
