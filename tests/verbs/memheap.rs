//! The control-buffer allocator against a slow oracle (H1, H2), and against each defect of the known allocator.

use std::collections::BTreeMap;

use proptest::prelude::*;
use test_support::counts::seeds;
use test_support::fuzzing::memheap;
use warpverbs::internal::{Block, MemHeap};
use warpverbs::verbs::HeapError;

/// The heap as one owner per byte: nothing to get wrong.
struct Oracle {
    owner: Vec<Option<u64>>,
    live: Vec<Block>,
}

impl Oracle {
    fn new(size: usize) -> Self {
        Self {
            owner: vec![None; size],
            live: Vec::new(),
        }
    }

    /// Maximal runs of free bytes as (start, length).
    fn free_runs(&self) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (at, owner) in self.owner.iter().enumerate() {
            match (owner, runs.last_mut()) {
                (Some(_), _) => {}
                (None, Some((start, length))) if *start + *length == at => *length += 1,
                (None, _) => runs.push((at, 1)),
            }
        }
        runs
    }

    /// Best fit by looking at every byte: the shortest run that holds the aligned block, the lowest of equals.
    fn alloc(&mut self, bytes: usize, align: usize) -> Option<Block> {
        let (_, offset) = self
            .free_runs()
            .into_iter()
            .filter_map(|(start, length)| {
                let offset = (start..start + length).find(|at| at % align == 0)?;
                (offset + bytes <= start + length).then_some((length, offset))
            })
            .min()?;
        let block = Block {
            offset: offset as u64,
            bytes: bytes as u64,
        };
        for byte in &mut self.owner[offset..offset + bytes] {
            assert!(byte.is_none());
            *byte = Some(block.offset);
        }
        self.live.push(block);
        Some(block)
    }

    fn free(&mut self, offset: u64) -> bool {
        let Some(at) = self.live.iter().position(|block| block.offset == offset) else {
            return false;
        };
        self.live.swap_remove(at);
        for byte in self
            .owner
            .iter_mut()
            .filter(|owner| **owner == Some(offset))
        {
            *byte = None;
        }
        true
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc {
        bytes: usize,
        log_align: u32,
    },
    /// The n-th live block, modulo their number.
    Free {
        nth: usize,
    },
    /// Any offset at all.
    FreeAt {
        offset: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1..300usize, 0..9u32).prop_map(|(bytes, log_align)| Step::Alloc { bytes, log_align }),
        4 => any::<usize>().prop_map(|nth| Step::Free { nth }),
        1 => (0..1200u64).prop_map(|offset| Step::FreeAt { offset }),
    ]
}

proptest! {
    /// H1 live blocks never overlap, live + free = size, foreign and repeated frees are refused; and best fit is best fit.
    #[test]
    fn the_heap_agrees_with_one_owner_per_byte(steps in proptest::collection::vec(step(), 1..120)) {
        const SIZE: usize = 1024;
        let (mut heap, mut oracle) = (MemHeap::new(SIZE as u64), Oracle::new(SIZE));
        for step in steps {
            match step {
                Step::Alloc { bytes, log_align } => {
                    let got = heap.alloc(bytes as u64, 1 << log_align).ok();
                    prop_assert_eq!(got, oracle.alloc(bytes, 1 << log_align));
                }
                Step::Free { nth } => {
                    if let Some(block) = oracle.live.get(nth % oracle.live.len().max(1)).copied() {
                        prop_assert!(oracle.free(block.offset));
                        prop_assert_eq!(heap.free(block.offset), Ok(()));
                        prop_assert!(heap.free(block.offset).is_err(), "freed twice");
                    }
                }
                Step::FreeAt { offset } => prop_assert_eq!(heap.free(offset).is_ok(), oracle.free(offset)),
            }
            let runs = oracle.free_runs();
            let stats = heap.stats();
            prop_assert_eq!(stats.live_blocks, oracle.live.len());
            prop_assert_eq!(stats.live_bytes + stats.free_bytes, SIZE as u64);
            prop_assert_eq!(stats.free_bytes, runs.iter().map(|run| run.1 as u64).sum::<u64>());
            prop_assert_eq!(stats.free_extents, runs.len());
            prop_assert_eq!(stats.largest_free, runs.iter().map(|run| run.1 as u64).max().unwrap_or(0));
        }
        for block in oracle.live {
            heap.free(block.offset).unwrap();
        }
        prop_assert!(heap.is_empty());
        prop_assert_eq!((heap.stats().free_extents, heap.stats().largest_free), (1, SIZE as u64));
    }
}

