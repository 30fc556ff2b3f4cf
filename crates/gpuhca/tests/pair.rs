//! Ranks of one process whose WQEs `gpuhca` executes on the CPU: what arrives, what is refused, what ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use test_support::limits::until;
use test_support::pair::Pair;
use warpverbs::abi::Status;
use warpverbs::verbs::QpConfig;

fn pair(words: usize) -> Pair {
    Pair::external(words, &QpConfig::default().with_log_depth(8))
}

/// Eight threads put 300 words each.
fn puts_arrive(seed: u64) {
    let pair = pair(8 * 300);
    let params = pair.params(300, 3);
    let ends = pair.run("wv_test_put_words", 8, seed, &params);
    assert_eq!(ends, [(Status::OK, 300); 8], "seed {seed}");
    assert_eq!(pair.wrong_words(), [0; 0], "seed {seed}");
    assert_eq!(pair.findings(), [""; 0], "seed {seed}");
    let counters = pair.ends[0].hca.counters();
    assert_eq!(counters.wqes, pair.context().resv);
    assert_eq!(counters.bytes_sent, 8 * 8 * 300);
    assert_eq!(pair.ends[1].hca.counters().bytes_received, 8 * 8 * 300);
}

#[test]
fn puts_of_several_threads_arrive_in_the_peers_memory() {
    for seed in [0, 5] {
        puts_arrive(seed);
    }
}

/// The QP fails, a reset brings it back, and the other pair never notices.
#[test]
fn a_put_with_a_wrong_key_fails_its_own_ends_and_a_reset_restores_them() {
    let (mut bad, good) = (pair(8 * 20), pair(8 * 100));
    bad.ends[0].set_peer(&bad.ends[1], 0x4200);
    let params = bad.params(20, 1);
    let ends = bad.run("wv_test_put_words", 8, 1, &params);
    assert!(ends.iter().all(|end| end.0 != Status::OK), "{ends:?}");
    let context = bad.context();
    assert!(
        matches!(context.err, Status::CQE_ERROR | Status::FLUSHED),
        "{:?}",
        context.err
    );
    until("both ends are in error", || {
        bad.qps().iter().all(|qp| qp.query().unwrap().state.0 == 6)
    });
    let found = bad.findings();
    assert!(found.iter().any(|text| text.contains("rkey")), "{found:?}");
    assert_eq!(bad.wrong_words().len(), bad.words(), "nothing was written");
    // The other pair's QPs are served all the same.
    let params = good.params(100, 3);
    let ends = good.run("wv_test_put_words", 8, 2, &params);
    assert_eq!(ends, [(Status::OK, 100); 8]);
    assert_eq!(good.wrong_words(), [0; 0]);
    bad.ends[0].set_peer(&bad.ends[1], 0);
    bad.reset(1 << 16);
    let params = bad.params(20, 1);
    let ends = bad.run("wv_test_put_words", 8, 3, &params);
    assert_eq!(ends, [(Status::OK, 20); 8]);
    assert_eq!(bad.wrong_words(), [0; 0]);
}

/// A rank's device is closed with all its objects while another pair puts.
#[test]
fn ranks_that_go_without_a_word_do_not_stop_the_others() {
    let good = pair(8 * 200);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let gone = scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) || rounds == 0 {
                let other = pair(8 * 50);
                let mut params = other.params(50, 0);
                params.deadline_ns = 200_000_000;
                let event = other.ends[0].start(
                    &test_support::device::launch("wv_test_put_words", 1, 8, rounds),
                    &params,
                );
                if rounds % 2 == 0 {
                    // The peer's QPs, keys and memory go while the kernel posts to them; then its own.
                    let [own, theirs] = other.into_ends();
                    drop(theirs);
                    own.wait(&event);
                    drop(own);
                } else {
                    other.ends[0].wait(&event);
                }
                rounds += 1;
            }
            rounds
        });
        for seed in 0..3 {
            let mut params = good.params(200, 3);
            params.deadline_ns = u64::try_from(Duration::from_secs(60).as_nanos()).unwrap();
            let ends = good.run("wv_test_put_words", 8, seed, &params);
            assert_eq!(ends, [(Status::OK, 200); 8], "seed {seed}");
            assert_eq!(good.wrong_words(), [0; 0], "seed {seed}");
        }
        stop.store(true, Ordering::Relaxed);
        println!("{} pairs went", gone.join().unwrap());
    });
}
