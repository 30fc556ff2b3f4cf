//! The order of memory accesses between kernels and HCA, checked by the build with feature `tsan` (`simt::check`). The library
//! has no findings under any seed, and each planted defect has one that says what is missing.

#![cfg(feature = "tsan")]
#![expect(clippy::cast_possible_truncation, reason = "small test numbers")]

mod moe;

use std::sync::{Mutex, MutexGuard, PoisonError};

use test_support::abi::kernels::WaitParams;
use test_support::counts::seeds;
use test_support::device::launch;
use test_support::limits::{HANG, until};
use test_support::pair::Pair;
use warpverbs::abi::Status;
use warpverbs::verbs::{QpConfig, Queues, Sharing};

/// One test at a time in a process: findings are kept for all of it, each once, and so is what is taken for missing.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Findings so far: those of the launch that `error` ended, and those since.
fn all_findings(error: Option<String>) -> Vec<String> {
    let more = simt::check::take_findings();
    error
        .into_iter()
        .chain(more.into_iter().map(|finding| finding.text))
        .collect()
}

/// Returns what the checker says about one block of `kernel` that puts `count` words from each of `threads` threads.
fn puts(pair: &Pair, kernel: &str, threads: u32, count: u32, seed: u64) -> Vec<String> {
    let mut params = pair.params(count, 3);
    params.deadline_ns = 60_000_000_000;
    let event = pair.ends[0].start(&launch(kernel, 1, threads, seed), &params);
    let result = pair.ends[0].node.gpu.wait(&event, HANG);
    all_findings(result.err().map(|error| error.to_string()))
}

/// Some seed has a finding with all these words; it is printed.
#[track_caller]
fn caught(kernel: &str, config: &QpConfig, threads: u32, parts: &[&str]) {
    let mut others = Vec::new();
    for seed in 0..20 {
        let pair = Pair::of_words(threads as usize * 40, config, None);
        let found = puts(&pair, kernel, threads, 40, seed);
        let fits = |text: &&String| parts.iter().all(|part| text.contains(part));
        if let Some(text) = found.iter().find(fits) {
            println!("seed {seed}: {text}");
            return;
        }
        others.extend(found);
    }
    panic!("{kernel}: no seed shows {parts:?}, only {others:#?}");
}

fn shared() -> QpConfig {
    QpConfig::default().with_log_depth(8)
}

#[test]
fn puts_of_threads_and_warps_have_no_findings() {
    let _turn = turn();
    for seed in seeds(4, 40) {
        for (kernel, threads, count) in [
            ("wv_test_put_words", 8, 300),
            ("wv_test_put_words_warp", 64, 20),
            ("wv_test_put_words_unsignalled", 8, 100),
            ("wv_test_put_words_one_round", 8, 100),
        ] {
            let pair = Pair::of_words(threads as usize * count, &shared(), Some(seed));
            let found = puts(&pair, kernel, threads, count as u32, seed);
            assert_eq!(found, [""; 0], "{kernel}, seed {seed}");
            assert_eq!(pair.wrong_words(), [0; 0], "{kernel}, seed {seed}");
        }
    }
}

#[test]
fn an_exclusive_qp_has_no_findings() {
    let _turn = turn();
    for seed in seeds(2, 20) {
        let config = shared().with_sharing(Sharing::Exclusive);
        for (kernel, threads) in [
            ("wv_test_put_words_exclusive", 1),
            ("wv_test_put_words_warp_exclusive", 32),
        ] {
            let pair = Pair::of_words(threads as usize * 100, &config, None);
            let found = puts(&pair, kernel, threads, 100, seed);
            assert_eq!(found, [""; 0], "{kernel}, seed {seed}");
        }
    }
}

#[test]
fn a_wqe_that_is_not_fenced_before_its_publication_is_found() {
    let _turn = turn();
    let parts = [
        "untold: the HCA reads",
        "wv_test_order_no_fence",
        "wqe.cuh",
        "missing: a release fence",
    ];
    caught("wv_test_order_no_fence", &shared(), 8, &parts);
}

