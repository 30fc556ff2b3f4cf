//! The allocator.

use std::collections::{BTreeMap, BTreeSet};

use super::block::Block;
use super::error::HeapError;
use super::stats::HeapStats;

/// A best-fit allocator over `size` bytes of memory that its caller owns.
///
/// ```
/// use warpverbs::internal::MemHeap;
/// let mut heap = MemHeap::new(4096);
/// let a = heap.alloc(100, 1)?;
/// let b = heap.alloc(64, 64)?;
/// assert_eq!((a.offset, b.offset), (0, 128));
/// heap.free(a.offset)?;
/// assert!(heap.free(a.offset).is_err()); // given back already
/// # Ok::<(), warpverbs::verbs::HeapError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemHeap {
    size: u64,
    /// Live blocks: offset to length.
    live: BTreeMap<u64, u64>,
    /// Free extents: offset to length. Never two that touch.
    free: BTreeMap<u64, u64>,
    /// These extents by (length, offset), for best fit.
    by_length: BTreeSet<(u64, u64)>,
    live_bytes: u64,
    peak_live_bytes: u64,
    allocations: u64,
    refusals: u64,
}

impl MemHeap {
    /// An empty heap over `size` bytes; one of 0 bytes refuses everything.
    #[must_use]
    pub fn new(size: u64) -> Self {
        let mut heap = Self {
            size,
            live: BTreeMap::new(),
            free: BTreeMap::new(),
            by_length: BTreeSet::new(),
            live_bytes: 0,
            peak_live_bytes: 0,
            allocations: 0,
            refusals: 0,
        };
        heap.insert_free(0, size);
        heap
    }

    /// Takes `bytes` bytes whose offset is a multiple of `align`, a power of two.
    ///
    /// The offset is aligned within the region: an address is aligned only if the region's start is.
    ///
    /// # Errors
    ///
    /// [`HeapError::ZeroBytes`], [`HeapError::BadAlignment`], or [`HeapError::Full`] if no free extent holds the block.
    pub fn alloc(&mut self, bytes: u64, align: u64) -> Result<Block, HeapError> {
        let found = self.find(bytes, align);
        let (extent, offset) = found.inspect_err(|_| self.refusals += 1)?;
        let length = self.remove_free(extent);
        self.insert_free(extent, offset - extent);
        self.insert_free(offset + bytes, extent + length - (offset + bytes));
        self.live.insert(offset, bytes);
        self.live_bytes += bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        self.allocations += 1;
        Ok(Block { offset, bytes })
    }

    /// Gives back the live block that starts at `offset`, and merges it with its free neighbours.
    ///
    /// # Errors
    ///
    /// [`HeapError::NotLive`] for any other offset; nothing changes.
    pub fn free(&mut self, offset: u64) -> Result<(), HeapError> {
        let Some(bytes) = self.live.remove(&offset) else {
            self.refusals += 1;
            let within = self.block_at(offset);
            return Err(HeapError::NotLive {
                offset,
                within,
                size: self.size,
            });
        };
        self.live_bytes -= bytes;
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((&before, &length)) = self.free.range(..offset).next_back()
            && before + length == offset
        {
            self.remove_free(before);
            start = before;
        }
        if self.free.contains_key(&end) {
            end += self.remove_free(end);
        }
        self.insert_free(start, end - start);
        Ok(())
    }

    /// Returns the live block that holds `offset`, if any.
    #[must_use]
    pub fn block_at(&self, offset: u64) -> Option<Block> {
        let (&start, &bytes) = self.live.range(..=offset).next_back()?;
        let block = Block {
            offset: start,
            bytes,
        };
        (offset < block.end()).then_some(block)
    }

