//! A range of a heap.

/// A live range of the heap. Plain data: giving it back is [`MemHeap::free`](super::MemHeap::free) by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// First byte, counted from the start of the region; a multiple of the alignment asked for.
    pub offset: u64,
    /// Length in bytes, exactly as asked for.
    pub bytes: u64,
}

impl Block {
    /// One past the last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}
