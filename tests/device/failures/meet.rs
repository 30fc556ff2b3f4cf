//! One operation meets one failure.

use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use test_support::abi::conformance as abi;
use test_support::abi::conformance::{ConformanceEnd, ConformanceParams};
use test_support::abi::kernels::PutItem;
use test_support::limits::{HANG, until};
use warpverbs::abi::Status;
use warpverbs::verbs::CqKind;

use crate::operation::{Operation, Outcome, items};
use test_support::bench::{Bench, HALF};
use test_support::table::Shape;

/// Longest pause of an HCA; each ends by a call.
const LONG: Duration = Duration::from_secs(600);
/// Deadline of calls that must run into it.
const SHORT: Duration = Duration::from_millis(500);
/// Deadline of calls that end for another reason.
const PATIENT: Duration = Duration::from_secs(60);
/// WQEBBs of the ring.
const DEPTH: u64 = 256;
/// Least number of WQEs in flight when something fails.
const IN_FLIGHT: u64 = 64;

/// Syndromes of completions. PRM "Syndrome" of an error CQE.
const FLUSHED: u32 = 0x05;
const REMOTE_ACCESS: u32 = 0x13;
const RETRY_EXCEEDED: u32 = 0x15;

/// How an operation ended.
#[derive(Debug)]
pub(crate) struct Row {
    operation: &'static str,
    failure: &'static str,
    status: Status,
    syndrome: u32,
    took: Duration,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = match (self.status, self.syndrome) {
            (Status::FLUSHED, _) => "flushed, cause lost".to_owned(),
            (Status::CQE_ERROR, syndrome) => format!("cqe_error {syndrome:#04x}"),
            (status, _) => status.to_string(),
        };
        let ms = self.took.as_micros() as f64 / 1000.0;
        write!(
            f,
            "{:<12} {:<12} {status:<20} {ms:8.1}",
            self.operation, self.failure
        )
    }
}

fn row(bench: &Bench, operation: &Operation, failure: &'static str, outcome: &Outcome) -> Row {
    Row {
        operation: operation.name,
        failure,
        status: outcome.status,
        syndrome: bench.context().syndrome & 0xff,
        took: outcome.took,
    }
}

/// Posts `operation` from `shape` without waiting.
fn post(
    bench: &Bench,
    shape: Shape,
    operation: u32,
    options: u32,
    list: &[PutItem],
) -> Vec<ConformanceEnd> {
    let params = ConformanceParams {
        operation,
        options,
        rounds: if list.is_empty() { 24 } else { u32::MAX },
        ..bench.params(0, list)
    };
    bench.run(shape, &params)
}

/// Puts what the operation finds in flight onto a QP whose HCA sleeps: at least 64 WQEs.
fn fill(bench: &Bench, operation: &Operation) -> u64 {
    bench.pair.ends[0].hca.pause(LONG);
    let shape = bench.cell.shape();
    // 96 of a warp's 128 lanes: the ring holds them, signals included.
    let list = match operation.before {
        abi::CONFORMANCE_SIGNAL | abi::CONFORMANCE_SIGNAL_ADD => Vec::new(),
        _ => items(96),
    };
    let ends = post(bench, shape, operation.before, 0, &list);
    assert!(ends.iter().all(|end| end.posted == Status::OK), "{ends:?}");
    let context = bench.context();
    assert!(
        context.resv - context.cons >= IN_FLIGHT,
        "{} in flight",
        context.resv - context.cons
    );
    context.resv
}

/// The failure of the QP that a call must find: of a collapsed CQ the flush, if it is sure that it was written before.
fn check_failure(bench: &Bench, outcome: &Outcome, cause: u32, flushed_before: bool) {
    let syndrome = bench.context().syndrome & 0xff;
    let seen = (outcome.status, syndrome);
    let lost = (Status::FLUSHED, FLUSHED);
    let kept = (Status::CQE_ERROR, cause);
    let good = match (bench.cell.cq, flushed_before) {
        (CqKind::Wide, _) => seen == kept,
        (CqKind::Collapsed, true) => seen == lost,
        (CqKind::Collapsed, false) => seen == lost || seen == kept,
    };
    assert!(good, "{outcome:?}, syndrome {syndrome:#x}");
    let context = bench.context();
    assert_eq!(
        (context.err, context.errors),
        (outcome.status, 1),
        "latched once"
    );
}

