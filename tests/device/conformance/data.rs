//! Checks of what arrives: puts of all sizes, values, signals after their data, unsignalled work.

use test_support::abi::conformance as abi;
use test_support::abi::conformance::ConformanceParams;
use test_support::abi::kernels::PutItem;
use warpverbs::abi::Status;

use crate::checks::{arrived, compare, expect, list};
use test_support::bench::{Bench, HALF, SIGNALS};
use test_support::table::Shape;
use test_support::words::word;

pub(crate) fn sizes(bench: &mut Bench) {
    let mut rng = fastrand::Rng::with_seed(bench.seed);
    let edges = [
        1, 3, 4, 7, 8, 15, 16, 63, 64, 65, 255, 256, 1000, 1024, 1025, 4095, 4096, 4097, 20_000,
    ];
    let mut sizes = edges.to_vec();
    sizes.extend((0..131).map(|_| rng.u64(1..300)));
    rng.shuffle(&mut sizes);
    let mut at = 0;
    let mut items = Vec::new();
    for bytes in sizes {
        at += rng.u64(0..9);
        items.push(PutItem {
            src_offset: rng.u64(0..=HALF - bytes),
            dst_offset: HALF + at,
            bytes,
        });
        at += bytes;
    }
    assert!(at <= HALF);
    let params = ConformanceParams {
        operation: abi::CONFORMANCE_PUT,
        end: abi::CONFORMANCE_END_WAIT,
        ..bench.params(0, &items)
    };
    expect(bench, bench.cell.shape(), &params, Status::OK);
    arrived(bench, &items);
}

pub(crate) fn values(bench: &mut Bench) {
    for bytes in [4, 12, 28] {
        bench.clear();
        // A gap between two values, so that none hides that another is too long.
        let mut items = list(130, 40);
        for item in &mut items {
            item.bytes = bytes;
        }
        let params = ConformanceParams {
            operation: abi::CONFORMANCE_PUT_VALUE,
            end: abi::CONFORMANCE_END_TEST,
            ..bench.params(0, &items)
        };
        expect(bench, bench.cell.shape(), &params, Status::OK);
        let mut expected = vec![0; usize::try_from(HALF).unwrap()];
        for (k, item) in (0_u32..).zip(&items) {
            let at = usize::try_from(item.dst_offset - HALF).unwrap();
            for (word, place) in (1..=u32::try_from(bytes / 4).unwrap()).zip((at..).step_by(4)) {
                expected[place..place + 4].copy_from_slice(&(k << 8 | word).to_le_bytes());
            }
        }
        compare(bench, &expected);
    }
}

/// Starts the watcher of side 1 for `rounds` signals of each scope, runs `post`, and checks what it saw.
fn watched(bench: &Bench, items: &[PutItem], rounds: u32, post: impl FnOnce()) {
    let shape = bench.cell.shape();
    let scopes = shape.scopes();
    let watch = ConformanceParams {
        rounds,
        batch: shape.size,
        ..bench.params(1, items)
    };
    let watchers = Shape {
        blocks: 1,
        threads: scopes,
        size: 1,
    };
    let event = bench.start(1, "wv_test_conformance_watch", watchers, &watch);
    post();
    let seen = bench.finish(1, &event, scopes);
    assert!(
        seen.iter()
            .all(|seen| (seen.status, seen.done) == (Status::OK, 0)),
        "{seen:?}"
    );
    let signals = bench.bytes(1, SIGNALS, 8 * u64::from(scopes + 1));
    let expected: Vec<u8> = (0..=scopes)
        .flat_map(|scope| u64::from(if scope < scopes { rounds } else { 0 }).to_le_bytes())
        .collect();
    assert_eq!(
        signals, expected,
        "the last round for each scope, nothing behind"
    );
    arrived(bench, items);
}

pub(crate) fn put_signal(bench: &mut Bench) {
    let rounds = 9;
    let shape = bench.cell.shape();
    let items = list(u64::from(shape.all() * rounds), 64);
    let params = ConformanceParams {
        operation: abi::CONFORMANCE_PUT_SIGNAL,
        end: abi::CONFORMANCE_END_WAIT,
        ..bench.params(0, &items)
    };
    watched(bench, &items, rounds, || {
        let ends = expect(bench, shape, &params, Status::OK);
        assert!(ends.iter().all(|end| end.done == rounds), "{ends:?}");
    });
}

