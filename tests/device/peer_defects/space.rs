//! Ring space: which threads get it, when, and what a failure does to the threads that wait for it.

use warpverbs::abi::{MODE_WIDE_CQ, Status};

use crate::healthy;
use test_support::device::launch;
use test_support::nic::{Behaviour, Follow};
use test_support::ring::Ring;

/// A call that never gives up by itself.
const NEVER: u64 = u64::MAX;

/// gpunetio, qp.cuh:77-82: the wait for a slot drops the error and the slot is written again. NCCL #2383: it spins for ever.
#[test]
fn a_wait_for_a_slot_passes_the_error_on_and_leaves_the_slot_alone() {
    // The failure is among the first 400, so that no thread can be done with its own before.
    for (fail_at, threads) in [(10, 1), (300, 1), (300, 16), (390, 16)] {
        let ring = Ring::shared(256, 16 * 400, 0);
        let nic = ring.nic(Behaviour {
            fail_at: Some(fail_at),
            ..healthy(fail_at)
        });
        let count = 6400 / threads;
        let mut params = ring.params(count, 0);
        params.deadline_ns = NEVER;
        let ends = ring.run(&launch("wv_test_put_words", 1, threads, fail_at), &params);
        assert_eq!(nic.stop().findings, [""; 0], "{fail_at}, {threads} threads");
        let context = ring.read_context();
        let failed = matches!(context.err, Status::CQE_ERROR | Status::FLUSHED);
        assert!(failed, "{}", context.err);
        for (status, done) in ends {
            assert!(status == context.err && done < count, "{status} {done}");
        }
        assert!(context.cons <= fail_at, "{}", context.cons);
        assert!(context.resv <= context.cons + 256, "{}", context.resv);
        let wqe = ring.wqe(fail_at);
        assert_eq!(u64::from(wqe[1]) << 8 | u64::from(wqe[2]), fail_at);
    }
}

/// gpunetio: a slot wait that takes one CQE per WQE hangs at index >= depth on a collapsed CQ, and with unsignalled puts.
#[test]
fn rings_that_are_passed_many_times_need_no_completion_of_each_put() {
    for mode in [0, MODE_WIDE_CQ] {
        // 0: no thread asks before the end. 1: every thread asks each time.
        for every in [0, 1, 7, 64, 255, 256, 257, 999] {
            let kernels = ["wv_test_put_words", "wv_test_put_words_unsignalled"];
            for kernel in &kernels[..if every == 0 { 2 } else { 1 }] {
                for threads in [1, 8] {
                    let ring = Ring::new(256, 1200, 0, mode);
                    let nic = ring.nic(healthy(every.into()));
                    let count = 1200 / threads;
                    let ends = ring.run(
                        &launch(kernel, 1, threads, every.into()),
                        &ring.params(count, every),
                    );
                    let what = format!("{kernel} x {threads}, mode {mode:#x}, every {every}");
                    assert_eq!(nic.stop().findings, [""; 0], "{what}");
                    assert_eq!(ends, vec![(Status::OK, count); threads as usize], "{what}");
                    assert_eq!(ring.wrong_words(), [0; 0], "{what}");
                }
            }
        }
    }
}

/// DeepEP, ibgda_device.cuh:251, and Mooncake, :224-237: no thread asks whether the ring is full.
#[test]
fn ten_rings_without_a_wait_overwrite_nothing() {
    for follow in [
        Follow::Doorbell,
        Follow::RecordAfterDoorbell,
        Follow::Record,
    ] {
        for (kernel, threads) in [
            ("wv_test_put_words", 1),
            ("wv_test_put_words", 32),
            ("wv_test_put_words_warp", 64),
        ] {
            let ring = Ring::shared(256, 2560, 0);
            let nic = ring.nic(Behaviour {
                follow,
                ..healthy(3)
            });
            let count = 2560 / threads;
            let ends = ring.run(&launch(kernel, 1, threads, 3), &ring.params(count, 0));
            let report = nic.stop();
            let what = format!("{kernel} x {threads}, {follow:?}");
            assert_eq!(report.findings, [""; 0], "{what}");
            assert_eq!(ends, vec![(Status::OK, count); threads as usize], "{what}");
            assert_eq!((report.wqes, ring.wrong_words().len()), (2560, 0), "{what}");
        }
    }
    // And with no NIC that runs them, exactly one ring is posted.
    let ring = Ring::shared(256, 2560, 0);
    let mut params = ring.params(80, 0);
    params.deadline_ns = 20_000_000;
    let ends = ring.run(&launch("wv_test_put_words", 1, 32, 0), &params);
    assert!(ends.iter().all(|end| end.0 == Status::TIMEOUT), "{ends:?}");
    assert_eq!(ends.iter().map(|end| end.1).sum::<u32>(), 256);
}

/// NVSHMEM, :1814 (`++` on a shared byte), and DeepEP, whose poller is for one thread: counters that threads share.
#[test]
fn counters_lose_nothing_while_several_threads_count() {
    for mode in [0, MODE_WIDE_CQ] {
        let ring = Ring::new(256, 4 * 32 * 40, 0, mode);
        let nic = ring.nic(healthy(1));
        let ends = ring.run(&launch("wv_test_put_words", 4, 32, 1), &ring.params(40, 3));
        let report = nic.stop();
        assert_eq!(report.findings, [""; 0], "mode {mode:#x}");
        assert_eq!(ends, [(Status::OK, 40); 128], "mode {mode:#x}");
        let context = ring.read_context();
        assert_eq!(
            [context.claim, context.resv, context.cons, report.wqes],
            [5120; 4],
            "mode {mode:#x}"
        );
        assert!((report.doorbells..=5120).contains(&context.doorbells));
        assert_eq!(context.errors, 0);

        let ring = Ring::new(256, 4 * 32 * 40, 0, mode);
        let nic = ring.nic(Behaviour {
            fail_at: Some(30),
            ..healthy(2)
        });
        let ends = ring.run(&launch("wv_test_put_words", 4, 32, 2), &ring.params(40, 1));
        assert_eq!(nic.stop().findings, [""; 0], "mode {mode:#x}");
        let context = ring.read_context();
        assert!(ends.iter().all(|end| end.0 == context.err), "{ends:?}");
        assert_eq!(context.errors, 1, "all 128 saw it, one counts it");
        assert_eq!(context.claim, context.resv, "refused claims are undone");
    }
}
