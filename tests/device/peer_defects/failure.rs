//! QPs that fail, on the software HCA through libmlx5: every waiting thread gets the error, whatever it waits for, without a
//! deadline.

use std::time::Duration;

use test_support::abi::kernels::WaitParams;
use test_support::limits::until;
use warpverbs::abi::Status;

use test_support::device::launch;
use test_support::pair::Pair;

/// A call that never gives up by itself.
const NEVER: u64 = u64::MAX;

/// NCCL #2383, gin_gdaki.h:334-355; NVSHMEM, :483; DeepEP #137 #158 #294 #553: an error CQE, and every wait spins for ever.
#[test]
fn every_wait_ends_when_the_qp_fails_although_it_has_no_deadline() {
    // 0: they wait for ring space. 1: each for its ticket. 5: some for this, some for that.
    for (seed, every) in [0, 1, 5].into_iter().enumerate() {
        let pair = Pair::shared(64 * 50, 8);
        pair.ends[0].set_peer(&pair.ends[1], 0x0100_0000);
        // Nothing fails before the ring is full.
        pair.ends[0].hca.pause(Duration::from_secs(600));
        let mut params = pair.params(50, every);
        params.deadline_ns = NEVER;
        let kernel = launch("wv_test_put_words", 2, 32, seed as u64);
        let event = pair.ends[0].start(&kernel, &params);
        until("the kernel waits", || pair.context().resv >= 64);
        pair.ends[0].hca.pause(Duration::ZERO);
        let ends = pair.ends[0].finish(&event, 64);
        let context = pair.context();
        let failed = matches!(context.err, Status::CQE_ERROR | Status::FLUSHED);
        assert!(failed && context.errors == 1, "{}", context.err);
        for (status, done) in ends {
            assert!(status == context.err && done < 50, "{status} after {done}");
        }
        // Also a thread that comes later, for tickets that were and for some that never will be.
        let wait = WaitParams {
            qp: pair.qp(),
            ticket: context.resv.saturating_sub(16),
            deadline_ns: NEVER,
            status: pair.ends[0].status(),
            ..WaitParams::default()
        };
        let ends = pair.run("wv_test_defect_waits", 32, 0, &wait);
        assert!(ends.iter().all(|end| end.0 == context.err), "{ends:?}");
        let ends = pair.run("wv_test_quiet", 1, 0, &params);
        assert_eq!(ends[0].0, context.err);
    }
}

/// UCX, gdaki.cuh:347 (NODELAY absent, `progress` empty), and NCCL (AggregateRequests): no thread rings held-back WQEs.
#[test]
fn a_tail_that_a_kernel_left_unrung_is_rung_by_the_next_one() {
    let pair = Pair::shared(50, 8);
    let ends = pair.run("wv_test_hold_and_leave", 1, 0, &pair.params(50, 0));
    assert_eq!(ends, [(Status::OK, 50)]);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(pair.wrong_words().len(), 50, "nothing was rung");
    // A wait in another kernel, which knows nothing of the first one.
    let ends = pair.run("wv_test_quiet", 1, 0, &pair.params(0, 0));
    assert_eq!(ends[0].0, Status::OK);
    assert_eq!(pair.wrong_words(), [0; 0]);
    assert_eq!(pair.findings(), [""; 0]);
    // And an ordinary put rings for what lies before it.
    let pair = Pair::shared(51, 8);
    let mut params = pair.params(50, 0);
    assert_eq!(
        pair.run("wv_test_hold_and_leave", 1, 0, &params),
        [(Status::OK, 50)]
    );
    params.count = 1;
    params.src_offset += 400;
    params.dst_offset += 400;
    assert_eq!(
        pair.run("wv_test_put_words", 1, 0, &params),
        [(Status::OK, 1)]
    );
    assert_eq!(pair.wrong_words(), [0; 0]);
    assert_eq!(pair.findings(), [""; 0]);
}
