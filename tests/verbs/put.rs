//! Kernels put through the whole stack: libmlx5, verbs, the software HCA. Every byte arrives, once, and the HCA's checker has
//! nothing to say.

#![expect(clippy::cast_possible_truncation, reason = "small test numbers")]

use test_support::abi::kernels::{PutItem, PutListParams};
use test_support::counts::seeds;
use test_support::pair::Pair;
use warpverbs::abi::{MODE_EXCLUSIVE, Status};
use warpverbs::verbs::{QpConfig, Sharing};

/// Puts `count` words from each of `threads` threads and checks bytes, indices, counters and findings.
#[track_caller]
fn check(pair: &Pair, kernel: &str, threads: u32, count: u32, wait_every: u32, seed: u64) {
    let before = pair.ends[0].hca.counters();
    let start = pair.context().resv;
    let ends = pair.run(kernel, threads, seed, &pair.params(count, wait_every));
    let what = format!("{kernel}, seed {seed}");
    assert_eq!(ends, vec![(Status::OK, count); threads as usize], "{what}");
    assert_eq!(pair.findings(), [""; 0], "{what}");
    let wrong = pair.wrong_words();
    assert!(
        wrong.is_empty(),
        "{what}: {} wrong words, first {:?}",
        wrong.len(),
        wrong.first()
    );
    let context = pair.context();
    assert_eq!(context.err, Status::OK, "{what}");
    assert_eq!(context.resv, context.cons, "{what}: all done at the end");
    if context.mode & MODE_EXCLUSIVE == 0 {
        assert_eq!(context.claim, context.resv, "{what}");
    }
    let after = pair.ends[0].hca.counters();
    assert_eq!(
        after.wqes - before.wqes,
        context.resv - start,
        "{what}: each WQE ran once"
    );
    assert!(
        after.doorbells - before.doorbells <= after.wqes - before.wqes,
        "{what}"
    );
}

#[test]
fn eight_threads_put_70_000_words_each_on_one_shared_qp() {
    for seed in seeds(10, 100) {
        let pair = Pair::of_words(
            8 * 70_000,
            &QpConfig::default(),
            (seed % 3 == 2).then_some(seed),
        );
        check(&pair, "wv_test_put_words", 8, 70_000, 64, seed);
        assert_eq!(
            pair.context().resv,
            560_000,
            "indices passed 2^16 eight times"
        );
    }
}

#[test]
fn threads_that_wait_for_each_put_share_a_small_ring() {
    for seed in seeds(7, 30) {
        let config = QpConfig::default().with_log_depth(8);
        let pair = Pair::of_words(32 * 500, &config, (seed % 2 == 1).then_some(seed));
        check(&pair, "wv_test_put_words", 32, 500, 1, seed);
    }
}

#[test]
fn holders_that_leave_after_one_round_lose_no_doorbell() {
    for seed in seeds(5, 30) {
        let pair = Pair::shared(16 * 500, 8);
        check(&pair, "wv_test_put_words_one_round", 16, 500, 1, seed);
        let pair = Pair::shared(3 * 500, 8);
        check(&pair, "wv_test_put_words_one_round", 3, 500, 1, seed);
    }
}

#[test]
fn warps_put_32_words_behind_one_doorbell() {
    for seed in seeds(3, 20) {
        let pair = Pair::shared(128 * 300, 10);
        check(&pair, "wv_test_put_words_warp", 128, 300, 16, seed);
        let counters = pair.ends[0].hca.counters();
        assert!(counters.doorbells <= counters.wqes / 32, "{counters:?}");
    }
}

#[test]
fn unsignalled_puts_arrive_and_quiet_waits_for_them() {
    for seed in seeds(3, 20) {
        let pair = Pair::shared(8 * 2000, 8);
        check(&pair, "wv_test_put_words_unsignalled", 8, 2000, 0, seed);
        let counters = pair.ends[0].hca.counters();
        assert!(counters.cqes < counters.wqes / 16, "{counters:?}");
    }
}

