//! Every mode of a QP against the model of a NIC. Modes differ in the threads that share the QP, and in the doorbell. They also
//! differ in the place of the queues and the kind of the CQ. Also indices that pass the edges of their words, and errors whose
//! cause is kept or lost.

#![expect(clippy::cast_possible_truncation, reason = "small test numbers")]

use std::mem::offset_of;

use test_basics::limits::HANG;
use test_support::counts::seeds;
use test_support::device::launch;
use test_support::nic::{Behaviour, Follow, SYNDROME};
use test_support::pair::Pair;
use test_support::ring::Ring;
use warpverbs::abi::{
    MODE_CTA, MODE_EXCLUSIVE, MODE_HOST_QUEUES, MODE_MAILBOX, MODE_NO_RECORD, MODE_WIDE_CQ,
    QpContext, Status,
};

const SHARINGS: [(&str, u32); 3] = [
    ("shared", 0),
    ("exclusive", MODE_EXCLUSIVE),
    ("cta", MODE_CTA),
];
const DOORBELLS: [(&str, u32); 3] = [
    ("record", 0),
    ("no_record", MODE_NO_RECORD),
    ("mailbox", MODE_MAILBOX),
];
const SCOPES: [&str; 3] = ["thread", "warp", "block"];
const QUEUES: [u32; 2] = [0, MODE_HOST_QUEUES];
const CQS: [u32; 2] = [0, MODE_WIDE_CQ];

/// Blocks and threads that may use a QP of this sharing from this scope.
fn users(sharing: &str, scope: &str) -> (u32, u32) {
    match (sharing, scope) {
        ("exclusive", "thread") => (1, 1),
        ("exclusive", "warp") => (1, 32),
        ("exclusive" | "cta", "block") => (1, 60),
        ("cta", _) => (1, 96),
        (_, "block") => (3, 60),
        _ => (3, 64),
    }
}

/// Puts `count` words from each thread and checks bytes, findings, indices and counters.
#[track_caller]
fn check(ring: &Ring, kernel: &str, (blocks, threads): (u32, u32), count: u32, follow: Follow) {
    let seed = 17 * u64::from(count);
    let before = ring.read_context();
    let nic = ring.nic(Behaviour {
        follow,
        ..Behaviour::new(Follow::Doorbell, seed)
    });
    let ends = ring.run(
        &launch(kernel, blocks, threads, seed),
        &ring.params(count, 5),
    );
    let report = nic.stop();
    let context = ring.read_context();
    let what = format!("{kernel}, mode {:#x}, {follow:?}", context.mode);
    assert_eq!(report.findings, [""; 0], "{what}");
    let all = (blocks * threads) as usize;
    assert_eq!(ends, vec![(Status::OK, count); all], "{what}");
    assert_eq!(ring.wrong_words(), [0; 0], "{what}");
    // All that was posted ran, held back or not. No thread waits for the NOP of a wait, so cons may lack those.
    assert_eq!(
        (context.err, context.doorbell_index, report.wqes),
        (Status::OK, context.resv, context.resv - before.resv),
        "{what}"
    );
    assert!(context.cons >= before.cons + u64::from(count) && context.cons <= context.resv);
    if context.mode & MODE_EXCLUSIVE == 0 {
        assert_eq!(context.claim, context.resv, "{what}");
    }
    // A NIC that follows the record may have run everything before the first doorbell comes.
    let is_rung = report.doorbells > 0 || follow == Follow::Record;
    assert!(
        context.doorbells - before.doorbells >= report.doorbells && is_rung,
        "{what}: counted {}, {report:?}",
        context.doorbells
    );
    assert_eq!((context.errors, before.errors), (0, 0), "{what}");
}

