//! Two targets for a fuzzer's bytes: operations on the allocator of control memory, and records of another rank. `./x fuzz memheap` and
//! `./x fuzz hello` run them under a fuzzer. `tests/verbs/memheap.rs` and `tests/team/records.rs` run them with their corpora.

use std::collections::BTreeMap;

use warpverbs::internal::{MemHeap, RecordReader};
use warpverbs::team::TeamError;

/// The number of bytes of the heap, so that two bytes can name any offset.
const SIZE: u64 = 1 << 16;

/// Runs operations on a heap. Four bytes are an operation: its kind, a number of two bytes, and log2 of an alignment. It checks that blocks
/// never overlap (H1), that free and live blocks together are the whole heap, and that a heap with all blocks freed is one piece.
pub fn memheap(data: &[u8]) {
    let mut heap = MemHeap::new(SIZE);
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let (operations, _) = data.as_chunks();
    for [what, low, high, log_align] in operations {
        let number = u64::from(u16::from_le_bytes([*low, *high]));
        match what % 3 {
            0 => alloc(&mut heap, &mut live, number, *log_align),
            1 => {
                let nth = usize::try_from(number).expect("16 bits") % live.len().max(1);
                if let Some(offset) = live.keys().nth(nth).copied() {
                    free(&mut heap, &mut live, offset);
                }
            }
            _ => free(&mut heap, &mut live, number),
        }
        let stats = heap.stats();
        assert_eq!(stats.live_bytes + stats.free_bytes, SIZE);
        assert_eq!(stats.live_bytes, live.values().sum::<u64>());
    }
    let blocks = heap.blocks().map(|block| (block.offset, block.bytes));
    assert!(blocks.eq(live.iter().map(|(offset, bytes)| (*offset, *bytes))));
    for offset in live.keys() {
        heap.free(*offset).expect("it lives");
    }
    assert!(heap.is_empty() && heap.stats().largest_free == SIZE);
}

/// Reads a record of rank 1. The first byte says if the other bytes are a hello or an offer. It checks that the record is good, or that the
/// error which refuses it names rank 1.
pub fn hello(data: &[u8]) {
    let Some((kind, record)) = data.split_first() else {
        return;
    };
    let reader = RecordReader::new();
    let read = match kind % 2 {
        0 => reader.hello(record),
        _ => reader.offer(record),
    };
    let Err(error) = read else { return };
    let is_typed = matches!(
        error,
        TeamError::Record { rank: 1, .. } | TeamError::Mismatch { .. }
    );
    assert!(is_typed && error.to_string().contains("rank 1"), "{error}");
}

fn alloc(heap: &mut MemHeap, live: &mut BTreeMap<u64, u64>, bytes: u64, log_align: u8) {
    // If log2 is 64 or more, the alignment is 0, which is none.
    let align = 1u64.checked_shl(log_align.into()).unwrap_or(0);
    let Ok(block) = heap.alloc(bytes, align) else {
        return;
    };
    assert_eq!((block.bytes, block.offset % align), (bytes, 0));
    assert!(block.end() <= SIZE, "{block:?}");
    let before = live.range(..block.end()).next_back();
    let is_apart = before.is_none_or(|(start, bytes)| start + bytes <= block.offset);
    assert!(is_apart, "{block:?} lies over {before:?}");
    live.insert(block.offset, bytes);
}

fn free(heap: &mut MemHeap, live: &mut BTreeMap<u64, u64>, offset: u64) {
    let lives = live.remove(&offset).is_some();
    assert_eq!(heap.free(offset).is_ok(), lives, "offset {offset}");
}