#[test]
fn an_exclusive_qp_needs_no_atomics() {
    for seed in seeds(2, 10) {
        let config = QpConfig::default()
            .with_log_depth(8)
            .with_sharing(Sharing::Exclusive);
        let pair = Pair::of_words(70_000, &config, None);
        check(&pair, "wv_test_put_words_exclusive", 1, 70_000, 50, seed);
        let pair = Pair::of_words(32 * 1000, &config, None);
        check(&pair, "wv_test_put_words_warp_exclusive", 32, 1000, 3, seed);
    }
}

#[test]
fn puts_of_any_length_and_alignment_copy_exactly_their_bytes() {
    for seed in seeds(5, 50) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let words = 1 << 16;
        let half = 8 * words as u64;
        let pair = Pair::shared(words, 8);
        // Targets follow each other with gaps, sources lie anywhere.
        let mut items = Vec::new();
        let mut at = 0;
        while items.len() < 300 {
            let bytes = if rng.u8(0..8) == 0 {
                rng.u64(1..20_000)
            } else {
                rng.u64(1..300)
            };
            at += rng.u64(0..9);
            if at + bytes > half {
                break;
            }
            let src_offset = rng.u64(0..=half - bytes);
            items.push(PutItem {
                src_offset,
                dst_offset: half + at,
                bytes,
            });
            at += bytes;
        }
        let node = &pair.ends[0].node;
        let list = node
            .gpu
            .alloc(size_of::<PutItem>() * items.len(), 128)
            .unwrap();
        node.gpu
            .write(list.addr(), bytemuck::cast_slice(&items))
            .unwrap();
        let params = list_params(&pair, list.addr(), items.len());
        let ends = pair.run("wv_test_put_list", 96, seed, &params);
        assert!(
            ends.iter().all(|end| end.0 == Status::OK),
            "seed {seed}: {ends:?}"
        );

        let source: Vec<u8> = pair.ends[0].window_at(0, half as usize);
        let mut expected = vec![0; half as usize];
        for item in &items {
            let [from, to, bytes] = [item.src_offset, item.dst_offset - half, item.bytes];
            let [from, to, bytes] = [from as usize, to as usize, bytes as usize];
            expected[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
        }
        let target: Vec<u8> = pair.ends[1].window_at(half, half as usize);
        let first = target.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(first, None, "seed {seed}: first wrong byte");
        assert_eq!(pair.findings(), [""; 0], "seed {seed}");
    }
}

#[test]
fn inline_puts_carry_4_to_28_bytes() {
    let pair = Pair::shared(64, 8);
    let node = &pair.ends[0].node;
    let list = node.gpu.alloc(size_of::<PutItem>(), 128).unwrap();
    let item = PutItem {
        src_offset: 0,
        dst_offset: 512,
        bytes: 0,
    };
    node.gpu
        .write(list.addr(), bytemuck::bytes_of(&item))
        .unwrap();
    let ends = pair.run(
        "wv_test_put_value",
        1,
        0,
        &list_params(&pair, list.addr(), 1),
    );
    assert_eq!(ends[0].0, Status::OK);
    for n in 1..=7_u32 {
        let words: Vec<u32> = pair.ends[1].window_at(512 + 32 * (u64::from(n) - 1), 8);
        let expected: Vec<u32> = (0..8)
            .map(|i| if i < n { n << 16 | i } else { 0 })
            .collect();
        assert_eq!(words, expected, "{} bytes", 4 * n);
    }
    assert_eq!(pair.findings(), [""; 0]);
}

fn list_params(pair: &Pair, items: u64, count: usize) -> PutListParams {
    let words = pair.params(0, 0);
    PutListParams {
        qp: words.qp,
        peer: words.peer,
        window: words.window,
        items: items.into(),
        count: count as u64,
        deadline_ns: words.deadline_ns,
        status: words.status,
    }
}

#[test]
fn a_pair_leaves_nothing_behind_on_its_hcas() {
    let pair = Pair::shared(8, 8);
    check(&pair, "wv_test_put_words", 1, 8, 0, 0);
    for end in pair.into_ends() {
        let hca = end.into_hca();
        assert_eq!(hca.live_objects().total(), 0, "{:?}", hca.live_objects());
    }
}
