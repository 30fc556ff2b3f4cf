//! The posting protocol against a model of a NIC: every kind of doorbell handling, index wraps, errors, deadlines, mutants.

use std::time::Duration;

use test_basics::limits::HANG;
use test_support::abi::kernels::WaitParams;
use test_support::counts::seeds;
use test_support::device::launch;
use test_support::nic::{Behaviour, Follow};
use test_support::ring::{LKEY, QPN, RKEY, Ring};
use warpverbs::abi::{QpContext, Status};

const KINDS: [Follow; 3] = [
    Follow::Doorbell,
    Follow::RecordAfterDoorbell,
    Follow::Record,
];

/// Posts with `kernel` and checks that every word arrived and that the NIC has nothing to say.
#[track_caller]
fn check(ring: &Ring, kernel: &str, threads: u32, count: u32, follow: Follow, seed: u64) {
    check_waiting(ring, kernel, threads, count, 7, follow, seed);
}

/// As `check`, where each thread waits for its ticket after `wait_every` puts.
#[track_caller]
fn check_waiting(
    ring: &Ring,
    kernel: &str,
    threads: u32,
    count: u32,
    wait_every: u32,
    follow: Follow,
    seed: u64,
) {
    let nic = ring.nic(Behaviour::new(follow, seed));
    let ends = ring.run(
        &launch(kernel, 1, threads, seed),
        &ring.params(count, wait_every),
    );
    let report = nic.stop();
    let what = format!("{kernel}, {follow:?}, seed {seed}");
    assert_eq!(report.findings, [""; 0], "{what}");
    assert_eq!(ends, vec![(Status::OK, count); threads as usize], "{what}");
    assert_eq!(ring.wrong_words(), [0; 0], "{what}");
    let context = ring.read_context();
    assert_eq!(
        (context.err, context.resv),
        (Status::OK, context.cons),
        "{what}"
    );
    assert!(report.doorbells <= report.wqes, "{what}: {report:?}");
}

#[test]
fn threads_share_a_ring_under_every_kind_of_nic() {
    for seed in seeds(3, 30) {
        for follow in KINDS {
            let ring = Ring::shared(256, 16 * 300, 0);
            check(&ring, "wv_test_put_words", 16, 300, follow, seed);
        }
    }
}

/// Threads that post by themselves: more than the ring of 1024 WQEBBs has room for.
const POSTERS: u32 = 1200;
const PUTS: u32 = 8;

/// Runs `kernel` by 1,200 threads, the lanes of whose warps wait for each other behind divergent code; how they ended.
fn crowd(kernel: &str, seed: u64, deadline: Duration) -> Vec<(Status, u32)> {
    let ring = Ring::shared(1024, (POSTERS * PUTS) as usize, 0);
    let nic = ring.nic(Behaviour::new(Follow::Doorbell, seed));
    let mut params = ring.params(PUTS, 0);
    params.deadline_ns = u64::try_from(deadline.as_nanos()).expect("a deadline of seconds");
    let launch = launch(kernel, POSTERS / 240, 240, seed).with_reconverge(true);
    let ends = ring.run(&launch, &params);
    let report = nic.stop();
    assert_eq!(report.findings, [""; 0], "{kernel}, seed {seed}");
    if ends.iter().all(|(status, _)| *status == Status::OK) {
        assert_eq!(ring.wrong_words(), [0; 0], "{kernel}, seed {seed}");
    }
    ends
}

#[test]
fn more_threads_than_the_ring_has_room_for_do_not_stop_each_other() {
    for seed in seeds(3, 30) {
        let ends = crowd("wv_test_put_words", seed, HANG);
        let all = vec![(Status::OK, PUTS); POSTERS as usize];
        assert_eq!(ends, all, "seed {seed}");
    }
}

#[test]
fn lanes_that_meet_with_their_claims_stop_each_other_until_the_deadline() {
    let late = (1..=8).find(|seed| {
        let kernel = "wv_test_mutant_meets_with_claim";
        let ends = crowd(kernel, *seed, Duration::from_secs(1));
        let late = ends.iter().filter(|(status, _)| *status == Status::TIMEOUT);
        println!(
            "seed {seed}: {} of {POSTERS} threads timed out",
            late.clone().count()
        );
        late.count() != 0
    });
    assert!(
        late.is_some(),
        "eight schedules in which no thread was stopped"
    );
}

