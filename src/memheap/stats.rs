//! A heap in figures.

/// Figures of a heap at one moment, in bytes where not said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapStats {
    /// Length of the heap; always `live_bytes + free_bytes`.
    pub size: u64,
    /// Bytes in live blocks.
    pub live_bytes: u64,
    /// Number of live blocks.
    pub live_blocks: usize,
    /// Bytes in free extents.
    pub free_bytes: u64,
    /// Number of free extents; 1 in an empty heap, 0 in a full one.
    pub free_extents: usize,
    /// Length of the largest free extent.
    pub largest_free: u64,
    /// Largest `live_bytes` so far.
    pub peak_live_bytes: u64,
    /// Allocations granted so far.
    pub allocations: u64,
    /// Allocations and frees refused so far.
    pub refusals: u64,
}

impl HeapStats {
    /// Percent of the free bytes that lie outside the largest free extent: 0 if they are one extent or none.
    #[must_use]
    pub fn fragmentation_percent(&self) -> u32 {
        fragmentation_percent(self.free_bytes, self.largest_free)
    }
}

/// Returns the percent of the free bytes that lie outside the largest free extent.
pub(super) fn fragmentation_percent(free_bytes: u64, largest_free: u64) -> u32 {
    let outside = u128::from(free_bytes.saturating_sub(largest_free));
    let percent = outside * 100 / u128::from(free_bytes.max(1));
    u32::try_from(percent).expect("at most 100")
}