fn assert_disjoint(heap: &MemHeap) {
    let blocks: Vec<Block> = heap.blocks().collect();
    for pair in blocks.windows(2) {
        assert!(pair[0].end() <= pair[1].offset, "{pair:?} overlap");
    }
}

/// H1 after each of many operations, by the blocks that the test holds; and every 1,000 operations by the heap's own list.
#[test]
fn random_operations_keep_the_books() {
    const SIZE: u64 = 1 << 20;
    let mut heap = MemHeap::new(SIZE);
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    let mut offsets: Vec<u64> = Vec::new();
    let (mut live_bytes, mut refused) = (0, 0u64);
    let mut random = fastrand::Rng::with_seed(17);
    let operations = seeds(100_000, 10_000_000);
    for operation in operations.clone() {
        if offsets.is_empty() || random.u8(..100) < 52 {
            let (bytes, align) = (random.u64(1..=8192), 1 << random.u32(..13));
            match heap.alloc(bytes, align) {
                Ok(block) => {
                    assert_eq!((block.bytes, block.offset % align), (bytes, 0));
                    let before = held.range(..block.end()).next_back();
                    let is_apart =
                        before.is_none_or(|(start, bytes)| start + bytes <= block.offset);
                    assert!(
                        is_apart && block.end() <= SIZE,
                        "operation {operation}: {block:?}"
                    );
                    held.insert(block.offset, bytes);
                    offsets.push(block.offset);
                    live_bytes += bytes;
                }
                Err(HeapError::Full { .. }) => refused += 1,
                Err(error) => panic!("operation {operation}: {error}"),
            }
        } else {
            let offset = offsets.swap_remove(random.usize(..offsets.len()));
            live_bytes -= held.remove(&offset).unwrap();
            assert_eq!(heap.free(offset), Ok(()), "operation {operation}");
        }
        let stats = heap.stats();
        let sums = (
            stats.live_bytes,
            stats.live_bytes + stats.free_bytes,
            stats.live_blocks,
        );
        assert_eq!(
            sums,
            (live_bytes, SIZE, held.len()),
            "operation {operation}"
        );
        assert!(stats.largest_free <= stats.free_bytes && stats.fragmentation_percent() <= 100);
        if operation % 1_000 == 0 {
            let blocks = heap.blocks().map(|block| (block.offset, block.bytes));
            assert!(blocks.eq(held.iter().map(|(offset, bytes)| (*offset, *bytes))));
            let lines = 1 + stats.live_blocks + stats.free_extents;
            assert_eq!(heap.dump().lines().count(), lines, "operation {operation}");
        }
    }
    println!("{} operations, {refused} of them refused", operations.end);
    assert!(refused > 0, "the heap was never full");
    for offset in offsets {
        heap.free(offset).unwrap();
    }
    let stats = heap.stats();
    assert_eq!(
        (stats.live_blocks, stats.free_extents, stats.largest_free),
        (0, 1, SIZE)
    );
}

#[test]
fn operations_of_the_corpus_and_of_random_bytes_keep_the_books() {
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/crates/test-support/fuzz/corpus/memheap"
    );
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().collect();
    assert!(files.len() >= 5, "{} files in {corpus}", files.len());
    for file in files {
        // The last line of a failing test names the file.
        let path = file.unwrap().path();
        println!("{}", path.display());
        memheap(&std::fs::read(path).unwrap());
    }
    let first = fastrand::u64(..1 << 32);
    for seed in seeds(100, 10_000) {
        println!("seed {:#x}", first + seed);
        let mut bytes = vec![0; 4096];
        fastrand::Rng::with_seed(first + seed).fill(&mut bytes);
        memheap(&bytes);
    }
}

/// The blocks of one QP, as `verbs` takes them: context, flags, send queue.
fn qp_blocks(heap: &mut MemHeap, depth: u64) -> Vec<Block> {
    [(768, 128), (8 * depth, 64), (64 * depth, 64)]
        .map(|(bytes, align)| heap.alloc(bytes, align).unwrap())
        .to_vec()
}

