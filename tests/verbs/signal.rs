//! Signals after data, and waits for them: two kernels on two HCAs.

#![expect(clippy::cast_possible_truncation, reason = "small test numbers")]

use std::mem::offset_of;
use std::time::{Duration, Instant};

use test_support::abi::kernels::{PingPongParams, WaitParams};
use test_support::counts::seeds;
use test_support::device::launch;
use test_support::pair::Pair;
use warpverbs::abi::{QpContext, Status};
use warpverbs::verbs::QpConfig;

/// 8-byte words that each of 32 lanes sends.
const WORDS: u32 = 40;
const AREA: u64 = 32 * 8 * WORDS as u64;

/// Parameters of one side: sources, then targets, then the signal.
fn side(pair: &Pair, side: usize, rounds: u32) -> PingPongParams {
    let end = &pair.ends[side];
    PingPongParams {
        qp: pair.qp_of(side),
        peer: end.peer(),
        window: end.window(),
        src_offset: 0,
        dst_offset: AREA,
        signal_offset: 2 * AREA,
        deadline_ns: 60_000_000_000,
        status: end.status(),
        mismatches: end.done(),
        rounds,
        side: side as u32,
        words: WORDS,
        reserved: 0,
    }
}

fn pair(schedule_seed: Option<u64>) -> Pair {
    let config = QpConfig::default().with_log_depth(8);
    Pair::of_words((AREA as usize * 2 + 64) / 16, &config, schedule_seed)
}

#[test]
fn two_kernels_play_ping_pong_with_data_behind_each_signal() {
    const ROUNDS: u32 = 150;
    for seed in seeds(4, 40) {
        let pair = pair((seed % 2 == 1).then_some(seed));
        let events = [0, 1].map(|at| {
            let spec = launch("wv_test_ping_pong", 1, 32, 2 * seed + at as u64);
            pair.ends[at].start(&spec, &side(&pair, at, ROUNDS))
        });
        for (end, event) in pair.ends.iter().zip(&events) {
            let results = end.finish(event, 32);
            assert_eq!(results[0].0, Status::OK, "seed {seed}");
            let mismatches: u32 = results.iter().map(|lane| lane.1).sum();
            assert_eq!(
                mismatches, 0,
                "seed {seed}: words of another round behind a signal"
            );
        }
        for end in &pair.ends {
            let counters = end.hca.counters();
            assert_eq!(
                counters.wqes,
                u64::from(ROUNDS) * 33,
                "32 puts and a signal per round"
            );
            assert!(
                counters.doorbells <= u64::from(ROUNDS),
                "one doorbell for all 33"
            );
        }
        assert_eq!(pair.findings(), [""; 0], "seed {seed}");
    }
}

fn wait_params(pair: &Pair, deadline: Duration) -> WaitParams {
    WaitParams {
        qp: pair.qp(),
        word: (pair.ends[0].window().base + 2 * AREA).into(),
        ticket: 0,
        deadline_ns: deadline.as_nanos() as u64,
        status: pair.ends[0].status(),
    }
}

#[test]
fn a_signal_that_never_comes_times_out() {
    let pair = pair(None);
    let begin = Instant::now();
    let params = wait_params(&pair, Duration::from_millis(100));
    let ends = pair.run("wv_test_wait", 4, 0, &params);
    assert!(ends.iter().all(|end| end.0 == Status::TIMEOUT), "{ends:?}");
    let took = begin.elapsed();
    println!("a deadline of 100 ms ended the wait in {took:?}");
    assert!(took >= Duration::from_millis(100), "{took:?}");
    pair.ends[0].write(2 * AREA, &[7]);
    let ends = pair.run("wv_test_wait", 4, 0, &params);
    assert!(ends.iter().all(|end| end.0 == Status::OK), "{ends:?}");
}

#[test]
fn abort_and_a_failed_qp_end_the_wait_for_a_signal() {
    for (offset, word, expected) in [
        (offset_of!(QpContext, abort), 1, Status::ABORTED),
        (
            offset_of!(QpContext, err),
            Status::FLUSHED.0,
            Status::FLUSHED,
        ),
    ] {
        let pair = pair(None);
        let params = wait_params(&pair, Duration::from_secs(60));
        let event = pair.ends[0].start(&launch("wv_test_wait", 1, 4, 0), &params);
        // The kernel waits by now, as a rule: it may not have ended in any case.
        std::thread::sleep(Duration::from_millis(30));
        assert!(!event.is_done());
        let begin = Instant::now();
        pair.patch(offset, &word.to_ne_bytes());
        let ends = pair.ends[0].finish(&event, 4);
        println!("the word ended the wait in {:?}", begin.elapsed());
        // Each status names the word, not the deadline.
        assert!(ends.iter().all(|end| end.0 == expected), "{ends:?}");
    }
}

#[test]
fn a_dead_peer_ends_the_game_on_both_sides() {
    let pair = pair(None);
    // Side 1 sends to a wrong key, so its first answer kills its QP. Side 0 then waits in vain, until the host aborts its QP.
    pair.ends[1].set_peer(&pair.ends[0], 0x0100_0000);
    let events = [0, 1].map(|at| {
        let params = side(&pair, at, 10);
        pair.ends[at].start(&launch("wv_test_ping_pong", 1, 32, at as u64), &params)
    });
    let second = pair.ends[1].finish(&events[1], 32)[0].0;
    pair.patch(offset_of!(QpContext, abort), &1u32.to_ne_bytes());
    let first = pair.ends[0].finish(&events[0], 32)[0].0;
    let failed = |status| matches!(status, Status::CQE_ERROR | Status::FLUSHED);
    assert!(failed(second), "{second}");
    assert!(first == Status::ABORTED || failed(first), "{first}");
}
