//! Puts that cannot succeed end with the status that says why, and leave the QP as they must.

#![expect(clippy::cast_possible_truncation, reason = "small test numbers")]

use std::mem::offset_of;
use std::time::Duration;

use test_support::abi::kernels::WaitParams;
use test_support::counts::seeds;
use test_support::device::launch;
use test_support::limits::{HANG, until};
use test_support::pair::Pair;
use warpverbs::abi::{QpContext, Status};
use warpverbs::verbs::QpState;

/// A pause of an HCA that the test ends.
const FOR_EVER: Duration = Duration::from_secs(600);

/// Waits on side 0 for `ticket`, at most `deadline`.
fn wait_for(pair: &Pair, ticket: u64, deadline: Duration) -> Status {
    let params = WaitParams {
        qp: pair.qp(),
        ticket,
        deadline_ns: deadline.as_nanos() as u64,
        status: pair.ends[0].status(),
        ..WaitParams::default()
    };
    pair.run("wv_test_wait", 1, 0, &params)[0].0
}

#[test]
fn a_wrong_key_ends_every_call_with_many_wqes_in_flight() {
    for seed in seeds(5, 40) {
        let pair = Pair::shared(16 * 200, 10);
        pair.ends[0].set_peer(&pair.ends[1], 0x0100_0000);
        // Nothing runs before at least 64 WQEs are posted.
        pair.ends[0].hca.pause(FOR_EVER);
        let kernel = launch("wv_test_put_words", 1, 16, seed);
        let event = pair.ends[0].start(&kernel, &pair.params(200, 0));
        until("64 are posted", || pair.context().resv >= 64);
        pair.ends[0].hca.pause(Duration::ZERO);
        let ends = pair.ends[0].finish(&event, 16);
        for (thread, (status, done)) in ends.iter().enumerate() {
            let failed = matches!(*status, Status::CQE_ERROR | Status::FLUSHED);
            assert!(
                failed && *done < 200,
                "seed {seed}, thread {thread}: {status} after {done}"
            );
        }
        let context = pair.context();
        assert_eq!(context.cons, 0, "seed {seed}: nothing is done");
        let syndrome = context.syndrome & 0xff;
        assert!(
            matches!(syndrome, 0x13 | 0x05),
            "seed {seed}: syndrome {syndrome:#x}"
        );
        assert_eq!(pair.qps()[0].query().unwrap().state, QpState::ERR);
        assert!(
            pair.ends[1]
                .window_at::<u64>(0, 2 * pair.words())
                .iter()
                .all(|&word| word == 0)
        );
        // Sticky, for posts and waits.
        let again = pair.run("wv_test_put_words", 4, seed, &pair.params(1, 0));
        assert_eq!(again, [(context.err, 0); 4], "seed {seed}");
        assert_eq!(wait_for(&pair, context.resv, HANG), context.err);
    }
}

#[test]
fn a_deadline_on_a_full_ring_leaves_the_qp_healthy() {
    let pair = Pair::shared(8 * 100, 8);
    pair.ends[0].hca.pause(FOR_EVER);
    let mut params = pair.params(100, 0);
    params.deadline_ns = 100_000_000;
    let ends = pair.run("wv_test_put_words", 8, 1, &params);
    assert!(
        ends.iter()
            .all(|end| end.0 == Status::TIMEOUT && end.1 < 100),
        "{ends:?}"
    );
    let context = pair.context();
    assert_eq!(
        (context.err, context.claim, context.resv),
        (Status::OK, 256, 256)
    );
    assert_eq!(context.cons, 0, "the HCA slept");
    // The tickets stay valid, and the QP goes on.
    pair.ends[0].hca.pause(Duration::ZERO);
    assert_eq!(wait_for(&pair, 256, HANG), Status::OK);
    let ends = pair.run("wv_test_put_words", 8, 2, &pair.params(100, 0));
    assert_eq!(ends, [(Status::OK, 100); 8]);
    assert_eq!(pair.wrong_words(), [0; 0]);
    assert_eq!(pair.findings(), [""; 0]);
}

