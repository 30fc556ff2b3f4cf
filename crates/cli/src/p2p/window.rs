//! The window through which a file goes: a few slots in the server's memory, which are used in turn.

use super::requests::Chunk;

/// The number of bytes of a slot.
pub(super) const SLOT: u64 = 1 << 20;
/// The number of slots of a window.
pub(super) const SLOTS: u64 = 4;

/// Returns the chunk that begins at `offset` of a file of `bytes` bytes.
pub(super) fn due(offset: u64, bytes: u64) -> Chunk {
    Chunk {
        slot: offset / SLOT % SLOTS,
        offset,
        bytes: SLOT.min(bytes - offset),
    }
}
