//! What every row of the table must show. Each check leaves a QP on which everything is done.

use std::thread::sleep;
use std::time::Duration;

use test_support::abi::conformance as abi;
use test_support::abi::conformance::{ConformanceEnd, ConformanceParams};
use test_support::abi::kernels::PutItem;
use warpverbs::abi::{MODE_HOST_QUEUES, MODE_WIDE_CQ, Status};
use warpverbs::verbs::{CqKind, Sharing};

use crate::data::{adds, get, put_signal, put_two, signal, signal_add, sizes, unsignalled, values};
use crate::words::{atomics, atomics_refused, immediates, wait_any};
use test_support::bench::{Bench, HALF};
use test_support::table::Shape;
use test_support::words::word;

/// WQEBBs of a ring, and the most that one call may post.
const DEPTH: u64 = 256;
const QUARTER: u64 = DEPTH / 4;

/// One check: its name and what it does.
type Check = (&'static str, fn(&mut Bench));

/// All of them, in the order in which they run.
const CHECKS: [Check; 20] = [
    ("puts of many sizes arrive, and nothing else", sizes),
    ("values from registers arrive", values),
    ("a signal of put_signal lands behind its data", put_signal),
    ("a signal lands behind unsignalled data", signal),
    ("flush and quiet cover unsignalled work", unsignalled),
    ("get brings the peer's bytes, and nothing else", get),
    ("put_two joins two sources", put_two),
    ("atomics of all scopes on one word lose none", adds),
    ("signals that add lose none", signal_add),
    ("every atomic of 4 and of 8 bytes does its part", atomics),
    (
        "an atomic that the device lacks is refused",
        atomics_refused,
    ),
    ("each immediate is taken once, with its data", immediates),
    ("wait_any names each of two tickets", wait_any),
    ("held-back WQEs run when a thread flushes or waits", held),
    ("the try form refuses when the ring is full", full_ring),
    (
        "a quarter of the ring is taken, one more is refused",
        quarter,
    ),
    (
        "what cannot be posted is refused and posts nothing",
        refused,
    ),
    ("the ring wraps", wraps),
    ("code for another kind of QP does not open it", other_kind),
    (
        "tickets from before a recovery are stale, new puts work",
        recovery,
    ),
];

/// Runs all checks on `bench`; how many.
pub(crate) fn all(bench: &mut Bench) -> usize {
    for (name, check) in CHECKS {
        bench.clear();
        let what = format!("{}, seed {}: {name}", bench.cell, bench.seed);
        let named = Named(&what);
        check(bench);
        settle(bench);
        drop(named);
    }
    CHECKS.len()
}

/// Prints what was being checked when a check panics.
pub(crate) struct Named<'a>(pub(crate) &'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed: {}", self.0);
        }
    }
}

/// Everything is done, the counters agree with each other and with the HCA's, and its checker has nothing to say.
#[track_caller]
pub(crate) fn settle(bench: &Bench) {
    let solo = bench.cell.solo();
    let quiet = ConformanceParams {
        end: abi::CONFORMANCE_END_QUIET,
        ..bench.params(0, &[])
    };
    expect(bench, solo, &quiet, Status::OK);
    let context = bench.context();
    assert_eq!(bench.findings(), [""; 0]);
    assert_eq!((context.err, context.errors), (Status::OK, 0));
    assert_eq!(
        (context.cons, context.doorbell_index),
        (context.resv, context.resv)
    );
    if bench.cell.sharing != Sharing::Exclusive {
        assert_eq!(context.claim, context.resv);
    }
    let counters = bench.pair.ends[0].hca.counters();
    let (wqes, doorbells) = bench.before;
    assert_eq!(
        counters.wqes - wqes,
        context.resv - bench.base - bench.second_halves,
        "each WQE ran once"
    );
    let taken = counters.doorbells - doorbells;
    assert!(
        taken <= context.doorbells,
        "{taken} of {} doorbells",
        context.doorbells
    );
    assert!(context.doorbells <= context.resv - bench.base);
    if let Some(rung) = bench.mailbox_doorbells() {
        assert!(
            rung <= context.doorbells,
            "{rung} of {} doorbells",
            context.doorbells
        );
    }
}

/// Runs `params` and expects every scope to end with `status`.
#[track_caller]
pub(crate) fn expect(
    bench: &Bench,
    shape: Shape,
    params: &ConformanceParams,
    status: Status,
) -> Vec<ConformanceEnd> {
    let ends = bench.run(shape, params);
    assert!(
        ends.iter().all(|end| end.status == status),
        "expected {status:?}: {ends:?}; the context: {:?}; the HCAs count {:?} and find {:?}",
        bench.context(),
        bench.pair.ends.each_ref().map(|end| end.hca.counters()),
        bench.findings()
    );
    ends
}

