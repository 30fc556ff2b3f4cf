//! Zero-copy combine: the staging memory that a caller may write what combine sends into.
//!
//! A caller that writes it asks for nothing. The receive phase of a call's dispatch looks whether an HCA still reads the rows of
//! the call two before. If none does, it offers the memory: no kernel and no HCA reads that call's set any more. From then until
//! the send phase of combine has ended, the memory is the caller's. It must not be written before or after. The NIC may send a
//! packet again, and the receive phase of combine reads this rank's own rows. Otherwise the phase hands out its rows all the same,
//! and offers no memory ([`CallReport::offered`](crate::moe::CallReport::offered)): the combine of that call copies from memory of the
//! caller's ([`CombineInput::copy_from`](crate::moe::CombineInput::copy_from)), for the peers whose rows are not on their way.

use crate::abi::SETS;
use crate::moe::config::{MoeConfig, RowLayout};
use crate::moe::error::MoeError;
use crate::moe::layout::Layout;

/// Staging memory of the calls of one set. It has the shape of `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CombineStaging {
    /// Device address.
    pub addr: u64,
    /// Local experts, where rows lie by expert; else ranks.
    pub blocks: u64,
    /// Rows of a block, of which the first `counts[block]` are sent: `ranks · max_tokens`; else `max_tokens`.
    pub rows: u64,
    /// Bytes of a row: `hidden` BF16.
    pub row_bytes: u64,
}

impl CombineStaging {
    /// That of `set` in a staging window at `window`, of a layer of this shape.
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