#[test]
fn every_mode_carries_every_word() {
    let mut combinations = 0;
    for (sharing, shared_by) in SHARINGS {
        for (doorbell, rung_by) in DOORBELLS {
            for (number, scope) in SCOPES.into_iter().enumerate() {
                for queues in QUEUES {
                    for cq in CQS {
                        let mode = shared_by | rung_by | queues | cq;
                        let users = users(sharing, scope);
                        let count = 41 + number as u32;
                        let words = (users.0 * users.1 * count) as usize;
                        let ring = Ring::new(256, words, 0, mode);
                        let kernel = format!("wv_test_put_{sharing}_{doorbell}_{scope}");
                        check(&ring, &kernel, users, count, Follow::Doorbell);
                        combinations += 1;
                    }
                }
            }
        }
    }
    println!("{combinations} combinations");
    assert_eq!(combinations, 108);
}

/// Flag words and fences as the PTX memory model asks for them: WV_STRICT, crates/test-support/kernels/strict_modes.cu.
#[test]
fn the_strict_build_carries_every_word_in_every_mode() {
    for (sharing, shared_by) in SHARINGS {
        for (doorbell, rung_by) in DOORBELLS {
            for scope in SCOPES {
                let users = users(sharing, scope);
                let ring = Ring::new(
                    256,
                    (users.0 * users.1 * 41) as usize,
                    0,
                    shared_by | rung_by,
                );
                let kernel = format!("wv_strict_put_{sharing}_{doorbell}_{scope}");
                check(&ring, &kernel, users, 41, Follow::Doorbell);
            }
        }
    }
}

#[test]
fn a_nic_may_follow_the_record_in_every_mode_that_has_one() {
    for (sharing, shared_by) in SHARINGS {
        for (doorbell, rung_by) in [DOORBELLS[0], DOORBELLS[2]] {
            for follow in [Follow::RecordAfterDoorbell, Follow::Record] {
                let users = users(sharing, "warp");
                let words = (users.0 * users.1 * 60) as usize;
                let ring = Ring::new(256, words, 0, shared_by | rung_by);
                let kernel = format!("wv_test_put_{sharing}_{doorbell}_warp");
                check(&ring, &kernel, users, 60, follow);
            }
        }
    }
}

#[test]
fn a_qp_of_another_kind_is_refused() {
    let refused = |kernel: &str, mode: u32| {
        let ring = Ring::new(256, 32, 0, mode);
        let ends = ring.run(&launch(kernel, 1, 32, 0), &ring.params(1, 0));
        assert_eq!(ends, [(Status::INVALID, 0); 32], "{kernel}, mode {mode:#x}");
        assert_eq!(ring.read_context().resv, 0, "{kernel}, mode {mode:#x}");
    };
    for (sharing, shared_by) in SHARINGS {
        for (doorbell, rung_by) in DOORBELLS {
            let kernel = format!("wv_test_put_{sharing}_{doorbell}_warp");
            for other in 0..64 {
                let fixed = MODE_EXCLUSIVE | MODE_CTA | MODE_NO_RECORD | MODE_MAILBOX;
                if other & fixed != shared_by | rung_by {
                    refused(&kernel, other);
                }
            }
        }
    }
    refused("wv_test_put_words", MODE_NO_RECORD | MODE_MAILBOX);
}

#[test]
fn indices_pass_2_to_the_16_and_2_to_the_32_and_2_to_the_47() {
    for edge in [1_u64 << 16, 1 << 32, 1 << 47] {
        for mode in [0, MODE_NO_RECORD, MODE_MAILBOX, MODE_WIDE_CQ] {
            let (doorbell, _) = DOORBELLS[match mode {
                MODE_NO_RECORD => 1,
                MODE_MAILBOX => 2,
                _ => 0,
            }];
            let users = users("shared", "thread");
            let words = (users.0 * users.1 * 20) as usize;
            let ring = Ring::new(256, words, edge - 65_536, mode);
            let nic = ring.nic(Behaviour::new(Follow::Doorbell, edge));
            let ends = ring.run(
                &launch("wv_test_run_in", 1, 1, 0),
                &ring.params(65_536 - 4, 0),
            );
            assert_eq!(ends, [(Status::OK, 0)], "{edge:#x}, mode {mode:#x}");
            assert_eq!(ring.read_context().resv, edge - 4);
            let kernel = format!("wv_test_put_shared_{doorbell}_thread");
            let ends = ring.run(
                &launch(&kernel, users.0, users.1, edge),
                &ring.params(20, 5),
            );
            let report = nic.stop();
            let what = format!("{kernel} at {edge:#x}, mode {mode:#x}");
            assert_eq!(report.findings, [""; 0], "{what}");
            let bad: Vec<_> = ends
                .iter()
                .filter(|end| **end != (Status::OK, 20))
                .collect();
            assert!(bad.is_empty(), "{what}: {bad:?}, {:?}", ring.read_context());
            assert_eq!(ring.wrong_words(), [0; 0], "{what}");
            let context = ring.read_context();
            assert_eq!(context.doorbell_index, context.resv, "{what}");
            assert_eq!(report.wqes, context.resv - context.base, "{what}");
            let done = edge < context.cons && context.cons <= context.resv;
            assert!(done, "{what}: {}", context.cons);
        }
    }
}