/// `count` items of `bytes` bytes, each at its own place of the source and at the same of the target.
pub(crate) fn list(count: u64, bytes: u64) -> Vec<PutItem> {
    let stride = bytes.next_multiple_of(8);
    assert!(count * stride <= HALF);
    let item = |k: u64| PutItem {
        src_offset: k * stride,
        dst_offset: HALF + k * stride,
        bytes,
    };
    (0..count).map(item).collect()
}

/// Side 1's target holds the bytes that `items` put, and zeros elsewhere.
#[track_caller]
pub(crate) fn arrived<'a>(bench: &Bench, items: impl IntoIterator<Item = &'a PutItem>) {
    let source = bench.bytes(0, 0, HALF);
    assert_eq!(source[..8], word(0).to_le_bytes());
    let mut expected = vec![0; source.len()];
    for item in items {
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let bytes = at(item.bytes);
        let (from, to) = (at(item.src_offset), at(item.dst_offset - HALF));
        expected[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
    }
    compare(bench, &expected);
}

#[track_caller]
pub(crate) fn compare(bench: &Bench, expected: &[u8]) {
    let target = bench.bytes(1, HALF, HALF);
    let wrong = target
        .iter()
        .zip(expected)
        .position(|(got, want)| got != want);
    assert_eq!(wrong, None, "first wrong byte of the target");
}

/// Posts NOPs until the next index begins a quarter of the ring.
fn align(bench: &Bench) {
    let context = bench.context();
    let params = ConformanceParams {
        operation: abi::CONFORMANCE_BATCH,
        end: abi::CONFORMANCE_END_WAIT,
        rounds: 1,
        batch: u32::try_from(QUARTER - context.resv % QUARTER).unwrap(),
        ..bench.params(0, &[])
    };
    expect(bench, bench.cell.solo(), &params, Status::OK);
    assert_eq!(bench.context().resv % QUARTER, 0);
}

fn held(bench: &mut Bench) {
    let solo = bench.cell.solo();
    for end in [
        abi::CONFORMANCE_END_FLUSH,
        abi::CONFORMANCE_END_WAIT,
        abi::CONFORMANCE_END_TEST,
        abi::CONFORMANCE_END_QUIET,
    ] {
        align(bench);
        bench.clear();
        let items = list(solo.size.into(), 8);
        let (wqes, doorbells) = (
            bench.pair.ends[0].hca.counters().wqes,
            bench.context().doorbells,
        );
        let post = ConformanceParams {
            operation: abi::CONFORMANCE_PUT,
            options: abi::CONFORMANCE_MORE,
            ..bench.params(0, &items)
        };
        let posted = expect(bench, solo, &post, Status::OK)[0];
        assert_eq!((posted.held, posted.done), (1, 1));
        assert_eq!(posted.ticket, bench.context().resv);
        sleep(Duration::from_millis(3));
        assert_eq!(
            bench.pair.ends[0].hca.counters().wqes,
            wqes,
            "no thread has rung"
        );
        assert_eq!(bench.context().doorbells, doorbells);
        arrived(bench, []);
        let params = ConformanceParams {
            end,
            options: abi::CONFORMANCE_MORE,
            rounds: 1,
            ticket: posted.ticket,
            ..bench.params(0, &[])
        };
        expect(bench, solo, &params, Status::OK);
        arrived(bench, &items);
    }
    // A whole ring of it, from all scopes: a batch that passes a quarter is not held back.
    bench.clear();
    let items = list(1200, 8);
    let params = ConformanceParams {
        operation: abi::CONFORMANCE_PUT,
        end: abi::CONFORMANCE_END_WAIT,
        options: abi::CONFORMANCE_MORE,
        ..bench.params(0, &items)
    };
    expect(bench, bench.cell.shape(), &params, Status::OK);
    arrived(bench, &items);
}

fn full_ring(bench: &mut Bench) {
    let shape = bench.cell.shape();
    let items = list(4000, 8);
    bench.pair.ends[0].hca.pause(Duration::from_secs(600));
    let params = ConformanceParams {
        operation: abi::CONFORMANCE_PUT,
        options: abi::CONFORMANCE_TRY | abi::CONFORMANCE_UNSIGNALLED,
        ..bench.params(0, &items)
    };
    let before = bench.context();
    let ends = expect(bench, shape, &params, Status::WOULD_BLOCK);
    let context = bench.context();
    let posted = context.resv - context.cons;
    assert_eq!((context.cons, context.err), (before.cons, Status::OK));
    assert!(posted <= DEPTH, "{posted} posted");
    // Each scope may have been refused while another's claim was not taken back yet.
    assert!(
        posted + u64::from(shape.all() + shape.size) > DEPTH,
        "{posted} posted: {ends:?}"
    );
    if bench.cell.sharing != Sharing::Exclusive {
        assert_eq!(context.claim, context.resv, "refusals are taken back");
    }
    bench.pair.ends[0].hca.pause(Duration::ZERO);
    settle(bench);
    let (scopes, size) = (shape.scopes() as usize, shape.size as usize);
    let ran = items.iter().enumerate().filter(|(number, _)| {
        let (round, scope) = (number / (scopes * size), number / size % scopes);
        round < ends[scope].done as usize
    });
    arrived(bench, ran.map(|(_, item)| item));
}

fn batch(bench: &Bench, n: u64) -> ConformanceParams {
    ConformanceParams {
        operation: abi::CONFORMANCE_BATCH,
        end: abi::CONFORMANCE_END_WAIT,
        rounds: 1,
        batch: n.try_into().unwrap(),
        ..bench.params(0, &[])
    }
}

fn quarter(bench: &mut Bench) {
    let solo = bench.cell.solo();
    let before = bench.context();
    expect(bench, solo, &batch(bench, QUARTER), Status::OK);
    assert_eq!(bench.context().resv, before.resv + QUARTER);
    expect(bench, solo, &batch(bench, QUARTER + 1), Status::INVALID);
    assert_eq!(bench.context().resv, before.resv + QUARTER);
    // A batch of one less, so that the following ones pass the ring's end in their middle.
    for n in [QUARTER - 1, QUARTER, QUARTER, QUARTER, QUARTER] {
        expect(bench, bench.cell.shape(), &batch(bench, n), Status::OK);
    }
}

fn refused(bench: &mut Bench) {
    let solo = bench.cell.solo();
    let before = bench.context();
    let put = |items: &[PutItem], operation| ConformanceParams {
        operation,
        rounds: 1,
        ..bench.params(0, items)
    };
    let empty = put(&list(1, 0), abi::CONFORMANCE_PUT);
    expect(bench, solo, &empty, Status::INVALID);
    let empty = put(&list(1, 0), abi::CONFORMANCE_PUT_SIGNAL);
    expect(bench, solo, &empty, Status::INVALID);
    let nobody = put(&list(1, 8), abi::CONFORMANCE_NOBODY);
    expect(bench, solo, &nobody, Status::INVALID);
    let huge = PutItem {
        bytes: 2 * HALF,
        ..list(1, 8)[0]
    };
    let outside = put(&[huge], abi::CONFORMANCE_PUT);
    expect(bench, solo, &outside, Status::INVALID);
    expect(bench, solo, &batch(bench, 0), Status::INVALID);
    let after = bench.context();
    assert_eq!((after.resv, after.claim), (before.resv, before.claim));
    assert_eq!(after.doorbells, before.doorbells);
    arrived(bench, []);
}

fn wraps(bench: &mut Bench) {
    let items = list(1500, 8);
    for options in [0, abi::CONFORMANCE_UNSIGNALLED] {
        bench.clear();
        let first = bench.context().resv;
        let params = ConformanceParams {
            operation: abi::CONFORMANCE_PUT,
            end: abi::CONFORMANCE_END_FLUSH,
            options,
            ..bench.params(0, &items)
        };
        expect(bench, bench.cell.shape(), &params, Status::OK);
        assert!(bench.context().resv - first >= 5 * DEPTH);
        arrived(bench, &items);
    }
}

fn other_kind(bench: &mut Bench) {
    let mut params = batch(bench, 1);
    // Code for a wide CQ may look at the mode bits. So for a wide CQ the code that expects other bits must refuse.
    params.mode ^= match bench.cell.cq {
        CqKind::Collapsed => MODE_HOST_QUEUES,
        CqKind::Wide => MODE_WIDE_CQ,
    };
    let before = bench.context().resv;
    expect(bench, bench.cell.solo(), &params, Status::INVALID);
    assert_eq!(bench.context().resv, before);
}

fn recovery(bench: &mut Bench) {
    let old = bench.context().resv;
    bench.recover();
    let solo = bench.cell.solo();
    for ticket in [1, old, bench.base] {
        for end in [abi::CONFORMANCE_END_WAIT, abi::CONFORMANCE_END_TEST_ONCE] {
            let params = ConformanceParams {
                end,
                rounds: 1,
                ticket,
                ..bench.params(0, &[])
            };
            expect(bench, solo, &params, Status::STALE_LIFE);
        }
    }
    wraps(bench);
}

/// Posts NOPs until the index is 4 short of `base` + 65,536.
pub(crate) fn run_in(bench: &Bench) {
    let solo = bench.cell.solo();
    for (rounds, n) in [(1023, QUARTER), (1, QUARTER - 4)] {
        let params = ConformanceParams {
            rounds,
            ..batch(bench, n)
        };
        expect(bench, solo, &params, Status::OK);
    }
    assert_eq!(bench.context().resv & 0xffff, 0xfffc);
}
