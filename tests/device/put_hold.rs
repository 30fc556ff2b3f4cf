//! Doorbells that are held back: a thread that holds back sends nothing, and a thread that flushes or waits sends it all. And
//! posters that break the protocol, each in one way: the test catches every one of them, on any machine.

#![expect(clippy::cast_possible_truncation, reason = "small test numbers")]

use std::time::Duration;

use test_support::device::launch;
use test_support::nic::{Behaviour, Follow, Report};
use test_support::ring::Ring;
use warpverbs::abi::{MODE_EXCLUSIVE, MODE_NO_RECORD, Status};

/// Runs `kernel` with `count` words of each thread; how the threads ended, and what the NIC saw.
fn run(
    ring: &Ring,
    kernel: &str,
    threads: u32,
    count: u32,
    deadline: Duration,
) -> (Vec<(Status, u32)>, Report) {
    let nic = ring.nic(Behaviour::new(Follow::Doorbell, 1));
    let mut params = ring.params(count, 0);
    params.deadline_ns = deadline.as_nanos() as u64;
    let ends = ring.run(&launch(kernel, 1, threads, u64::from(threads)), &params);
    (ends, nic.stop())
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn what_is_held_back_stays_back_until_a_thread_waits() {
    for (mode, suffix) in [
        (0, ""),
        (MODE_NO_RECORD, ""),
        (MODE_EXCLUSIVE, "_exclusive"),
        (MODE_EXCLUSIVE | MODE_NO_RECORD, "_exclusive"),
    ] {
        let ring = Ring::new(256, 50, 0, mode);
        let kernel = format!("wv_test_hold_and_leave{suffix}");
        let (ends, report) = run(&ring, &kernel, 1, 50, LONG);
        assert_eq!(ends, [(Status::OK, 50)], "{kernel}");
        assert_eq!((report.doorbells, report.wqes), (0, 0), "{kernel}");
        let context = ring.read_context();
        assert_eq!(
            (context.resv, context.doorbell_index, context.doorbells),
            (50, 0, 0),
            "{kernel}"
        );
        // One doorbell for all of it, and the NOP that brought it.
        let quiet = format!("wv_test_quiet{suffix}");
        let (ends, report) = run(&ring, &quiet, 1, 0, LONG);
        assert_eq!(ends[0].0, Status::OK, "{kernel}");
        assert_eq!((report.doorbells, report.wqes), (1, 51), "{kernel}");
        assert_eq!(report.findings, [""; 0], "{kernel}");
        assert_eq!(ring.wrong_words(), [0; 0], "{kernel}");
        // Nothing is left to do, so nothing is posted.
        let (ends, report) = run_again(&ring, &quiet);
        assert_eq!(ends[0].0, Status::OK, "{kernel}");
        assert_eq!((report, ring.read_context().resv), (0, 51), "{kernel}");
    }
}

/// Runs `kernel` without a NIC; how it ended, and the doorbells that it rang.
fn run_again(ring: &Ring, kernel: &str) -> (Vec<(Status, u32)>, u64) {
    let before = ring.read_context().doorbells;
    let ends = ring.run(&launch(kernel, 1, 1, 0), &ring.params(0, 0));
    (ends, ring.read_context().doorbells - before)
}

#[test]
fn a_wait_a_test_and_a_flush_ring_a_held_tail() {
    for mode in [0, MODE_NO_RECORD] {
        for kernel in [
            "wv_test_hold_and_wait",
            "wv_test_hold_and_test",
            "wv_test_hold_and_flush",
        ] {
            for (threads, count) in [(1, 1), (1, 50), (7, 9), (1, 64), (40, 30)] {
                let ring = Ring::new(256, (threads * count) as usize, 0, mode);
                let (ends, report) = run(&ring, kernel, threads, count, LONG);
                let what = format!("{kernel}, {threads} x {count}, mode {mode}");
                assert_eq!(report.findings, [""; 0], "{what}");
                assert_eq!(ends, vec![(Status::OK, count); threads as usize], "{what}");
                assert_eq!(ring.wrong_words(), [0; 0], "{what}");
            }
        }
    }
    for count in [1, 63, 64, 65, 300] {
        let ring = Ring::exclusive(256, count as usize, 0);
        let (ends, report) = run(&ring, "wv_test_hold_and_wait_exclusive", 1, count, LONG);
        assert_eq!(report.findings, [""; 0], "{count}");
        assert_eq!(ends, [(Status::OK, count)], "{count}");
        assert_eq!(ring.wrong_words(), [0; 0], "{count}");
    }
}

#[test]
fn a_batch_that_passes_a_quarter_is_rung_whatever_the_caller_says() {
    for (mode, kernel) in [
        (0, "wv_test_hold_and_leave"),
        (MODE_EXCLUSIVE, "wv_test_hold_and_leave_exclusive"),
    ] {
        // Three rings full: it goes on only because every quarter is rung and signalled.
        let ring = Ring::new(256, 800, 0, mode);
        let (ends, report) = run(&ring, kernel, 1, 800, LONG);
        assert_eq!(ends, [(Status::OK, 800)], "{kernel}");
        assert_eq!(report.findings, [""; 0], "{kernel}");
        let context = ring.read_context();
        assert_eq!((context.doorbells, report.wqes), (12, 768), "{kernel}");
        assert_eq!(context.doorbell_index, 768, "{kernel}");
    }
}

#[test]
fn an_exclusive_wait_for_a_held_tail_times_out_and_the_next_one_succeeds() {
    let ring = Ring::exclusive(256, 10, 0);
    let mut params = ring.params(10, 0);
    params.deadline_ns = 1;
    // No NIC: the wait rings, and times out.
    let ends = ring.run(&launch("wv_test_hold_and_wait_exclusive", 1, 1, 0), &params);
    assert!(matches!(ends[0].0, Status::TIMEOUT), "{ends:?}");
    let context = ring.read_context();
    assert_eq!((context.resv, context.doorbell_index), (11, 11));
    let (ends, report) = run(&ring, "wv_test_quiet_exclusive", 1, 0, LONG);
    assert_eq!((ends[0].0, report.findings.len()), (Status::OK, 0));
    assert_eq!(ring.wrong_words(), [0; 0]);
}

// Posters that break the protocol --------------------------------------------------------------------------------------

/// A wait that is known to be in vain.
const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a_post_without_doorbell_moves_nothing_and_times_out() {
    let ring = Ring::shared(256, 8, 0);
    let (ends, report) = run(&ring, "wv_test_mutant_no_doorbell", 1, 8, SHORT);
    assert_eq!(ends, [(Status::TIMEOUT, 7)]);
    assert_eq!((report.wqes, report.doorbells), (0, 0));
    assert_eq!(ring.target(), [0; 8]);
}

#[test]
fn holding_back_unasked_is_caught() {
    let ring = Ring::shared(256, 8, 0);
    let (ends, report) = run(&ring, "wv_test_mutant_holds_unasked", 1, 8, SHORT);
    assert_eq!(ends, [(Status::TIMEOUT, 7)]);
    assert_eq!(report.doorbells, 0);
}

#[test]
fn a_wait_that_does_not_ring_is_caught() {
    let ring = Ring::shared(256, 1, 0);
    let (ends, report) = run(&ring, "wv_test_mutant_wait_rings_not", 1, 1, SHORT);
    assert_eq!((ends[0].0, report.doorbells), (Status::TIMEOUT, 0));
}

#[test]
fn a_flush_that_does_nothing_is_caught() {
    let ring = Ring::shared(256, 1, 0);
    let (ends, report) = run(&ring, "wv_test_mutant_flush_nothing", 1, 1, LONG);
    assert_eq!((ends[0].0, report.doorbells), (Status::OK, 0));
    assert_eq!(
        ring.wrong_words(),
        [0],
        "it said ok, and the word is not there"
    );
}

#[test]
fn a_doorbell_that_was_to_be_held_back_is_caught() {
    let ring = Ring::shared(256, 8, 0);
    let (_, report) = run(&ring, "wv_test_mutant_rings_held", 1, 8, LONG);
    assert!(report.doorbells > 0, "where holding back sends none");
}

#[test]
fn a_token_parked_by_a_store_loses_a_doorbell() {
    let ring = Ring::shared(256, 2, 0);
    let (ends, _) = run(&ring, "wv_test_mutant_park_by_store", 2, 1, SHORT);
    assert_eq!(ends[1].0, Status::TIMEOUT, "{ends:?}");
    let ring = Ring::shared(256, 2, 0);
    let (ends, report) = run(&ring, "wv_test_park_late", 2, 1, LONG);
    assert_eq!(
        ends,
        [(Status::OK, 1); 2],
        "the protocol in the same meeting"
    );
    assert_eq!(report.findings, [""; 0]);
}

/// Returns what shows that `kernel` breaks the protocol: findings of the NIC, missing words, bad ends.
fn symptoms(kernel: &str, follow: Follow, deadline: Duration) -> Vec<String> {
    let ring = Ring::shared(256, 8 * 300, 0);
    let mut params = ring.params(300, 0);
    params.deadline_ns = deadline.as_nanos() as u64;
    let nic = ring.nic(Behaviour::new(follow, 5));
    let ends = ring.run(&launch(kernel, 1, 8, 5), &params);
    let mut found = nic.stop().findings;
    let bad = ends.iter().filter(|end| end.0 != Status::OK);
    found.extend(bad.map(|end| format!("a thread ended with {}", end.0)));
    let wrong = ring.wrong_words().len();
    if wrong > 0 {
        found.push(format!("{wrong} wrong words"));
    }
    found
}

#[test]
fn an_index_published_before_its_wqe_is_caught() {
    let found = symptoms("wv_test_mutant_publish_first", Follow::Doorbell, SHORT);
    assert!(found[0].starts_with("fetched"), "{found:?}");
}

#[test]
fn a_record_written_before_the_wqe_is_caught_by_a_nic_that_follows_it() {
    let found = symptoms("wv_test_mutant_record_first", Follow::Record, SHORT);
    assert!(found[0].starts_with("fetched"), "{found:?}");
}

#[test]
fn a_ring_slot_reused_too_early_is_caught() {
    // The NIC starts when 300 WQEs were posted into 256 places.
    let ring = Ring::shared(256, 300, 0);
    let mut params = ring.params(300, 0);
    params.deadline_ns = 200_000_000;
    let ends = ring.run(&launch("wv_test_mutant_early_reuse", 1, 1, 5), &params);
    assert_eq!(ends, [(Status::TIMEOUT, 299)], "the last one waits");
    assert_eq!(ring.read_context().resv, 300);
    let findings = ring
        .nic(Behaviour::new(Follow::Doorbell, 5))
        .stop()
        .findings;
    let first = findings.first().map(String::as_str);
    assert_eq!(
        first,
        Some("doorbell 300 is more than a ring ahead of 0"),
        "{findings:?}"
    );
}

#[test]
fn the_protocol_itself_shows_none_of_this() {
    for follow in [
        Follow::Doorbell,
        Follow::RecordAfterDoorbell,
        Follow::Record,
    ] {
        let found = symptoms("wv_test_put_words", follow, LONG);
        assert_eq!(found, [""; 0], "{follow:?}");
    }
}