/// 100 puts are rung before the NIC runs the first. The one at `fail_at` fails and the NIC flushes those after it, all before any
/// thread looks. Returns the result of a wait after that, and the syndrome.
fn failure_seen_late(mode: u32, fail_at: u64) -> (Status, u32, u64, u64) {
    let ring = Ring::new(256, 100, 0, mode);
    let ends = ring.run(
        &launch("wv_test_try_put_words", 1, 1, 0),
        &ring.params(100, 0),
    );
    assert_eq!(ends, [(Status::OK, 100)], "all fit, no thread waits");
    let nic = ring.nic(Behaviour {
        fail_at: Some(fail_at),
        ..Behaviour::new(Follow::Doorbell, fail_at)
    });
    let report = nic.stop();
    assert_eq!(report.findings, [""; 0]);
    assert_eq!(
        (report.wqes, report.cqes),
        (fail_at, 100),
        "the rest is flushed"
    );
    let ends = ring.run(&launch("wv_test_quiet", 1, 1, 0), &ring.params(0, 0));
    let context = ring.read_context();
    assert_eq!(ends[0].0, context.err, "sticky");
    (context.err, context.syndrome, context.cons, context.errors)
}

#[test]
fn a_flush_hides_the_cause_in_a_collapsed_cqe() {
    for fail_at in [0, 1, 36] {
        let (status, syndrome, cons, errors) = failure_seen_late(0, fail_at);
        assert_eq!((status, syndrome), (Status::FLUSHED, 0x05), "{fail_at}");
        assert_eq!((cons, errors), (0, 1), "nothing was seen to be done");
    }
}

#[test]
fn a_wide_cq_keeps_the_cause_behind_64_flushed_wqes() {
    for fail_at in [0, 1, 36] {
        let (status, syndrome, cons, errors) = failure_seen_late(MODE_WIDE_CQ, fail_at);
        assert_eq!(
            (status, syndrome),
            (Status::CQE_ERROR, u32::from(SYNDROME)),
            "{fail_at}"
        );
        assert_eq!((cons, errors), (fail_at, 1), "what came before it is done");
    }
}