/// Known defect: `free` lowered the watermark, so the next block was laid over later blocks that still lived.
#[test]
fn free_does_not_move_a_watermark_and_blocks_never_overlap() {
    let mut heap = MemHeap::new(64 << 20);
    let mut qps: Vec<_> = (0..8).map(|_| qp_blocks(&mut heap, 1024)).collect();
    for block in qps.remove(2) {
        heap.free(block.offset).unwrap();
    }
    heap.alloc(2 << 20, 4096).unwrap();
    assert_disjoint(&heap);
    assert_eq!(heap.stats().live_blocks, 7 * 3 + 1);
}

/// Known defect: the sum of live bytes served as the watermark, so usage after a few frees pointed into live blocks.
#[test]
fn usage_is_not_mistaken_for_the_end_of_the_live_blocks() {
    let mut heap = MemHeap::new(1024);
    let low = heap.alloc(256, 1).unwrap();
    let high = heap.alloc(256, 1).unwrap();
    heap.free(low.offset).unwrap();
    assert_eq!(
        heap.stats().live_bytes,
        256,
        "equals the offset of a block that lives"
    );
    let big = heap.alloc(300, 1).unwrap();
    assert!(big.offset >= high.end(), "{big:?} must be behind {high:?}");
    assert_eq!(
        heap.alloc(256, 1).unwrap(),
        low,
        "and the hole is used again"
    );
}

/// Known defect: a table of 1,024 allocations; what did not fit into it was never freed.
#[test]
fn a_full_table_does_not_leak_because_there_is_no_table() {
    const BLOCKS: u64 = 5_000;
    let mut heap = MemHeap::new(64 * BLOCKS);
    let blocks: Vec<Block> = (0..BLOCKS).map(|_| heap.alloc(64, 64).unwrap()).collect();
    assert_eq!(heap.stats().free_bytes, 0);
    // Every second one first: 2,500 extents that cannot merge.
    for block in blocks
        .iter()
        .step_by(2)
        .chain(blocks.iter().skip(1).step_by(2))
    {
        heap.free(block.offset).unwrap();
    }
    assert_eq!(
        (heap.stats().free_extents, heap.stats().largest_free),
        (1, 64 * BLOCKS)
    );
}

/// Known defect: freed neighbours stayed apart, so a heap with room for a block refused it.
#[test]
fn fragments_merge_in_every_order_of_frees() {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut heap = MemHeap::new(300);
        let blocks = [0, 1, 2].map(|_| heap.alloc(100, 1).unwrap());
        for nth in order {
            heap.free(blocks[nth].offset).unwrap();
        }
        assert_eq!(
            heap.alloc(300, 1).unwrap().offset,
            0,
            "freed in order {order:?}"
        );
    }
}

/// Known defect: an offset that no caller had allocated was taken back, and so was the same one twice.
#[test]
fn foreign_and_repeated_frees_are_refused_by_offset() {
    let mut heap = MemHeap::new(4096);
    let block = heap.alloc(64, 64).unwrap();
    for offset in [1, 63, 64, 4095, 4096, u64::MAX] {
        assert!(
            matches!(heap.free(offset), Err(HeapError::NotLive { .. })),
            "offset {offset}"
        );
    }
    heap.free(block.offset).unwrap();
    assert_eq!(
        heap.free(block.offset),
        Err(HeapError::NotLive {
            offset: 0,
            within: None,
            size: 4096
        })
    );
}

/// H2: a QP destroyed and made again reuses its blocks; 10,000 cycles leave the heap as it was.
#[test]
fn ten_thousand_cycles_leave_the_heap_as_it_was() {
    let mut heap = MemHeap::new(4 << 20);
    let mut qps: Vec<_> = (0..32).map(|_| qp_blocks(&mut heap, 1024)).collect();
    let before = (
        heap.blocks().collect::<Vec<_>>(),
        heap.stats().free_extents,
        heap.stats().free_bytes,
    );
    let mut random = fastrand::Rng::with_seed(7);
    for cycle in 0..10_000 {
        let nth = random.usize(..qps.len());
        // In any order, as objects are dropped.
        let mut blocks = qps[nth].clone();
        random.shuffle(&mut blocks);
        for block in &blocks {
            heap.free(block.offset).unwrap();
        }
        let again = qp_blocks(&mut heap, 1024);
        assert_eq!(
            again, qps[nth],
            "cycle {cycle}: other blocks for the same QP"
        );
        qps[nth] = again;
    }
    let after = (
        heap.blocks().collect::<Vec<_>>(),
        heap.stats().free_extents,
        heap.stats().free_bytes,
    );
    assert_eq!(before, after);
}