#[test]
fn a_holder_that_leaves_after_one_round_loses_no_doorbell() {
    for seed in seeds(12, 120) {
        for follow in KINDS {
            // Few threads, each waiting for each of its puts: the last doorbell is often the one that counts.
            let ring = Ring::shared(256, 3 * 300, 0);
            check_waiting(
                &ring,
                "wv_test_put_words_one_round",
                3,
                300,
                1,
                follow,
                seed,
            );
        }
    }
}

#[test]
fn warps_share_a_ring_under_every_kind_of_nic() {
    for seed in seeds(3, 30) {
        for follow in KINDS {
            let ring = Ring::shared(256, 96 * 40, 0);
            check(&ring, "wv_test_put_words_warp", 96, 40, follow, seed);
        }
    }
}

#[test]
fn unsignalled_puts_arrive_and_quiet_waits_for_them() {
    for seed in seeds(3, 30) {
        let ring = Ring::shared(256, 8 * 200, 0);
        check(
            &ring,
            "wv_test_put_words_unsignalled",
            8,
            200,
            Follow::Doorbell,
            seed,
        );
    }
}

#[test]
fn one_thread_and_one_warp_use_an_exclusive_ring() {
    for follow in KINDS {
        let ring = Ring::exclusive(256, 1000, 0);
        check(&ring, "wv_test_put_words_exclusive", 1, 1000, follow, 1);
        let ring = Ring::exclusive(256, 32 * 100, 0);
        check(
            &ring,
            "wv_test_put_words_warp_exclusive",
            32,
            100,
            follow,
            1,
        );
    }
}

#[test]
fn a_put_writes_the_bytes_of_the_manual() {
    let ring = Ring::shared(256, 1, 0);
    check(&ring, "wv_test_put_words", 1, 1, Follow::Doorbell, 0);
    let window = ring.window().base;
    let wqe = ring.wqe(0);
    assert_eq!(
        wqe[..8],
        [0, 0, 0, 0x08, 0, 0x12, 0x34, 3],
        "opcode WRITE, index 0, qpn, ds 3"
    );
    assert_eq!(
        wqe[8..16],
        [0, 0, 0, 8, 0, 0, 0, 0],
        "completion always, no immediate"
    );
    assert_eq!(wqe[16..24], (window + 8).to_be_bytes());
    assert_eq!(wqe[24..32], (u64::from(RKEY) << 32).to_be_bytes());
    assert_eq!(wqe[32..36], [0, 0, 0, 8]);
    assert_eq!(wqe[36..40], LKEY.to_be_bytes());
    assert_eq!(wqe[40..48], window.to_be_bytes());
    let context = ring.read_context();
    assert_eq!(
        (
            context.resv,
            context.claim,
            context.cons,
            context.doorbell_index
        ),
        (1, 1, 1, 1)
    );
    assert_eq!(context.sq_dbrec, [0, 1u32.to_be()]);
    assert_eq!(QPN, context.qpn);
}

/// Flag words and fences as the PTX memory model asks for them: WV_STRICT, crates/test-support/kernels/strict_words.cu.
#[test]
fn the_strict_build_keeps_the_protocol_under_every_kind_of_nic() {
    for follow in KINDS {
        for (kernel, threads, count, wait_every) in [
            ("wv_strict_put_words", 16, 300, 7),
            ("wv_strict_put_words_one_round", 3, 300, 1),
            ("wv_strict_put_words_warp", 96, 40, 7),
            ("wv_strict_put_words_unsignalled", 8, 200, 7),
        ] {
            let ring = Ring::shared(256, (threads * count) as usize, 0);
            check_waiting(&ring, kernel, threads, count, wait_every, follow, 1);
        }
        let ring = Ring::exclusive(256, 1000, 0);
        check(&ring, "wv_strict_put_words_exclusive", 1, 1000, follow, 1);
    }
    let ring = Ring::shared(256, 8 * 300, 0);
    let kernel = launch("wv_strict_try_put_words", 1, 8, 5);
    let ends = ring.run(&kernel, &ring.params(300, 0));
    assert!(ends.iter().all(|end| end.0 == Status::WOULD_BLOCK));
}