#[test]
fn an_error_ends_every_call_in_every_mode() {
    for seed in seeds(1, 20) {
        for (sharing, shared_by) in SHARINGS {
            for (doorbell, rung_by) in DOORBELLS {
                for cq in CQS {
                    let (blocks, threads) = users(sharing, "warp");
                    let words = (blocks * threads * 100) as usize;
                    let ring = Ring::new(256, words, 0, shared_by | rung_by | cq);
                    let nic = ring.nic(Behaviour {
                        fail_at: Some(700 + seed),
                        ..Behaviour::new(Follow::Doorbell, seed)
                    });
                    let kernel = format!("wv_test_put_{sharing}_{doorbell}_warp");
                    let ends = ring.run(
                        &launch(&kernel, blocks, threads, seed),
                        &ring.params(100, 0),
                    );
                    let report = nic.stop();
                    let what = format!("{kernel}, CQ {cq:#x}, seed {seed}");
                    assert_eq!(report.findings, [""; 0], "{what}");
                    let context = ring.read_context();
                    for (status, done) in ends {
                        assert!(status == context.err && done < 100, "{what}: {status}");
                    }
                    assert!(context.cons <= 700 + seed, "{what}");
                    assert_eq!(context.errors, 1, "{what}");
                    if cq == MODE_WIDE_CQ {
                        assert_eq!(context.syndrome, u32::from(SYNDROME), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_batch_of_more_than_a_quarter_of_the_ring_is_refused() {
    for mode in [0, MODE_EXCLUSIVE, MODE_CTA] {
        let sharing = SHARINGS.iter().find(|kind| kind.1 == mode).unwrap().0;
        let kernel = format!("wv_test_put_{sharing}_record_block");
        let ring = Ring::new(256, 65, 0, mode);
        let ends = ring.run(&launch(&kernel, 1, 65, 0), &ring.params(1, 0));
        assert_eq!(ends, [(Status::INVALID, 0); 65], "{kernel}");
        assert_eq!(ring.read_context().resv, 0, "{kernel}");
        let ring = Ring::new(256, 64, 0, mode);
        check(&ring, &kernel, (1, 64), 1, Follow::Doorbell);
    }
}

#[test]
fn time_on_a_full_ring_is_counted() {
    for (mode, kernel) in [
        (0, "wv_test_put_words"),
        (MODE_EXCLUSIVE, "wv_test_put_words_exclusive"),
    ] {
        let ring = Ring::new(256, 300, 0, mode);
        let mut params = ring.params(300, 0);
        params.deadline_ns = 60_000_000;
        let ends = ring.run(&launch(kernel, 1, 1, 0), &params);
        assert_eq!(ends, [(Status::TIMEOUT, 256)], "{kernel}");
        let waited = ring.read_context().full_ring_ns;
        println!("{kernel} has waited {waited} ns for ring space");
        assert!(waited > 0, "{kernel}");
        // Refused, not failed: with a NIC the QP goes on.
        let nic = ring.nic(Behaviour::new(Follow::Doorbell, 0));
        let ends = ring.run(&launch(kernel, 1, 1, 0), &ring.params(300, 0));
        assert_eq!(nic.stop().findings, [""; 0], "{kernel}");
        assert_eq!(ends, [(Status::OK, 300)], "{kernel}");
    }
}

/// On the CPU only: on a GPU the store would take the device with it.
#[test]
fn a_kernel_that_rings_at_a_process_address_fails_with_the_missing_map() {
    let pair = Pair::shared(8, 8);
    let register = pair.context().doorbell;
    let of_process = pair.qps()[0].layout().doorbell_addr;
    assert_ne!(register.addr(), of_process);
    pair.patch(offset_of!(QpContext, doorbell), &of_process);
    let event = pair.ends[0].start(&launch("wv_test_put_words", 1, 1, 0), &pair.params(8, 0));
    let error = pair.ends[0].node.gpu.wait(&event, HANG).unwrap_err();
    let expected = format!("device register at {of_process:#x}, which the host has not mapped");
    assert!(error.to_string().contains(&expected), "{error}");
    assert_eq!(pair.ends[0].hca.counters().doorbells, 0);
}

#[test]
fn a_page_of_registers_keeps_its_kernel_address_until_its_last_user_goes() {
    let pair = Pair::shared(8, 8);
    let node = &pair.ends[0].node;
    let layout = pair.qps()[0].layout();
    let page = usize::try_from(layout.doorbell_page_addr).unwrap();
    let page = std::ptr::with_exposed_provenance_mut(page);
    let again = node.gpu.map_mmio(page, 4096).unwrap();
    assert_eq!(
        again.addr() + (layout.doorbell_addr - layout.doorbell_page_addr),
        node.doorbell(layout)
    );
    drop(again);
    let ends = pair.run("wv_test_put_words", 1, 0, &pair.params(8, 0));
    assert_eq!(ends, [(Status::OK, 8)]);
}
