//! What a CQE says: exactly that much is done, whatever the distance, the wrap and the moment of the look.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use test_support::abi::kernels::WaitParams;
use test_support::limits::HANG;
use warpverbs::abi::{QpContext, Status};

use test_support::device::launch;
use test_support::ring::Ring;

const DEPTH: u64 = 256;
/// Starts from which the 16, 32 and 47 low bits of an index wrap inside a ring.
const STARTS: [u64; 6] = [
    0,
    65_536 - 3,
    65_536 - DEPTH,
    65_536 + 100,
    (1 << 32) - 3,
    (1 << 47) - 3,
];
const OPCODE_INVALID: u8 = 15;

/// The last dword of a CQE.
fn last_dword(counter: u64, opcode: u8) -> u32 {
    let counter = (counter as u16).to_be_bytes();
    u32::from_le_bytes([counter[0], counter[1], 0, opcode << 4])
}

/// A ring without a NIC of which everything below `cons` is done.
fn ring_at(cons: u64) -> Ring {
    let ring = Ring::shared(DEPTH as u32, 1, 0);
    set_cons(&ring, cons);
    ring
}

fn set_cons(ring: &Ring, cons: u64) {
    ring.patch(offset_of!(QpContext, cons), &cons.to_ne_bytes());
}

/// Writes the CQE of the WQE with index `index`.
fn complete(ring: &Ring, index: u64) {
    let at = ring.read_context().cqe.addr() + 60;
    let bytes = last_dword(index, 0).to_ne_bytes();
    ring.gpu.write(at, &bytes).unwrap();
}

/// Returns how `threads` threads end that ask for the tickets from `ticket` on.
fn ask(ring: &Ring, kernel: &str, ticket: u64, threads: u32, deadline: Duration) -> Vec<Status> {
    let params = WaitParams {
        qp: ring.qp(),
        ticket,
        deadline_ns: deadline.as_nanos() as u64,
        status: ring.status(),
        ..WaitParams::default()
    };
    let ends = ring.run(&launch(kernel, 1, threads, ticket), &params);
    ends.into_iter().map(|end| end.0).collect()
}

/// Looks once at each ticket of the ring and the one after it: the first `ahead` are done.
#[track_caller]
fn check_looks(ring: &Ring, cons: u64, ahead: u64) {
    let threads = DEPTH as u32 + 1;
    let seen = ask(ring, "wv_test_defect_tests", cons + 1, threads, HANG);
    let mut expected = vec![Status::OK; ahead as usize];
    expected.resize(threads as usize, Status::WOULD_BLOCK);
    assert_eq!(seen, expected, "{ahead} behind {cons:#x}");
    assert_eq!(ring.read_context().cons, cons + ahead, "{cons:#x}");
}

const SHORT: Duration = Duration::from_millis(1);

/// gpunetio, cq.cuh:264-312: the wait of a collapsed CQ takes a 0-based index for a count and returns one WQE too early.
#[test]
fn a_look_finds_done_exactly_what_is_done_at_every_distance() {
    for start in STARTS {
        let every = start == 65_536 - DEPTH || std::env::var_os("WV_TEST_FULL").is_some();
        let ring = ring_at(start);
        for ahead in 0..=DEPTH {
            if !every && !matches!(ahead, 0..=4 | 127..=129 | 253..=256) {
                continue;
            }
            set_cons(&ring, start);
            complete(&ring, (start + ahead).wrapping_sub(1));
            check_looks(&ring, start, ahead);
        }
        // More than a ring ahead is no completion: it is an old one.
        for beyond in [DEPTH + 1, 40_000, 65_535] {
            set_cons(&ring, start);
            complete(&ring, start + beyond - 1);
            check_looks(&ring, start, 0);
        }
    }
}

/// That place, by waits: none returns early, none that may return stays.
#[test]
fn a_wait_returns_when_exactly_its_wqe_has_completed() {
    for start in STARTS {
        let ring = ring_at(start);
        for ahead in [1, 2, 3, 128, DEPTH] {
            set_cons(&ring, start);
            complete(&ring, start + ahead - 1);
            let threads = ahead as u32;
            let done = ask(&ring, "wv_test_defect_waits", start + 1, threads, HANG);
            assert_eq!(done, vec![Status::OK; ahead as usize], "{start:#x}");
            let next = start + ahead + 1;
            let open = ask(&ring, "wv_test_defect_waits", next, 64, SHORT);
            assert_eq!(open, [Status::TIMEOUT; 64], "{ahead} behind {start:#x}");
        }
    }
}

/// MORI, shmem_ibgda_kernels.hpp (`cons >= exitTarget` of 32 bits), Mooncake (16 bits): an index compared by its low bits.
#[test]
fn tickets_whole_laps_of_16_or_32_bits_apart_differ() {
    let laps = [1 << 16, 1 << 31, 1 << 32, 1 << 47];
    for lap in laps {
        let ring = ring_at(5);
        complete(&ring, 4);
        let far = ask(&ring, "wv_test_defect_tests", lap + 1, 6, HANG);
        assert_eq!(far, [Status::WOULD_BLOCK; 6], "{lap:#x} ahead");
        set_cons(&ring, lap + 5);
        complete(&ring, lap + 4);
        let near = ask(&ring, "wv_test_defect_tests", lap + 1, 6, HANG);
        assert_eq!(near[..5], [Status::OK; 5], "{lap:#x}");
        assert_eq!(near[5], Status::WOULD_BLOCK, "{lap:#x}");
        let old = ask(&ring, "wv_test_defect_tests", 1, 8, HANG);
        assert_eq!(old, [Status::OK; 8], "{lap:#x} behind");
    }
}

/// Runs `kernel` while a thread rewrites the CQE, dword by dword and back. One form has no news, the other was never written by an
/// HCA and names ticket 5.
fn ask_while_rewritten(kernel: &str, threads: u32, deadline: Duration) -> (Vec<Status>, QpContext) {
    let ring = ring_at(0);
    let at = ring.read_context().cqe.addr() + 60;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let writer = std::thread::spawn(move || {
        // SAFETY: an aligned word of simt's device memory, which is memory of this process and outlives the thread: it is
        // joined below. Kernels read it by atomic loads.
        let word = unsafe { AtomicU32::from_ptr(at as *mut u32) };
        while !stopped.load(Ordering::Relaxed) {
            word.store(last_dword(0xffff, 0), Ordering::Relaxed);
            word.store(last_dword(4, OPCODE_INVALID), Ordering::Relaxed);
        }
    });
    let seen = ask(&ring, kernel, 1, threads, deadline);
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    (seen, ring.read_context())
}

/// Mooncake, mlx5gda poll (:99-116): counter and opcode are read by two loads and may come from two CQEs.
#[test]
fn a_cqe_that_is_rewritten_all_the_time_is_never_torn() {
    let some_time = Duration::from_millis(400);
    let (seen, context) = ask_while_rewritten("wv_test_defect_waits", 32, some_time);
    assert_eq!(seen, [Status::TIMEOUT; 32]);
    assert_eq!((context.cons, context.err), (0, Status::OK));
    // A reader with the defect falls for it.
    let (seen, _) = ask_while_rewritten("wv_test_defect_torn_reader", 1, HANG);
    assert_eq!(seen, [Status::OK]);
}
