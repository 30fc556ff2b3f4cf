//! The limits of the engine, which its errors name.

/// The most slices of a transfer: 2^30 - 1.
pub const MOST_SLICES: u32 = (1 << 30) - 1;
/// The most slots of an engine.
pub const MOST_SLOTS: u32 = 65_536;
/// The fewest bytes of a block.
pub const LEAST_BLOCK: u32 = 1 << 12;
/// The most bytes of a slice: a WQE of an mlx5 QP carries no more (`log_msg_max` is 30).
pub const MOST_SLICE_BYTES: u32 = 1 << 30;
/// The most operations of a transfer.
pub const MOST_OPERATIONS: usize = 65_536;
/// The most pieces of a transfer: four for each operation.
pub const MOST_PIECES: usize = 4 * MOST_OPERATIONS;
/// The most local ranges of a slice.
pub const MOST_GATHER: u32 = 16;
/// The most QPs of a connection.
pub(in crate::engine) const MOST_QPS: usize = 8;
/// The most NICs of an engine: each NIC has a QP of each connection.
pub const MOST_RAILS: usize = MOST_QPS;
/// The number of counters of an engine. The number of a counter is below this.
pub const MOST_COUNTERS: u32 = crate::provider::local::MOST_COUNTERS;
/// The most bytes of a notice: 64 KiB.
pub const MOST_NOTICE_BYTES: usize = 1 << 16;
/// The bytes that a notice takes of an inbox besides its own.
pub(in crate::engine) const OVERHEAD: u64 = 64;
/// The number of low bits in the id of a region that tell the regions of an engine apart. Above them is the number of the engine.
pub(in crate::engine) const REGION_BITS: u32 = 40;
/// The most engines that a process makes. Their numbers begin at 1.
pub(in crate::engine) const MOST_ENGINES: u32 = (1 << (u64::BITS - REGION_BITS)) - 1;
/// The most regions that an engine registers in its life. Their numbers begin at 1.
pub(in crate::engine) const MOST_REGIONS: u64 = (1 << REGION_BITS) - 1;

/// Returns a number of operations or slices in 32 bits: no transfer has more.
pub(in crate::engine) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
