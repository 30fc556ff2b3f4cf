//! Zero-copy combine: the staging memory that a caller may write what combine sends into.
//!
//! A caller that writes it asks for nothing. The receive phase of a call's dispatch looks whether an HCA still reads the rows of
//! the call two before. If none does, it offers the memory: no kernel and no HCA reads that call's set any more. From then until
//! the send phase of combine has ended, the memory is the caller's. It must not be written before or after. The NIC may send a
//! packet again, and the receive phase of combine reads this rank's own rows. Otherwise the phase hands out its rows all the same,
//! and offers no memory ([`CallReport::offered`](crate::moe::CallReport::offered)): the combine of that call copies from memory of the
//! caller's ([`CombineInput::copy_from`](crate::moe::CombineInput::copy_from)), for the peers whose rows are not on their way.

use crate::abi::SETS;
use crate::moe::{Moe, MoeError, RowLayout};

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

impl Moe {
    /// Where calls may write what their combine sends, by set. The set of a call is one of the two, and
    /// [`DispatchOutput::staging`](crate::moe::DispatchOutput::staging) says to kernels which, without a word of the host. It says 0 for
    /// a call that is offered neither, since an HCA still reads the rows of an earlier call.
    ///
    /// # Errors
    /// [`MoeError::Option`] in a layer that sends back sums, which it makes itself.
    pub fn combine_stagings(&self) -> Result<[CombineStaging; SETS as usize], MoeError> {
        Ok([self.combine_staging(0)?, self.combine_staging(1)?])
    }

    /// Where a call of `set` may write what its combine sends with `COMBINE_ZERO_COPY`. The set is its number modulo 2, which
    /// kernels find in `MoeHandle::call` and the host in [`CallReport::call`](crate::moe::CallReport::call). The addresses stay the
    /// same while the layer lives. Not of a call that has fewer tokens than the layer was made for
    /// ([`DispatchInput::max_tokens`](crate::moe::DispatchInput::max_tokens)).
    ///
    /// # Errors
    /// [`MoeError::Option`] in a layer that sends back sums, which it makes itself; a set that does not exist.
    pub fn combine_staging(&self, set: u32) -> Result<CombineStaging, MoeError> {
        let (config, layout) = (self.config(), self.layout());
        if set >= SETS {
            return Err(MoeError::Shape {
                name: "set",
                value: set,
                least: 0,
                most: SETS - 1,
            });
        }
        config.check_zero_copy()?;
        let (ranks, tokens) = (self.team().ranks(), u64::from(config.max_tokens));
        let (blocks, rows) = match config.layout {
            RowLayout::RankMajor => (ranks.into(), tokens),
            RowLayout::ExpertMajor => (config.room(ranks).into(), u64::from(ranks) * tokens),
        };
        let row_bytes = layout.combine_row_bytes;
        let of_set = u64::from(set) * layout.staged_rows * row_bytes;
        Ok(CombineStaging {
            addr: self.staging_addr() + layout.zero_copy + of_set,
            blocks,
            rows,
            row_bytes,
        })
    }
}
