//! What a slot or a word says is checked before it is used (C2). A fault is reported by its cause, and each call waits for as
//! long as its deadline says.

// UNSAFETY: launches send phases with deadlines of their own.
#![expect(unsafe_code, reason = "launches of send phases")]

use std::sync::Arc;
use std::time::Duration;

use test_support::limits::HANG;
use test_support::moe::expert;
use warpverbs::abi::{MoeCause, Outcome, Status};
use warpverbs::gpu::Event;
use warpverbs::internal::moe_abi::{KIND_COMBINE, KIND_DISPATCH};
use warpverbs::moe::{Batch, CombineInput, Deadlines, DispatchInput, MoeError};
use warpverbs::team::CqKind;

use crate::group::{Group, SHAPE};

const DEADLINE: Duration = Duration::from_secs(20);
const ALL: [u32; 2] = [0, 1];

/// Where the header of rank 1's first row of `call` lies at rank 0: token, call, `top_k` expert slots, `top_k` weights.
fn header(group: &Group, call: u32) -> u64 {
    let context = group.context(0);
    let row = u64::from((call % 2 * 2 + 1) * SHAPE.max_tokens);
    context.layer.data.base + row * context.slot_bytes
}

/// `batch` of rank 1 without its first token for rank 0.
fn without_first(group: &Group, batch: &Batch) -> Batch {
    let (mut rest, placement) = (batch.clone(), group.moes[0].placement());
    let here = |expert: &i32| {
        let mut slots = placement.slots_of(*expert).iter();
        slots.any(|slot| placement.homes()[*slot as usize].rank == 0)
    };
    let mut tokens = rest.experts.chunks_exact_mut(SHAPE.top_k as usize);
    let first = tokens.find(|choices| choices.iter().any(here));
    first.expect("rank 1 has a token for rank 0").fill(-1);
    rest
}

#[test]
fn a_header_out_of_range_costs_its_row_and_its_source_is_named() {
    // Words of the header, and what they are changed to.
    let spoiled: [&[(u64, u32)]; 6] = [
        &[(0, SHAPE.max_tokens)],
        &[(0, u32::MAX)],
        &[(1, 1)],
        &[(2, SHAPE.experts)],
        &[(2, u32::MAX - 1)],
        // The same expert twice.
        &[(2, 0), (3, 0)],
    ];
    let mut group = Group::new(2, DEADLINE);
    let mut call = 0;
    for words in spoiled {
        call += 2;
        group.whole_call(&ALL, 81, call - 1);
        let batches = group.batches(81, call);
        group.send(&ALL, &batches);
        group.settle();
        for (word, value) in words {
            let at = header(&group, call) + 4 * word;
            let gpu = group.moes[0].team().gpu();
            gpu.write(at, &value.to_le_bytes()).unwrap();
        }
        let left = [batches[0].clone(), without_first(&group, &batches[1])];
        group.receive(&[0], &left, |_| ALL.to_vec());
        let report = group.report(0);
        let what = format!("{words:?}: {report}");
        assert_eq!(report.peers[1].malformed, 1, "{what}");
        assert_eq!(report.phases[1], Status::INVALID, "{what}");
        let fault = report.fault.as_ref().expect(&what);
        assert_eq!(
            (fault.cause, fault.peer),
            (MoeCause::MALFORMED, Some(1)),
            "{what}"
        );
        group.receive(&[1], &batches, |_| ALL.to_vec());
        group.send_back(&ALL);
        // All of rank 1's tokens that went to rank 0: it may be any of them that was not processed.
        group.receive_back(&ALL, &batches, |rank| {
            if rank == 0 { ALL.to_vec() } else { vec![1] }
        });
        assert!(group.moes[0].suspected().is_empty(), "{what}");
    }
    group.whole_call(&ALL, 81, call + 1);
    group.end();
}