    /// All live blocks, by offset.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.live
            .iter()
            .map(|(&offset, &bytes)| Block { offset, bytes })
    }

    /// All free extents, by offset.
    pub(super) fn free_extents(&self) -> impl Iterator<Item = Block> + '_ {
        self.free
            .iter()
            .map(|(&offset, &bytes)| Block { offset, bytes })
    }

    /// Returns whether nothing is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Figures of this moment.
    #[must_use]
    pub fn stats(&self) -> HeapStats {
        HeapStats {
            size: self.size,
            live_bytes: self.live_bytes,
            live_blocks: self.live.len(),
            free_bytes: self.size - self.live_bytes,
            free_extents: self.free.len(),
            largest_free: self.largest_free(),
            peak_live_bytes: self.peak_live_bytes,
            allocations: self.allocations,
            refusals: self.refusals,
        }
    }

    /// Returns the extent to cut, and where in it the block starts.
    fn find(&self, bytes: u64, align: u64) -> Result<(u64, u64), HeapError> {
        if bytes == 0 {
            return Err(HeapError::ZeroBytes);
        }
        if !align.is_power_of_two() {
            return Err(HeapError::BadAlignment { align });
        }
        self.by_length
            .range((bytes, 0)..)
            .find_map(|&(length, extent)| {
                let offset = extent.checked_next_multiple_of(align)?;
                let fits = offset - extent <= length - bytes;
                fits.then_some((extent, offset))
            })
            .ok_or_else(|| HeapError::Full {
                bytes,
                align,
                free_bytes: self.size - self.live_bytes,
                largest_free: self.largest_free(),
                size: self.size,
            })
    }

    fn largest_free(&self) -> u64 {
        self.by_length.last().map_or(0, |&(length, _)| length)
    }

    fn insert_free(&mut self, offset: u64, length: u64) {
        if length > 0 {
            self.free.insert(offset, length);
            self.by_length.insert((length, offset));
        }
    }

    /// Takes the extent at `offset` out of both tables and returns its length; 0 if the tables have none.
    fn remove_free(&mut self, offset: u64) -> u64 {
        let length = self.free.remove(&offset).unwrap_or(0);
        self.by_length.remove(&(length, offset));
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_alignment_skips_stays_free() {
        let mut heap = MemHeap::new(256);
        heap.alloc(1, 1).unwrap();
        assert_eq!(heap.alloc(64, 64).unwrap().offset, 64);
        assert_eq!(
            heap.alloc(63, 1).unwrap().offset,
            1,
            "the gap of 63 bytes is the best fit"
        );
        assert_eq!(heap.stats().free_extents, 1);
    }

    #[test]
    fn a_badly_aligned_extent_of_the_right_length_is_stepped_over() {
        let mut heap = MemHeap::new(512);
        let first = heap.alloc(32, 1).unwrap();
        let hole = heap.alloc(64, 1).unwrap();
        let last = heap.alloc(32, 1).unwrap();
        heap.free(hole.offset).unwrap();
        assert_eq!(
            heap.alloc(64, 64).unwrap().offset,
            128,
            "the hole at 32 has the length but not the alignment"
        );
        assert!(first.end() <= hole.offset && hole.end() <= last.offset);
    }

    #[test]
    fn the_refusal_says_what_is_left() {
        let mut heap = MemHeap::new(128);
        let blocks: Vec<_> = (0..4).map(|_| heap.alloc(32, 1).unwrap()).collect();
        heap.free(blocks[0].offset).unwrap();
        heap.free(blocks[2].offset).unwrap();
        let refusal = heap.alloc(33, 1).unwrap_err();
        assert_eq!(
            refusal,
            HeapError::Full {
                bytes: 33,
                align: 1,
                free_bytes: 64,
                largest_free: 32,
                size: 128
            }
        );
        assert!(
            refusal
                .to_string()
                .ends_with("64 of 128 bytes are free, the largest extent has 32, 50% fragmented"),
            "{refusal}"
        );
    }

    #[test]
    fn no_bytes_no_alignment_and_no_room_are_refused() {
        let mut heap = MemHeap::new(u64::MAX);
        assert_eq!(heap.alloc(0, 1), Err(HeapError::ZeroBytes));
        assert_eq!(heap.alloc(1, 0), Err(HeapError::BadAlignment { align: 0 }));
        assert_eq!(
            heap.alloc(1, 48),
            Err(HeapError::BadAlignment { align: 48 })
        );
        heap.alloc(u64::MAX - 1, 1).unwrap();
        assert!(
            heap.alloc(1, 1 << 63).is_err(),
            "the next multiple of the alignment is beyond u64"
        );
        assert!(MemHeap::new(0).alloc(1, 1).is_err());
        assert_eq!(heap.stats().refusals, 4);
    }

    #[test]
    fn a_free_in_the_middle_of_a_block_names_the_block() {
        let mut heap = MemHeap::new(128);
        let block = heap.alloc(64, 1).unwrap();
        let refusal = heap.free(7).unwrap_err();
        assert_eq!(
            refusal,
            HeapError::NotLive {
                offset: 7,
                within: Some(block),
                size: 128
            }
        );
        assert!(
            refusal
                .to_string()
                .ends_with("it lies in the block at 0x0 of 64 bytes"),
            "{refusal}"
        );
        assert_eq!(heap.stats().live_blocks, 1);
    }
}