#[test]
fn an_error_completion_ends_every_call_with_64_wqes_in_flight() {
    for seed in seeds(3, 30) {
        let ring = Ring::shared(512, 32 * 400, 0);
        let nic = ring.nic(Behaviour {
            fail_at: Some(1000 + seed),
            ..Behaviour::new(Follow::Doorbell, seed)
        });
        let ends = ring.run(
            &launch("wv_test_put_words", 1, 32, seed),
            &ring.params(400, 0),
        );
        let report = nic.stop();
        assert_eq!(report.findings, [""; 0], "seed {seed}");
        for (thread, (status, done)) in ends.iter().enumerate() {
            let failed = matches!(*status, Status::CQE_ERROR | Status::FLUSHED);
            assert!(
                failed && *done < 400,
                "seed {seed}, thread {thread}: {status} after {done}"
            );
        }
        let context = ring.read_context();
        assert!(
            context.cons <= 1000 + seed,
            "nothing behind the failure counts as done"
        );
        assert!(
            matches!(context.syndrome, 0x13 | 0x05),
            "{:#x}",
            context.syndrome
        );
        // Sticky: the next call ends at once.
        let again = ring.run(&launch("wv_test_put_words", 1, 1, seed), &ring.params(1, 0));
        assert_eq!(again, [(context.err, 0)]);
    }
}

#[test]
fn a_deadline_on_a_full_ring_leaves_the_qp_healthy() {
    let ring = Ring::shared(256, 8 * 100, 0);
    let mut params = ring.params(100, 0);
    params.deadline_ns = 50_000_000;
    let ends = ring.run(&launch("wv_test_put_words", 1, 8, 3), &params);
    assert!(
        ends.iter()
            .all(|end| end.0 == Status::TIMEOUT && end.1 < 100),
        "{ends:?}"
    );
    let context = ring.read_context();
    assert_eq!(
        (context.err, context.claim, context.resv),
        (Status::OK, 256, 256)
    );

    let nic = ring.nic(Behaviour::new(Follow::Doorbell, 0));
    let ends = ring.run(&launch("wv_test_put_words", 1, 8, 4), &ring.params(100, 0));
    assert_eq!(nic.stop().findings, [""; 0]);
    assert_eq!(ends, [(Status::OK, 100); 8]);
    assert_eq!(ring.wrong_words(), [0; 0]);
}

#[test]
fn a_try_put_on_a_full_ring_returns_at_once() {
    let ring = Ring::shared(256, 8 * 300, 0);
    let ends = ring.run(
        &launch("wv_test_try_put_words", 1, 8, 5),
        &ring.params(300, 0),
    );
    let posted: u32 = ends.iter().map(|end| end.1).sum();
    assert!((256 - 8..=256).contains(&posted), "{posted} of 256 posted");
    assert!(
        ends.iter().all(|end| end.0 == Status::WOULD_BLOCK),
        "{ends:?}"
    );
    let context = ring.read_context();
    assert_eq!(context.claim, context.resv, "refused claims are undone");
}

#[test]
fn the_abort_word_ends_posts_and_waits() {
    let ring = Ring::shared(256, 8 * 100, 0);
    ring.patch(core::mem::offset_of!(QpContext, abort), &1u32.to_ne_bytes());
    let ends = ring.run(&launch("wv_test_put_words", 1, 8, 6), &ring.params(100, 0));
    assert_eq!(ends, [(Status::ABORTED, 0); 8]);
    assert_eq!(wait_for(&ring, 5), Status::ABORTED);
}

#[test]
fn a_ticket_of_an_earlier_life_is_stale_whatever_cons_says() {
    let ring = Ring::shared(256, 8, 131_072);
    assert_eq!(wait_for(&ring, 69_999), Status::STALE_LIFE);
    assert_eq!(wait_for(&ring, 131_072), Status::STALE_LIFE);
    ring.patch(
        core::mem::offset_of!(QpContext, cons),
        &131_073_u64.to_ne_bytes(),
    );
    assert_eq!(wait_for(&ring, 131_073), Status::OK);
}

#[test]
fn a_bad_argument_posts_nothing() {
    let ring = Ring::shared(256, 8, 0);
    let mut params = ring.params(8, 0);
    params.dst_offset = 9 * 8;
    let ends = ring.run(&launch("wv_test_put_words", 1, 1, 0), &params);
    assert_eq!(
        ends,
        [(Status::INVALID, 7)],
        "the eighth word is outside the window"
    );
    let ends = ring.run(
        &launch("wv_test_put_words_exclusive", 1, 1, 0),
        &ring.params(8, 0),
    );
    assert_eq!(
        ends,
        [(Status::INVALID, 0)],
        "a shared QP cannot be used as an exclusive one"
    );
    assert_eq!(ring.read_context().resv, 7);
}

fn wait_for(ring: &Ring, ticket: u64) -> Status {
    let params = WaitParams {
        qp: ring.qp(),
        ticket,
        deadline_ns: 50_000_000,
        status: ring.status(),
        ..WaitParams::default()
    };
    ring.run(&launch("wv_test_wait", 1, 1, 0), &params)[0].0
}
