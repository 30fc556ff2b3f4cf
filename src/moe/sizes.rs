//! How many bytes of device memory a layer takes at each rank. Pure arithmetic; the table of docs/moe.md is made of it.

use super::layout::{HandleLayout, StateLayout};
use super::{Layout, MoeConfig, MoeError, RowLayout};

/// Device memory of a MoE layer, per rank, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequiredBytes {
    /// Slots that peers write into.
    pub slots: u64,
    /// Copies that the NIC sends from.
    pub staging: u64,
    /// Signals of all peers.
    pub signals: u64,
    /// Context, state per peer, expert table.
    pub state: u64,
    /// One handle. A program with two calls open at once has two handles.
    pub handle: u64,
    /// The caller's output of one dispatch, `recv_x`: `[local experts, ranks · max_tokens]` or `[ranks, max_tokens]` rows.
    pub recv_x: u64,
    /// The scales of that output, `recv_scales`.
    pub recv_scales: u64,
    /// The caller's input of one combine, `y`: as many rows as `recv_x`, in BF16. Not needed with zero-copy.
    pub y: u64,
}

impl RequiredBytes {
    /// Returns the bytes that the library allocates with `handles` handles: all but `recv_x`, `recv_scales` and `y`, which are the
    /// caller's.
    #[must_use]
    pub fn library(&self, handles: u64) -> u64 {
        self.slots + self.staging + self.signals + self.state + handles * self.handle
    }
}

/// Returns the device memory that a layer of this shape takes at each of `ranks` ranks, without making anything. If `local_experts`
/// is 0, the experts count as spread evenly.
///
/// # Errors
/// A shape beyond the limits.
pub fn required_bytes(config: &MoeConfig, ranks: u32) -> Result<RequiredBytes, MoeError> {
    config.check(ranks)?;
    let layout = Layout::new(config, ranks);
    let rows = output_rows(config, ranks);
    Ok(RequiredBytes {
        slots: layout.slots,
        staging: layout.staging,
        signals: layout.signals,
        state: StateLayout::new(config, ranks).bytes,
        handle: HandleLayout::new(config, ranks).bytes,
        recv_x: rows * layout.row_bytes,
        recv_scales: rows * layout.scale_bytes,
        y: rows * layout.combine_row_bytes,
    })
}

/// Returns the number of rows that the output of dispatch has room for.
pub(super) fn output_rows(config: &MoeConfig, ranks: u32) -> u64 {
    let received = u64::from(ranks) * u64::from(config.max_tokens);
    match config.layout {
        RowLayout::ExpertMajor => u64::from(config.room(ranks)) * received,
        RowLayout::RankMajor => received,
    }
}

/// Returns the error of a layer that could not be made, with its shape: `error` has refused the `part` bytes of `what`.
pub(super) fn not_made(
    error: MoeError,
    what: &'static str,
    part: u64,
    config: &MoeConfig,
    ranks: u32,
) -> MoeError {
    let bytes = required_bytes(config, ranks).map_or(part, |bytes| bytes.library(0));
    MoeError::NotMade {
        what,
        part,
        bytes,
        ranks,
        hidden: config.hidden,
        experts: config.experts,
        top_k: config.top_k,
        max_tokens: config.max_tokens,
        format: format!("{:?}", config.format),
        source: Box::new(error),
    }
}