#[test]
fn a_wqe_that_is_fenced_for_its_block_only_is_found() {
    let _turn = turn();
    let parts = [
        "untold: the HCA reads",
        "wv_test_order_cta_fence",
        "It was fenced with .cta, and .gpu or wider is needed before the doorbell",
    ];
    caught("wv_test_order_cta_fence", &shared(), 8, &parts);
}

/// The same kernel passes where the queues are the GPU's: its scope is wrong for the host's memory only.
#[test]
fn a_wqe_in_host_memory_that_is_fenced_for_the_gpu_only_is_found() {
    let _turn = turn();
    let parts = [
        "untold: the HCA reads",
        "host-mapped memory",
        "wv_test_order_gpu_fence",
        "It was fenced with .gpu, and .sys or wider is needed before the doorbell",
    ];
    let host = shared().with_queues(Queues::Host);
    caught("wv_test_order_gpu_fence", &host, 8, &parts);
    for seed in seeds(2, 20) {
        for (kernel, config) in [
            ("wv_test_order_gpu_fence", &shared()),
            ("wv_test_put_words", &host),
        ] {
            let pair = Pair::of_words(8 * 40, config, None);
            let found = puts(&pair, kernel, 8, 40, seed);
            assert_eq!(found, [""; 0], "{kernel}, seed {seed}");
            assert_eq!(pair.wrong_words(), [0; 0], "{kernel}, seed {seed}");
        }
    }
}

#[test]
fn a_wqe_that_is_written_after_its_publication_is_found() {
    let _turn = turn();
    caught(
        "wv_test_order_late_wqe",
        &shared(),
        2,
        &["wv_test_order_late_wqe", "the HCA reads", "wqe.cuh"],
    );
}

#[test]
fn a_source_that_changes_while_the_hca_may_read_it_is_found() {
    let _turn = turn();
    caught(
        "wv_test_order_source_too_early",
        &shared(),
        1,
        &[
            "wv_test_order_source_too_early",
            "the HCA reads",
            "order_mutants.cu",
        ],
    );
}

/// Side 0 puts 15 words and a signal to side 1. One thread of side 1 waits for the signal and reads the first of them, in the way
/// that `how` says (`wv_test_order_reader`). Returns the findings of the checker.
fn read_behind_signal(how: u64, seed: u64) -> Vec<String> {
    let pair = Pair::of_words(16, &shared(), None);
    let params = WaitParams {
        qp: pair.qp_of(1),
        word: (pair.ends[1].window().base + 8 * 31).into(),
        ticket: how,
        deadline_ns: 60_000_000_000,
        status: pair.ends[1].status(),
    };
    let reader = pair.ends[1].start(&launch("wv_test_order_reader", 1, 1, seed), &params);
    until("the reader has looked", || {
        pair.ends[1].results(1)[0].0 == Status::WOULD_BLOCK
    });
    // The look before the wait races with the put, so the writer's side may have something to say as well.
    let mut found = puts(&pair, "wv_test_put_words", 1, 16, seed);
    let result = pair.ends[1].node.gpu.wait(&reader, HANG);
    found.extend(all_findings(result.err().map(|error| error.to_string())));
    if how == 0 {
        assert_eq!(pair.ends[1].results(1)[0].0, Status::OK, "seed {seed}");
    }
    found
}

#[test]
fn a_payload_that_is_read_without_the_acquire_behind_its_signal_is_found() {
    let _turn = turn();
    let acquire = "missing: an acquire fence of scope .gpu or wider in the reading thread";
    for seed in seeds(4, 40) {
        assert_eq!(read_behind_signal(0, seed), [""; 0], "seed {seed}");
        for (how, part) in [
            (1, acquire),
            (2, "not constant: wv_test_order_reader"),
            (3, "its block's L1 holds older bytes"),
            (3, acquire),
            (4, acquire),
        ] {
            let found = read_behind_signal(how, seed);
            assert!(
                found.iter().any(|text| text.contains(part)),
                "seed {seed}, way {how}, {part:?}: {found:#?}"
            );
        }
    }
}