#[test]
fn a_try_put_on_a_full_ring_returns_at_once() {
    let pair = Pair::shared(8 * 300, 8);
    pair.ends[0].hca.pause(FOR_EVER);
    let ends = pair.run("wv_test_try_put_words", 8, 3, &pair.params(300, 0));
    assert!(
        ends.iter().all(|end| end.0 == Status::WOULD_BLOCK),
        "{ends:?}"
    );
    let posted: u64 = ends.iter().map(|end| u64::from(end.1)).sum();
    let context = pair.context();
    assert_eq!((context.claim, context.resv), (posted, posted));
    assert!((256 - 8..=256).contains(&posted), "{posted} of 256 posted");
    pair.ends[0].hca.pause(Duration::ZERO);
    assert_eq!(
        wait_for(&pair, posted / 64 * 64, HANG),
        Status::OK,
        "the last signalled one"
    );
}

#[test]
fn the_abort_word_ends_a_running_kernel() {
    let pair = Pair::shared(8 * 1000, 8);
    pair.ends[0].hca.pause(FOR_EVER);
    let event = pair.ends[0].start(&launch("wv_test_put_words", 1, 8, 4), &pair.params(1000, 0));
    until("the ring is full", || pair.context().resv == 256);
    assert!(!event.is_done(), "it waits for ring space");
    pair.patch(offset_of!(QpContext, abort), &1_u32.to_ne_bytes());
    let ends = pair.ends[0].finish(&event, 8);
    assert!(ends.iter().all(|end| end.0 == Status::ABORTED), "{ends:?}");
    assert_eq!(
        pair.context().err,
        Status::OK,
        "abort is no failure of the QP"
    );
    pair.patch(offset_of!(QpContext, abort), &0_u32.to_ne_bytes());
    pair.ends[0].hca.pause(Duration::ZERO);
    assert_eq!(wait_for(&pair, 256, HANG), Status::OK);
}

#[test]
fn a_ticket_from_before_a_reset_is_stale_and_new_puts_work() {
    let mut pair = Pair::shared(8 * 300, 8);
    let ends = pair.run("wv_test_put_words", 8, 5, &pair.params(300, 0));
    assert_eq!(ends, [(Status::OK, 300); 8]);
    let old = pair.context().resv;
    for (life, base) in [65_536_u64, 131_072].into_iter().enumerate() {
        pair.ends[1].write_words(8 * pair.words() as u64, &vec![0; pair.words()]);
        pair.reset(base);
        assert_eq!(
            wait_for(&pair, old, HANG),
            Status::STALE_LIFE,
            "life {life}"
        );
        assert_eq!(
            wait_for(&pair, base, HANG),
            Status::STALE_LIFE,
            "life {life}"
        );
        let ends = pair.run("wv_test_put_words", 8, 6, &pair.params(300, 7));
        assert_eq!(ends, [(Status::OK, 300); 8], "life {life}");
        assert_eq!(pair.wrong_words(), [0; 0], "life {life}");
        assert_eq!(pair.context().resv, base + 2400);
        assert_eq!(pair.findings(), [""; 0], "life {life}");
    }
}

#[test]
fn a_bad_argument_posts_nothing() {
    let pair = Pair::shared(8, 8);
    let mut outside = pair.params(8, 0);
    outside.dst_offset = 9 * 8;
    let ends = pair.run("wv_test_put_words", 1, 0, &outside);
    assert_eq!(
        ends,
        [(Status::INVALID, 7)],
        "the eighth word is outside the window"
    );
    let mut no_qp = pair.params(8, 0);
    no_qp.qp = 0.into();
    assert_eq!(
        pair.run("wv_test_put_words", 1, 0, &no_qp),
        [(Status::INVALID, 0)]
    );
    let wrong_kind = pair.run("wv_test_put_words_exclusive", 1, 0, &pair.params(8, 0));
    assert_eq!(wrong_kind, [(Status::INVALID, 0)]);
    assert_eq!(pair.context().resv, 7);
}