#[test]
fn a_word_with_more_rows_than_there_may_be_counts_as_none() {
    let mut group = Group::new(2, DEADLINE);
    for (call, count) in [(1, SHAPE.max_tokens + 1), (2, 0xfffe)] {
        let batches = group.batches(82, call);
        group.send(&ALL, &batches);
        group.settle();
        let mut signal = group.signal(0, 1, KIND_DISPATCH, call);
        signal.data = signal.data & !0xffff | u64::from(count + 1);
        group.put_signal(0, 1, KIND_DISPATCH, call, &signal);
        group.receive(&[0], &batches, |_| vec![0]);
        let report = group.report(0);
        assert_eq!(
            report.peers[1].dispatch_received,
            Outcome::GAVE_UP,
            "{report}"
        );
        let fault = report.fault.as_ref().unwrap();
        assert_eq!(
            (fault.cause, fault.peer),
            (MoeCause::MALFORMED, Some(1)),
            "{report}"
        );
        group.receive(&[1], &batches, |_| ALL.to_vec());
        group.send_back(&ALL);
        group.receive_back(&ALL, &batches, |rank| {
            if rank == 0 { ALL.to_vec() } else { vec![1] }
        });
    }
    group.whole_call(&ALL, 82, 3);
    group.end();
}

#[test]
fn an_hca_that_gives_up_ends_the_wait_before_the_deadline_and_says_why() {
    for cq in [CqKind::Collapsed, CqKind::Wide] {
        let mut group = Group::tuned(2, SHAPE, |team| {
            team.deadline = DEADLINE;
            team.path.ack_timeout = Some(15);
            team.modes.cq = cq;
        });
        group.whole_call(&ALL, 83, 1);
        group.unplug(1);
        let batches = group.batches(83, 2);
        group.send(&[0], &batches);
        group.receive(&[0], &batches, |_| vec![0]);
        let report = group.report(0);
        let fault = report.fault.as_ref().unwrap();
        // Transport retry counter exceeded; or a WQE after it, flushed, has written over the one collapsed entry.
        let expected = match fault.cause {
            MoeCause::FLUSHED if cq == CqKind::Collapsed => (MoeCause::FLUSHED, 0),
            _ => (MoeCause::CQE_ERROR, 0x15),
        };
        let told = (fault.cause, fault.syndrome & 0xff);
        assert_eq!((told, fault.peer), (expected, Some(1)), "{cq:?}: {report}");
        let peer = report.peers[1];
        assert_eq!((peer.cause, peer.syndrome & 0xff), expected, "{report}");
        assert!(group.waited(0) < DEADLINE, "{report}");
        group.end();
    }
}

#[test]
fn a_cause_that_was_flushed_over_is_reported_as_lost_without_a_syndrome() {
    for (failure, cause, words) in [
        (
            (Status::CQE_ERROR, 0x8115),
            (MoeCause::CQE_ERROR, 0x8115),
            "error completion, syndrome 0x8115",
        ),
        (
            (Status::FLUSHED, 0x05),
            (MoeCause::FLUSHED, 0),
            "flushed, the cause is lost",
        ),
        (
            (Status::ABORTED, 0),
            (MoeCause::ABORTED, 0),
            "ended by the host",
        ),
    ] {
        let mut group = Group::new(2, DEADLINE);
        group.whole_call(&ALL, 86, 1);
        // As a kernel latches it, for all QPs of rank 0 to rank 1.
        group.fail_qps(0, 1, failure);
        let batches = group.batches(86, 2);
        group.send(&[0], &batches);
        group.receive(&[0], &batches, |_| vec![0]);
        let report = group.report(0);
        let fault = report.fault.as_ref().unwrap();
        assert_eq!((fault.cause, fault.syndrome), cause, "{report}");
        let peer = report.peers[1];
        assert_eq!((peer.cause, peer.syndrome), cause, "{report}");
        assert!(fault.to_string().contains(words), "{report}");
        assert_eq!(group.moes[0].last_fault().as_ref(), Some(fault));
        group.end();
    }
}

