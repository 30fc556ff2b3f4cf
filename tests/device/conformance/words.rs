//! Checks of single words: atomics of both widths as far as the device has them, immediates, and waiting for any of two tickets.

use test_support::abi::conformance as abi;
use test_support::abi::conformance::ConformanceParams;
use test_support::abi::kernels::PutItem;
use warpverbs::abi::{ATOMIC_64, ATOMIC_MASKED_32, ATOMIC_MASKED_64, Status};

use crate::checks::{arrived, compare, expect, list};
use test_support::bench::{Bench, HALF};
use test_support::words::word;

/// Number of an atomic, in the order of `AmoOp`, and its bytes.
const ATOMICS: [(u32, u64); 12] = [
    (0, 4),
    (1, 4),
    (2, 4),
    (3, 4),
    (4, 4),
    (5, 4),
    (0, 8),
    (1, 8),
    (2, 8),
    (3, 8),
    (4, 8),
    (5, 8),
];

/// Words of a target.
const WORDS: u64 = HALF / 8;

/// Returns what the target holds at first: word `k`, as the kernel knows it.
fn there(k: u64) -> u64 {
    word(WORDS + k)
}

/// Returns what an atomic makes of `old`.
fn outcome(number: u32, old: u64, value: u64, expected: u64) -> u64 {
    match number {
        0 => old.wrapping_add(value),
        1 if old == expected => value,
        1 => old,
        2 => value,
        3 => old & value,
        4 => old | value,
        _ => old ^ value,
    }
}

/// Item `k`: word `k` at the peer, its old value to word `k` here.
fn atomics_of(count: u64, bytes: u64) -> Vec<PutItem> {
    let item = |k: u64| PutItem {
        src_offset: HALF + 8 * k,
        dst_offset: HALF + 8 * k,
        bytes,
    };
    (0..count).map(item).collect()
}

pub(crate) fn atomics(bench: &mut Bench) {
    let before: Vec<u64> = (0..WORDS).map(there).collect();
    for (number, bytes) in ATOMICS {
        // Of these each takes two WQEBBs, and a NOP after all: 31 are what a quarter of the ring holds.
        let wide = bytes == 8 && (2..=4).contains(&number);
        let (shape, count) = match bench.cell.solo() {
            solo if wide && solo.size > 31 => (solo, 31),
            _ => (bench.cell.shape(), 150),
        };
        bench.fill_targets(1, &before);
        bench.fill_targets(0, &vec![u64::MAX; before.len()]);
        let params = ConformanceParams {
            operation: abi::CONFORMANCE_AMO,
            end: abi::CONFORMANCE_END_WAIT_DATA,
            batch: number,
            ..bench.params(0, &atomics_of(count, bytes))
        };
        expect(bench, shape, &params, Status::OK);
        bench.second_halves += if wide { count } else { 0 };
        let mask = u64::MAX >> (64 - 8 * bytes);
        let after = before.iter().zip(0..).flat_map(|(&word, k)| {
            let expected = if k % 2 == 0 { word } else { !word };
            let new = outcome(number, word & mask, !k & mask, expected & mask) & mask;
            let new = if k < count { word & !mask | new } else { word };
            new.to_le_bytes()
        });
        compare(bench, &after.collect::<Vec<_>>());
        // Old values of 4 bytes come big-endian.
        let old = before.iter().zip(0..).flat_map(|(&word, k)| match bytes {
            _ if k >= count => [0xff; 8],
            4 => {
                let [.., a, b, c, d] = (word & mask).to_be_bytes();
                [a, b, c, d, 0xff, 0xff, 0xff, 0xff]
            }
            _ => word.to_le_bytes(),
        });
        let fetched = bench.bytes(0, HALF, HALF);
        let wrong = fetched.iter().copied().zip(old).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "atomic {number} of {bytes}: first wrong byte");
    }
}

pub(crate) fn atomics_refused(bench: &mut Bench) {
    let before = bench.context();
    let all = ATOMIC_64 | ATOMIC_MASKED_32 | ATOMIC_MASKED_64;
    assert_eq!(before.atomics & all, all);
    for (number, bytes) in ATOMICS {
        let needs = match (bytes, number) {
            (4, _) => ATOMIC_MASKED_32,
            (_, 0 | 1) => ATOMIC_64,
            _ => ATOMIC_MASKED_64,
        };
        bench.set_atomics(all & !needs);
        let params = ConformanceParams {
            operation: abi::CONFORMANCE_AMO,
            batch: number,
            ..bench.params(0, &atomics_of(70, bytes))
        };
        expect(bench, bench.cell.solo(), &params, Status::INVALID);
    }
    bench.set_atomics(before.atomics);
    let after = bench.context();
    assert_eq!((after.resv, after.claim), (before.resv, before.claim));
    arrived(bench, []);
}

/// Every scope of side 1 takes as many immediates as one of side 0 puts.
pub(crate) fn immediates(bench: &mut Bench) {
    const ROUNDS: u32 = 6;
    let shape = bench.cell.shape();
    let items = list(u64::from(shape.all() * ROUNDS), 64);
    let each = shape.size * ROUNDS;
    let take = ConformanceParams {
        operation: abi::CONFORMANCE_TAKE_IMM,
        count: 0,
        rounds: each,
        ..bench.params(1, &items)
    };
    let kernel = bench.cell.kernel();
    let event = bench.start(1, &kernel, shape, &take);
    let put = ConformanceParams {
        operation: abi::CONFORMANCE_PUT_IMM,
        end: abi::CONFORMANCE_END_WAIT,
        ..bench.params(0, &items)
    };
    expect(bench, shape, &put, Status::OK);
    let taken = bench.finish(1, &event, shape.scopes());
    let good = |end: &abi::ConformanceEnd| (end.status, end.done) == (Status::OK, each);
    assert!(taken.iter().all(good), "{taken:?}");
    arrived(bench, &items);
    // Each number once, none besides.
    let counts = bench.bytes(1, 0, HALF);
    let expected = (0..WORDS).flat_map(|k| u64::from(k < items.len() as u64).to_le_bytes());
    let wrong = counts.iter().zip(expected).position(|(&a, b)| a != b);
    assert_eq!(wrong, None, "first wrong byte of the counts");
    // No further immediate has come.
    let again = ConformanceParams {
        options: abi::CONFORMANCE_TRY,
        rounds: 1,
        ..take
    };
    let solo = bench.cell.solo();
    let event = bench.start(1, &kernel, solo, &again);
    let none = bench.finish(1, &event, 1);
    assert_eq!(none[0].status, Status::WOULD_BLOCK);
}

pub(crate) fn wait_any(bench: &mut Bench) {
    for options in [0, abi::CONFORMANCE_MORE] {
        bench.clear();
        let items = list(300, 24);
        let params = ConformanceParams {
            operation: abi::CONFORMANCE_PUT,
            end: abi::CONFORMANCE_END_WAIT_ANY,
            options,
            ..bench.params(0, &items)
        };
        expect(bench, bench.cell.shape(), &params, Status::OK);
        arrived(bench, &items);
    }
}