pub(crate) fn signal(bench: &mut Bench) {
    let shape = bench.cell.shape();
    let items = list(shape.all().into(), 256);
    let data = ConformanceParams {
        operation: abi::CONFORMANCE_PUT,
        options: abi::CONFORMANCE_UNSIGNALLED,
        ..bench.params(0, &items)
    };
    watched(bench, &items, 1, || {
        expect(bench, shape, &data, Status::OK);
        let params = ConformanceParams {
            operation: abi::CONFORMANCE_SIGNAL,
            end: abi::CONFORMANCE_END_WAIT,
            rounds: 1,
            ..bench.params(0, &[])
        };
        expect(bench, shape, &params, Status::OK);
    });
}

pub(crate) fn unsignalled(bench: &mut Bench) {
    for end in [abi::CONFORMANCE_END_FLUSH, abi::CONFORMANCE_END_QUIET] {
        bench.clear();
        let items = list(365, 24);
        let params = ConformanceParams {
            operation: abi::CONFORMANCE_PUT,
            end,
            options: abi::CONFORMANCE_UNSIGNALLED,
            ..bench.params(0, &items)
        };
        expect(bench, bench.cell.shape(), &params, Status::OK);
        let context = bench.context();
        assert_eq!(context.cons, context.resv, "the last flush covered all");
        arrived(bench, &items);
    }
}

/// Runs `operation` on `items` and waits for what it fetches.
fn fetch(bench: &Bench, operation: u32, items: &[PutItem]) {
    let params = ConformanceParams {
        operation,
        end: abi::CONFORMANCE_END_WAIT_DATA,
        ..bench.params(0, items)
    };
    expect(bench, bench.cell.shape(), &params, Status::OK);
}

pub(crate) fn get(bench: &mut Bench) {
    let words: Vec<u64> = (0..HALF / 8).map(|k| word(k ^ bench.seed)).collect();
    bench.fill_targets(1, &words);
    bench.fill_targets(0, &vec![0; words.len()]);
    // Each to the place where it was, a gap after it.
    let mut items = list(400, 64);
    for item in &mut items {
        *item = PutItem {
            src_offset: item.dst_offset,
            bytes: 57,
            ..*item
        };
    }
    fetch(bench, abi::CONFORMANCE_GET, &items);
    let got = bench.bytes(0, HALF, HALF);
    let there = bench.bytes(1, HALF, HALF);
    let wrong = (0..got.len()).find(|&at| {
        let fetched = at < 400 * 64 && at % 64 < 57;
        got[at] != if fetched { there[at] } else { 0 }
    });
    assert_eq!(wrong, None, "first wrong byte");
}

pub(crate) fn put_two(bench: &mut Bench) {
    let mut items = list(200, 40);
    for (bytes, item) in (2..=39).cycle().zip(&mut items) {
        item.bytes = bytes;
    }
    fetch(bench, abi::CONFORMANCE_PUT_TWO, &items);
    arrived(bench, &items);
}

pub(crate) fn adds(bench: &mut Bench) {
    bench.fill_targets(0, &vec![u64::MAX; usize::try_from(HALF / 8).unwrap()]);
    // All to one word; each old value to a place of its own.
    let items: Vec<_> = (0..150)
        .map(|k| PutItem {
            src_offset: HALF + 8 * k,
            dst_offset: HALF,
            bytes: 8,
        })
        .collect();
    fetch(bench, abi::CONFORMANCE_ADD, &items);
    let mut expected = vec![0; usize::try_from(HALF).unwrap()];
    expected[..8].copy_from_slice(&(150_u64 * 151 / 2).to_le_bytes());
    compare(bench, &expected);
    let old = bench.bytes(0, HALF, 8 * 151);
    let untouched = |place: &[u8]| place == [0xff; 8];
    let mut places = old.chunks_exact(8);
    assert!(places.by_ref().take(150).all(|place| !untouched(place)));
    assert!(places.all(untouched));
}

pub(crate) fn signal_add(bench: &mut Bench) {
    let shape = bench.cell.shape();
    let params = ConformanceParams {
        operation: abi::CONFORMANCE_SIGNAL_ADD,
        end: abi::CONFORMANCE_END_WAIT,
        rounds: 9,
        ..bench.params(0, &[])
    };
    expect(bench, shape, &params, Status::OK);
    let signals = bench.bytes(1, SIGNALS, 8 * u64::from(shape.scopes() + 1));
    let expected = (0..=shape.scopes()).flat_map(|scope| {
        let sum: u64 = if scope < shape.scopes() { 9 } else { 0 };
        sum.to_le_bytes()
    });
    assert!(expected.eq(signals.iter().copied()), "{signals:?}");
}
