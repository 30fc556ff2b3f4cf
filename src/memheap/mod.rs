//! The control-buffer allocator: offsets only, metadata on the host.
//!
//! A [`MemHeap`] hands out ranges `[offset, offset + bytes)` of a region that it never touches and whose address it does not
//! know: device memory, in practice. It takes the best fit among the free extents: the smallest one in which the aligned block
//! fits, the lowest of equals. So a QP destroyed and made again gets its blocks back. Neighbours merge at once, and no table can
//! overflow. What alignment skips stays free, so at any time *live + free = size* (invariant H1).
//!
//! Every operation costs O(log n) in the number of extents. But an allocation may step over free extents that are large enough but
//! badly aligned. An extent of `bytes + align - 1` always fits, so the search ends at one of these at the latest.

mod block;
mod dump;
mod error;
mod heap;
mod stats;

pub use block::Block;
pub use error::HeapError;
pub use heap::MemHeap;
pub use stats::HeapStats;