#[test]
fn a_call_waits_until_the_warm_up_deadline_or_that_of_layer_or_call() {
    // Of each call one is short, and those that do not count are as long as the test may take.
    let short = Duration::from_secs(1);
    let mut group = Group::new(2, DEADLINE);
    for (call, warm, steady) in [(1, short, HANG), (2, HANG, short), (3, HANG, HANG)] {
        let deadlines = Deadlines::new(steady).with_warm(warm).with_warm_calls(1);
        group.moes[0].set_deadlines(&deadlines).unwrap();
        let batches = group.batches(84, call);
        if call == 3 {
            let work = &group.works[0];
            let input = DispatchInput::default().with_deadline(Some(short));
            let gpu = group.moes[0].team().gpu();
            // SAFETY: no token is read; layer and handle outlive the event, which is waited for here.
            let sent =
                unsafe { group.moes[0].dispatch_send(&gpu.default_stream(), work.call(), &input) };
            gpu.wait(&sent.unwrap(), DEADLINE).unwrap();
            group.works[0].receive().unwrap();
        } else {
            group.send(&[0], &batches);
            group.receive(&[0], &batches, |_| vec![0]);
        }
        let waited = group.waited(0);
        assert!(waited >= short && waited < HANG, "call {call}: {waited:?}");
        // Rank 1 is heard of, so that rank 0 waits for it again.
        if call < 3 {
            group.send_back(&[0]);
            group.send(&[1], &batches);
            group.settle();
        }
    }
    group.end();
}

/// A combine of rank 0 in `call`, whose dispatch has the deadline `dispatch`; rank 1 sends nothing back. Returns how long it waited.
fn waits_for_rows(
    group: &mut Group,
    call: u32,
    dispatch: Duration,
    combine: Option<Duration>,
) -> Duration {
    let batches = group.batches(88, call);
    group.send(&[1], &batches);
    let (moe, stream) = (
        Arc::clone(&group.moes[0]),
        group.moes[0].team().gpu().default_stream(),
    );
    let wait = |event: Result<Event, MoeError>| event.unwrap().wait(HANG).unwrap();
    let input = DispatchInput::default().with_deadline(Some(dispatch));
    // SAFETY: no token is read; layer and handle outlive the event, which is waited for here.
    wait(unsafe { moe.dispatch_send(&stream, group.works[0].call(), &input) });
    group.settle();
    for work in &mut group.works {
        work.receive().unwrap();
        work.experts(expert).unwrap();
    }
    let work = &mut group.works[0];
    let back = CombineInput::default()
        .with_y(work.y().unwrap())
        .with_deadline(combine);
    // SAFETY: `y` has a place for each row; all of it outlives the event, which is waited for here.
    wait(unsafe { moe.combine_send(&stream, work.call(), &back) });
    work.receive_back().unwrap();
    let report = group.report(0);
    let fault = report.fault.as_ref().unwrap();
    assert_eq!(
        (fault.phase, fault.cause),
        (3, MoeCause::TIMEOUT),
        "{report}"
    );
    // Rank 1 is heard of, so that rank 0 waits for it again.
    group.send_back(&[1]);
    group.settle();
    Duration::from_nanos(u64::from(report.peers[1].waited[KIND_COMBINE as usize]) << 10)
}

#[test]
fn a_combine_waits_for_as_long_as_was_said_of_itself_or_of_its_dispatch() {
    let short = Duration::from_secs(1);
    let mut group = Group::new(2, HANG);
    for (call, dispatch, combine) in [(1, HANG, Some(short)), (2, short, None)] {
        let waited = waits_for_rows(&mut group, call, dispatch, combine);
        assert!(waited >= short && waited < HANG, "call {call}: {waited:?}");
    }
    group.end();
}

#[test]
fn a_ring_full_of_words_for_a_masked_dead_rank_holds_up_no_rank() {
    // One QP for all words, of the least depth. The HCA of rank 0 stands still, so what is posted never leaves the ring: a call that
    // waited for room would wait until its deadline, and say so.
    let mut group = Group::tuned(2, SHAPE, |team| {
        team.qps_per_peer = 1;
        team.log_depth = 8;
        team.deadline = HANG;
    });
    group.whole_call(&ALL, 85, 1);
    group.settle();
    group.moes[0].set_active(&[true, false]).unwrap();
    group.unplug(1);
    group.hca(0).pause(Duration::from_secs(3600));
    for call in 2..=160 {
        let batches = group.batches(85, call);
        group.send(&[0], &batches);
        group.receive(&[0], &batches, |_| vec![0]);
        group.send_back(&[0]);
        group.receive_back(&[0], &batches, |_| vec![0]);
        let report = group.report(0);
        assert!(report.fault.is_none(), "call {call}: {report}");
    }
    group.hca(0).pause(Duration::ZERO);
    group.end();
}
