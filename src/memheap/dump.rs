//! A map of a heap that a person reads.

use std::fmt::Write;

use super::block::Block;
use super::heap::MemHeap;

impl MemHeap {
    /// Returns a line of figures, then a line for each live block and each free extent: first byte, last byte, length.
    #[must_use]
    pub fn dump(&self) -> String {
        let stats = self.stats();
        let mut map = format!(
            "{} bytes: {} live in {} blocks (at most {} so far), {} free in {} extents, the largest of {}, {}% fragmented\n",
            stats.size,
            stats.live_bytes,
            stats.live_blocks,
            stats.peak_live_bytes,
            stats.free_bytes,
            stats.free_extents,
            stats.largest_free,
            stats.fragmentation_percent(),
        );
        let live = self.blocks().map(|range| (range, "live"));
        let free = self.free_extents().map(|range| (range, "free"));
        let mut ranges: Vec<_> = live.chain(free).collect();
        ranges.sort_unstable_by_key(|(range, _)| range.offset);
        for (Block { offset, bytes }, state) in ranges {
            let last = offset + (bytes - 1);
            // Writing to a String does not fail.
            let _ = writeln!(map, "{offset:#012x}..={last:#012x} {bytes:>14} {state}");
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_has_every_byte_once_in_order() {
        let mut heap = MemHeap::new(4096);
        heap.alloc(100, 1).unwrap();
        heap.alloc(64, 64).unwrap();
        assert_eq!(
            heap.dump(),
            "4096 bytes: 164 live in 2 blocks (at most 164 so far), 3932 free in 2 extents, the largest of 3904, \
             0% fragmented\n\
             0x0000000000..=0x0000000063            100 live\n\
             0x0000000064..=0x000000007f             28 free\n\
             0x0000000080..=0x00000000bf             64 live\n\
             0x00000000c0..=0x0000000fff           3904 free\n"
        );
    }

    #[test]
    fn heaps_of_no_byte_and_of_every_byte_have_a_map() {
        assert_eq!(MemHeap::new(0).dump().lines().count(), 1);
        let mut heap = MemHeap::new(u64::MAX);
        assert!(
            heap.dump()
                .ends_with("..=0xfffffffffffffffe 18446744073709551615 free\n")
        );
        heap.alloc(u64::MAX, 1).unwrap();
        let full = heap.dump();
        assert!(
            full.contains("0 free in 0 extents, the largest of 0, 0% fragmented"),
            "{full}"
        );
    }
}
