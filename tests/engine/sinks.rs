//! The engine over lanes without an HCA: refused chains, and heaps that do not grow.

// UNSAFETY: counts what the allocator of this program is asked for.
#![expect(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use test_support::limits::HANG;
use warpverbs::internal::engine::{
    EngineError, Kind, Operation, OperationStatus, Options, Outcome, SinkFault, Status,
};

use crate::rig::{config, over_sinks};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes that are allocated, and the most that were.
static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        let bytes = layout.size() as u64;
        let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

fn write(bytes: u64, count: u64) -> Vec<Operation> {
    let of = |nth| Operation {
        kind: Kind::Write,
        local: nth * bytes,
        remote: nth * bytes,
        bytes,
    };
    (0..count).map(of).collect()
}

#[test]
fn a_chain_refused_at_any_place_finishes_its_taken_part_and_fails_others() {
    for refuses in 0..=20u64 {
        let one = config("a").with_qps(1).with_gather(1);
        let (engine, peer) = over_sinks(one, 1 << 30, Some(SinkFault::Refuses(refuses)));
        // 20 slices on one lane, in chains of up to 16.
        let operations = write(1 << 16, 20);
        let id = peer.submit(&operations, &Options::default()).unwrap();
        let status = engine.wait(id, HANG).unwrap();
        let report = engine.report(id).unwrap();
        let taken = refuses.min(20);
        let outcome = match taken {
            20 => Outcome::Done,
            _ => Outcome::Failed,
        };
        assert_eq!(status, Status::Concluded(outcome), "{refuses}: {report:?}");
        assert_eq!(report.bytes_landed, taken << 16, "{refuses}");
        for (nth, operation) in (0..).zip(&report.operations) {
            assert_eq!(
                *operation == OperationStatus::Done,
                nth < taken,
                "{refuses}"
            );
        }
        if taken < 20 {
            let first = report.first.expect("a cause");
            assert_eq!((u64::from(first.operation), first.cause), (taken, None));
            assert_eq!(report.operations[taken as usize], OperationStatus::Failed);
        }
    }
}

#[test]
fn a_worker_that_panics_at_any_wqe_leaves_no_thread_waiting() {
    for panics in 0..=20u64 {
        let two = config("a").with_workers(2).with_gather(1);
        let (engine, peer) = over_sinks(two, 1 << 30, Some(SinkFault::Panics(panics)));
        // Every round gives worker 0 a chance; some round reaches the WQE.
        let operations = write(1 << 16, 20);
        let mut lost = 0;
        for round in 0..1_000 {
            let id = match peer.submit(&operations, &Options::default()) {
                Ok(id) => id,
                Err(EngineError::WorkerPanicked(panicked)) => {
                    assert_eq!(panicked.thread, "wv-engine-0");
                    break;
                }
                Err(error) => panic!("{error}"),
            };
            let status = engine.wait(id, HANG).unwrap();
            let report = engine.report(id).unwrap();
            match status {
                Status::Concluded(Outcome::Done) => assert_eq!(report.bytes_landed, 20 << 16),
                Status::Concluded(Outcome::Failed) => {
                    let panicked = report.panicked.expect("the worker that held it");
                    let planted = format!("planted at WQE {panics}");
                    assert_eq!(panicked.message, planted, "round {round}");
                    assert!(report.bytes_landed < 20 << 16);
                    lost += 1;
                }
                other => panic!("{panics}: {other:?}"),
            }
            engine.release(id).unwrap();
        }
        assert!(lost >= 1, "WQE {panics} was reached");
    }
}

#[test]
fn a_transfer_of_a_tebibyte_is_moved_whole_without_memory_for_its_slices() {
    let large = config("a")
        .with_slice(1 << 20)
        .with_log_depth(12)
        .with_log_entries(14);
    let (engine, peer) = over_sinks(large, 1 << 41, None);
    let whole = Operation {
        kind: Kind::Write,
        local: 3,
        remote: 5,
        bytes: (1 << 40) + 17,
    };
    let id = peer.submit(&[whole], &Options::default()).unwrap();
    assert_eq!(engine.wait(id, HANG), Ok(Status::Concluded(Outcome::Done)));
    let report = engine.report(id).unwrap();
    assert_eq!(report.bytes_landed, (1 << 40) + 17);
}

/// Returns what `test` prints, alone in its process, so that no other test allocates meanwhile.
fn alone(test: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn after_its_first_rounds_no_transfer_allocates() {
    let text = alone("sinks::counted");
    assert!(text.contains("allocations: 0"), "{text}");
}

#[test]
fn a_tebibyte_grows_the_heap_by_at_most_16_mib() {
    let text = alone("sinks::grown");
    let lines = text.lines().filter(|line| line.starts_with("grown: "));
    lines.clone().for_each(|line| println!("{line}"));
    assert_eq!(lines.count(), 3, "{text}");
}

#[test]
#[ignore = "is started by a_tebibyte_grows_the_heap_by_at_most_16_mib, in a process of its own"]
fn grown() {
    const TEBIBYTE: u64 = 1 << 40;
    let large = config("a").with_log_depth(12).with_log_entries(14);
    let (engine, peer) = over_sinks(large, TEBIBYTE, None);
    // One range, as many as a transfer may have, and 64 transfers at a time.
    for (operations, transfers) in [(1, 1), (65_536, 1), (16, 64)] {
        let all = write(TEBIBYTE / operations / transfers, operations);
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let submit = |_| peer.submit(&all, &Options::default()).unwrap();
        let ids: Vec<_> = (0..transfers).map(submit).collect();
        let mut landed = 0;
        for id in ids {
            let status = engine.wait(id, HANG).unwrap();
            assert_eq!(status, Status::Concluded(Outcome::Done));
            landed += engine.report(id).unwrap().bytes_landed;
            engine.release(id).unwrap();
        }
        assert_eq!(landed, TEBIBYTE);
        let grown = PEAK.load(Ordering::Relaxed) - before;
        println!("grown: {grown} bytes, by {transfers} transfers of {operations} operations");
        assert!(grown <= 16 << 20, "{grown}");
    }
}

#[test]
#[ignore = "is started by after_its_first_rounds_no_transfer_allocates, in a process of its own"]
fn counted() {
    let (engine, peer) = over_sinks(config("a").with_workers(2), 1 << 30, None);
    let (large, small) = (write(100_000, 40), write(8, 300));
    let prepared = peer.prepare(&large).unwrap();
    let round = || {
        let ids = [
            peer.submit(&large, &Options::default()).unwrap(),
            peer.submit(&small, &Options::default()).unwrap(),
            peer.post(&prepared, &Options::default()).unwrap(),
        ];
        for id in ids {
            assert_eq!(engine.wait(id, HANG), Ok(Status::Concluded(Outcome::Done)));
        }
        for id in ids {
            engine.release(id).unwrap();
        }
    };
    // Slots are used in turn, and queues swap their memory.
    for _ in 0..500 {
        round();
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..2000 {
        round();
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    println!("allocations: {allocations}");
    assert_eq!(allocations, 0);
}
