//! Zero-copy combine: the staging memory into which a caller may write what combine sends.
//!
//! A caller does not have to ask for the memory. The receive phase of a call's dispatch looks whether an HCA still reads the rows
//! of the call two before. If none does, the phase offers the memory: no kernel and no HCA reads that call's set any more. From
//! then until the send phase of combine has ended, the memory is the caller's. The caller must not write it before or after that:
//! the NIC may send a packet again, and the receive phase of combine reads this rank's own rows. If an HCA still reads those rows,
//! the phase hands out the received rows all the same, and offers no memory
//! ([`CallReport::offered`](crate::moe::CallReport::offered)). The combine of that call then copies from memory of the caller
//! ([`CombineInput::copy_from`](crate::moe::CombineInput::copy_from)), for the peers to which no earlier rows are still on their
//! way.

use crate::abi::SETS;
use crate::moe::config::{MoeConfig, RowLayout};
use crate::moe::error::MoeError;
use crate::moe::layout::Layout;

/// The staging memory of the calls of one set. It has the shape of `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CombineStaging {
    /// The device address.
    pub addr: u64,
    /// The number of blocks: local experts if rows lie by expert, otherwise ranks.
    pub blocks: u64,
    /// The number of rows of a block: `ranks · max_tokens` if rows lie by expert, otherwise `max_tokens`. The first `counts[block]`
    /// of them are sent.
    pub rows: u64,
    /// The bytes of a row: `hidden` BF16 elements.
    pub row_bytes: u64,
}

impl CombineStaging {
    /// Returns the staging memory of `set` in a staging window at `window`, for a layer of this shape.
    pub(in crate::moe) fn new(
        config: &MoeConfig,
        layout: &Layout,
        ranks: u32,
        window: u64,
        set: u32,
    ) -> Result<Self, MoeError> {
        if set >= SETS {
            return Err(MoeError::Shape {
                name: "set",
                value: set,
                least: 0,
                most: SETS - 1,
            });
        }
        config.check_zero_copy()?;
        let tokens = u64::from(config.max_tokens);
        let (blocks, rows) = match config.layout {
            RowLayout::RankMajor => (ranks.into(), tokens),
            RowLayout::ExpertMajor => (config.room(ranks).into(), u64::from(ranks) * tokens),
        };
        let row_bytes = layout.combine_row_bytes;
        let of_set = u64::from(set) * layout.staged_rows * row_bytes;
        Ok(Self {
            addr: window + layout.zero_copy + of_set,
            blocks,
            rows,
            row_bytes,
        })
    }
}
