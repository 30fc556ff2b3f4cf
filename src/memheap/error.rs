//! Why a heap refuses.

use super::block::Block;
use super::stats::fragmentation_percent;

/// Why the heap refused. The heap is as it was before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// A block of no bytes has no offset of its own.
    #[error("an allocation has 0 bytes; it must be 1 or more")]
    ZeroBytes,
    /// Alignments are powers of two.
    #[error("alignment is {align}; it must be a power of two")]
    BadAlignment {
        /// What was asked for, in bytes.
        align: u64,
    },
    /// No free extent holds the block.
    #[error(
        "{bytes} bytes aligned to {align} do not fit: {free_bytes} of {size} bytes are free, the largest extent has {largest_free}, \
         {}% fragmented", fragmentation_percent(*.free_bytes, *.largest_free)
    )]
    Full {
        /// Length asked for.
        bytes: u64,
        /// Alignment asked for.
        align: u64,
        /// Free bytes in all extents together.
        free_bytes: u64,
        /// Length of the largest free extent, 0 if none.
        largest_free: u64,
        /// Length of the heap.
        size: u64,
    },
    /// No live block starts at this offset: freed before, never allocated, or inside another block.
    #[error("no live block starts at offset {offset:#x} of a heap of {size:#x} bytes{}", Self::inside(.within))]
    NotLive {
        /// The offset that was to be freed.
        offset: u64,
        /// The live block in whose middle the offset lies, if any.
        within: Option<Block>,
        /// Length of the heap.
        size: u64,
    },
}

impl HeapError {
    fn inside(within: &Option<Block>) -> String {
        within.map_or_else(String::new, |b| {
            format!(
                "; it lies in the block at {:#x} of {} bytes",
                b.offset, b.bytes
            )
        })
    }
}
