//! Posters that break the protocol are caught, by the HCA's checker or by the bytes that arrive.

#[cfg(feature = "asan")]
mod wild;

use std::time::Duration;

use test_support::counts::seeds;
use test_support::device::launch;
use test_support::limits::{HANG, until};
use test_support::pair::Pair;
use warpverbs::abi::Status;

/// Deadline of a kernel that may wait in vain, since it breaks the protocol.
const SHORT: Duration = Duration::from_secs(1);

#[test]
fn a_post_without_doorbell_moves_nothing_and_times_out() {
    for seed in seeds(2, 10) {
        let pair = Pair::shared(8, 8);
        let mut params = pair.params(8, 0);
        params.deadline_ns = 200_000_000;
        let ends = pair.run("wv_test_mutant_no_doorbell", 1, seed, &params);
        assert_eq!(ends, [(Status::TIMEOUT, 7)], "seed {seed}");
        assert_eq!(
            pair.wrong_words(),
            [0, 1, 2, 3, 4, 5, 6, 7],
            "seed {seed}: nothing moved"
        );
        let counters = pair.ends[0].hca.counters();
        assert_eq!((counters.wqes, counters.doorbells), (0, 0), "seed {seed}");
    }
}

/// Returns what shows that `kernel` breaks the protocol under this seed; nothing if nothing does.
fn symptoms(kernel: &str, seed: u64, deadline: Duration) -> Vec<String> {
    let pair = Pair::shared(8 * 300, 8);
    // The HCA sleeps until the ring is full, which is when a slot can be taken too early.
    pair.ends[0].hca.pause(Duration::from_secs(600));
    let mut params = pair.params(300, 0);
    params.deadline_ns = u64::try_from(deadline.as_nanos()).unwrap();
    let event = pair.ends[0].start(&launch(kernel, 1, 8, seed), &params);
    until("the ring is full", || {
        pair.context().resv >= 256 || event.is_done()
    });
    pair.ends[0].hca.pause(Duration::ZERO);
    let ends = pair.ends[0].finish(&event, 8);
    let mut found = pair.findings();
    let wrong = pair.wrong_words();
    if !wrong.is_empty() {
        found.push(format!(
            "{} words did not arrive, first {}",
            wrong.len(),
            wrong[0]
        ));
    }
    let bad = ends.iter().filter(|end| end.0 != Status::OK);
    found.extend(bad.map(|end| format!("a thread ended with {}", end.0)));
    found
}

/// The first seed under which `kernel` shows.
fn caught(kernel: &str, deadline: Duration) -> Option<(u64, Vec<String>)> {
    (0..20)
        .map(|seed| (seed, symptoms(kernel, seed, deadline)))
        .find(|(_, found)| !found.is_empty())
}

#[test]
fn a_ring_slot_reused_too_early_is_caught() {
    let (seed, found) = caught("wv_test_mutant_early_reuse", SHORT).expect("no seed shows it");
    println!("seed {seed}: {found:?}");
}

#[test]
fn an_index_published_before_its_wqe_is_caught() {
    let (seed, found) = caught("wv_test_mutant_publish_first", SHORT).expect("no seed shows it");
    println!("seed {seed}: {found:?}");
}

#[test]
fn the_protocol_itself_shows_none_of_this() {
    assert_eq!(caught("wv_test_put_words", HANG), None);
}