/// The failure stays: every further call ends with it, not by its deadline, and posts nothing.
fn check_sticky(bench: &Bench, operation: &Operation, ticket: u64, status: Status) {
    let before = bench.context();
    let again = operation.call(bench, ticket, PATIENT, 0);
    assert_eq!(again.status, status, "{}", operation.name);
    assert_eq!(bench.context().resv, before.resv, "{}", operation.name);
    if operation.posts && operation.name != "flush" && operation.name != "quiet" {
        assert_eq!(again.posted, status, "{}", operation.name);
    }
}

/// Nothing has arrived.
fn check_nothing(bench: &Bench) {
    assert!(
        bench
            .bytes(1, HALF, HALF + 4096)
            .iter()
            .all(|&byte| byte == 0)
    );
}

/// Side 1's target holds `list` and nothing else.
fn check_arrived(bench: &Bench, list: &[PutItem]) {
    let source = bench.bytes(0, 0, HALF);
    let mut expected = vec![0; source.len()];
    for item in list {
        let from = usize::try_from(item.src_offset).unwrap();
        let to = usize::try_from(item.dst_offset - HALF).unwrap();
        let bytes = usize::try_from(item.bytes).unwrap();
        expected[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
    }
    assert!(bench.bytes(1, HALF, HALF) == expected);
}

/// Both ends through Err and Reset; old tickets are stale; 64 words arrive.
fn check_recovery(bench: &mut Bench, old: u64) {
    bench.recover();
    bench.clear();
    let wait = |ticket| {
        let params = ConformanceParams {
            end: abi::CONFORMANCE_END_WAIT,
            rounds: 1,
            ticket,
            ..bench.params(0, &[])
        };
        bench.run(bench.cell.solo(), &params)[0].status
    };
    assert_eq!([wait(old), wait(bench.base)], [Status::STALE_LIFE; 2]);
    let words = |k: u64| PutItem {
        src_offset: 8 * k,
        dst_offset: HALF + 8 * k,
        bytes: 8,
    };
    let list: Vec<_> = (0..64).map(words).collect();
    let params = ConformanceParams {
        operation: abi::CONFORMANCE_PUT,
        end: abi::CONFORMANCE_END_WAIT,
        ..bench.params(0, &list)
    };
    let ends = bench.run(bench.cell.solo(), &params);
    assert_eq!(ends[0].status, Status::OK, "{ends:?}");
    check_arrived(bench, &list);
    bench.clear();
}

/// The peer's key is wrong, and the HCA has flushed all that was after the first WQE before any thread looks.
pub(crate) fn wrong_key(bench: &mut Bench, operation: &Operation) -> Row {
    bench.point(0x0100_0000);
    let errors = bench.pair.ends[0].hca.counters().error_cqes;
    let ticket = fill(bench, operation);
    bench.pair.ends[0].hca.pause(Duration::ZERO);
    until("the HCA flushes", || {
        bench.pair.ends[0].hca.counters().error_cqes - errors >= IN_FLIGHT
    });
    if operation.only_word {
        // It looks at the error word and at no completion: another thread has seen the failure.
        let params = ConformanceParams {
            end: abi::CONFORMANCE_END_WAIT,
            rounds: 1,
            ticket,
            ..bench.params(0, &[])
        };
        let seen = bench.run(bench.cell.solo(), &params)[0].status;
        assert!(
            matches!(seen, Status::FLUSHED | Status::CQE_ERROR),
            "{seen:?}"
        );
    }
    let outcome = operation.call(bench, ticket, PATIENT, 0);
    check_failure(bench, &outcome, REMOTE_ACCESS, true);
    check_sticky(bench, operation, ticket, outcome.status);
    check_nothing(bench);
    let row = row(bench, operation, "error CQE", &outcome);
    bench.point(0);
    check_recovery(bench, ticket);
    row
}

/// The peer says nothing more: the call waits while the HCA tries again, and ends when it gives up.
pub(crate) fn dead_peer(bench: &mut Bench, operation: &Operation) -> Row {
    bench.pair.ends[1].hca.set_port(false);
    let ticket = fill(bench, operation);
    bench.pair.ends[0].hca.pause(Duration::ZERO);
    if operation.only_word {
        let params = ConformanceParams {
            end: abi::CONFORMANCE_END_WAIT,
            rounds: 1,
            ticket,
            ..bench.params(0, &[])
        };
        assert_ne!(bench.run(bench.cell.solo(), &params)[0].status, Status::OK);
    }
    let outcome = operation.call(bench, ticket, PATIENT, 0);
    check_failure(bench, &outcome, RETRY_EXCEEDED, false);
    check_sticky(bench, operation, ticket, outcome.status);
    check_nothing(bench);
    let row = row(bench, operation, "dead peer", &outcome);
    bench.pair.ends[1].hca.set_port(true);
    check_recovery(bench, ticket);
    row
}

/// The HCA sleeps and the ring is full: the try form, a deadline, an abort. The QP stays healthy through all of them.
pub(crate) fn full_ring(bench: &mut Bench, operation: &Operation) -> Vec<Row> {
    let mut rows = Vec::new();
    let findings = bench.findings();
    bench.pair.ends[0].hca.pause(LONG);
    let list = items(4000);
    let options = abi::CONFORMANCE_TRY;
    let ends = post(
        bench,
        bench.cell.solo(),
        abi::CONFORMANCE_PUT,
        options,
        &list,
    );
    assert_eq!(ends[0].posted, Status::WOULD_BLOCK, "{ends:?}");
    let put = bench.context().resv - bench.context().cons;
    let size = u64::from(bench.cell.solo().size);
    assert_eq!(put, DEPTH / size * size, "as many whole batches as fit");
    if put < DEPTH {
        let rest = ConformanceParams {
            operation: abi::CONFORMANCE_BATCH,
            batch: u32::try_from(DEPTH - put).unwrap(),
            rounds: 1,
            ..bench.params(0, &[])
        };
        let ends = bench.run(bench.cell.solo(), &rest);
        assert_eq!(ends[0].posted, Status::OK, "{ends:?}");
    }
    let full = bench.context();
    assert_eq!(full.resv - full.cons, DEPTH, "full to the last WQEBB");
    let check_healthy = |bench: &Bench| {
        let now = bench.context();
        let state = (now.resv, now.cons, now.claim, now.err, now.errors);
        assert_eq!(
            state,
            (full.resv, full.cons, full.claim, Status::OK, 0),
            "{}",
            operation.name
        );
    };
    if operation.has_try {
        let outcome = operation.call(bench, full.resv, PATIENT, options);
        assert_eq!(outcome.status, Status::WOULD_BLOCK, "{}", operation.name);
        check_healthy(bench);
        rows.push(row(bench, operation, "full, try", &outcome));
    }
    rows.push(deadline(bench, operation, full.resv));
    check_healthy(bench);
    rows.push(abort(bench, operation, full.resv));
    check_healthy(bench);

    bench.pair.ends[0].hca.pause(Duration::ZERO);
    let params = ConformanceParams {
        end: abi::CONFORMANCE_END_QUIET,
        rounds: 1,
        ..bench.params(0, &[])
    };
    let ends = bench.run(bench.cell.solo(), &params);
    assert_eq!(ends[0].status, Status::OK, "{ends:?}");
    check_arrived(bench, &list[..usize::try_from(put).unwrap()]);
    assert_eq!(bench.findings(), findings);
    check_recovery(bench, full.resv);
    rows
}

fn deadline(bench: &Bench, operation: &Operation, ticket: u64) -> Row {
    // By the host's clock, which runs before the deadline is set: the device's begins a moment later.
    let begin = Instant::now();
    let outcome = operation.call(bench, ticket, SHORT, 0);
    let took = begin.elapsed();
    assert_eq!(outcome.status, Status::TIMEOUT, "{}", operation.name);
    assert!(took >= SHORT, "{}: {took:?}", operation.name);
    row(bench, operation, "deadline", &outcome)
}

fn abort(bench: &Bench, operation: &Operation, ticket: u64) -> Row {
    bench.forget();
    let event = operation.start(bench, ticket, HANG, 0);
    sleep(Duration::from_millis(20));
    assert!(!event.is_done(), "it waits");
    let begin = Instant::now();
    bench.abort(true);
    let mut outcome = Operation::finish(bench, &event);
    outcome.took = begin.elapsed();
    assert_eq!(outcome.status, Status::ABORTED, "{}", operation.name);
    bench.abort(false);
    row(bench, operation, "abort", &outcome)
}
