//! Offsets and lengths that callers invent, and peers that are gone.

use bytemuck::{bytes_of, cast_slice};
use test_support::abi::kernels::{PutItem, PutListParams};
use warpverbs::abi::{PeerEntry, Status};

use crate::healthy;
use test_support::device::launch;
use test_support::ring::Ring;

const WORDS: u64 = 64;
const BYTES: u64 = 16 * WORDS;

/// Returns how the puts of `items` end, each by a thread of its own.
fn put_each(ring: &Ring, items: &[PutItem]) -> Vec<Status> {
    let list = ring.gpu.alloc(size_of_val(items), 128).unwrap();
    ring.gpu.write(list.addr(), cast_slice(items)).unwrap();
    let params = PutListParams {
        qp: ring.qp(),
        peer: ring.peer(),
        window: ring.window(),
        items: list.addr().into(),
        count: items.len() as u64,
        deadline_ns: 60_000_000_000,
        status: ring.status(),
    };
    let kernel = launch("wv_test_defect_ranges", 1, items.len() as u32, 0);
    let ends = ring.run(&kernel, &params);
    ends.into_iter().map(|end| end.0).collect()
}

/// DeepEP, :205-215: a table of keys is read out of bounds; all of them: no check of offset and length.
#[test]
fn ranges_outside_the_window_are_refused_even_where_their_sum_wraps() {
    let outside = [
        (0, BYTES + 1),
        (1, BYTES),
        (BYTES, 1),
        (BYTES - 1, 2),
        (BYTES + 1, 1),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (u64::MAX - 7, 8),
        (u64::MAX - 7, 9),
        (u64::MAX - BYTES + 1, BYTES),
        (1, u64::MAX),
        (8, u64::MAX - 7),
        (BYTES, u64::MAX - BYTES + 9),
        (1 << 63, 1 << 63),
        (1 << 32, 8),
        (0, 1 << 32),
        (8, (1 << 32) + 8),
    ];
    let ring = Ring::shared(256, WORDS as usize, 0);
    let remote = outside.map(|(dst_offset, bytes)| PutItem {
        src_offset: 0,
        dst_offset,
        bytes,
    });
    let local = outside.map(|(src_offset, bytes)| PutItem {
        src_offset,
        dst_offset: 0,
        bytes,
    });
    for items in [remote, local] {
        let ends = put_each(&ring, &items);
        assert_eq!(ends, [Status::INVALID; 17], "{items:?}");
        assert_eq!(ring.read_context().claim, 0);
    }
    // The last byte and the whole window are inside; nothing at all is no put.
    let inside = [(BYTES - 1, 1), (BYTES - 8, 8), (0, BYTES)].map(|(dst_offset, bytes)| PutItem {
        src_offset: dst_offset,
        dst_offset,
        bytes,
    });
    assert_eq!(put_each(&ring, &inside), [Status::OK; 3]);
    assert_eq!(ring.read_context().resv, 3);
    let empty = PutItem {
        bytes: 0,
        ..inside[0]
    };
    assert_eq!(put_each(&ring, &[empty]), [Status::INVALID]);
}

/// NCCL, gin_gdaki.h, and DeepEP: keys of a peer that left are used as long as a kernel runs.
#[test]
fn a_put_to_a_peer_whose_entry_is_zero_is_refused() {
    let ring = Ring::shared(256, 64, 0);
    let nic = ring.nic(healthy(0));
    let put = |kernel: &str| ring.run(&launch(kernel, 1, 32, 0), &ring.params(2, 0));
    let kernels = [
        "wv_test_put_words",
        "wv_test_put_words_warp",
        "wv_test_put_shared_record_block",
        "wv_test_defect_warp_signal",
    ];
    assert_eq!(put(kernels[0]), [(Status::OK, 2); 32]);
    let posted = ring.read_context().resv;
    let gone = PeerEntry {
        base: 0,
        rkey_be: 0,
        rail_life: 0,
    };
    ring.gpu.write(ring.peer().addr(), bytes_of(&gone)).unwrap();
    for kernel in kernels {
        assert_eq!(put(kernel), [(Status::INVALID, 0); 32], "{kernel}");
    }
    assert_eq!(ring.read_context().resv, posted);
    let report = nic.stop();
    assert_eq!((report.findings.len(), report.wqes), (0, posted));
}
