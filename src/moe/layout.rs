//! Where everything lies in the buffers of a MoE layer. Pure arithmetic; `sizes` adds it up.
//!
//! Slot window (peers write it): dispatch slots `[set][source rank][max_tokens]`, then combine rows `[set][rank that returns
//! them][max_tokens][rows_each]`. Each place has one writer, so a late rank never overwrites another rank's rows.
//!
//! Staging window (the NIC reads it): dispatch slots `[set][max_tokens]`, one per token for any number of ranks. Then the rows that
//! combine sends: `[set][source rank][max_tokens]`. If combine returns the row of every expert, these are `[set][local
//! experts][ranks * max_tokens]`.
//!
//! Signal window: `[writer][kind, set]`.
//!
//! A slot is a header (source token, call, expert slots, weights), padded to 128 bytes, and the token with its scales.

use super::limits::{MAX_EXPERT_SLOTS, MAX_EXPERTS};
use super::{Format, MoeConfig, Returns, RowLayout, Scales};
use crate::abi::{
    ExpertHome, ExpertSlots, MAX_HIDDEN, MAX_MOE_RANKS, MAX_MOE_TOKENS, MAX_TOP_K, MOE_VIEWS,
    MOST_SEND_BUFFERS, MoeClock, MoeContext, MoeHandle, MoeHandlePeer, MoePeer, MoePick, MoeSignal,
    MoeSource, MoeView, SCALE_CHANNELS, SETS, SIGNALS_PER_PEER, SLOT_ALIGN,
};

/// The bytes and offsets of one rank's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// Bytes of a slot's header: 8 + 8 · top-k, rounded up to 128.
    pub header_bytes: u64,
    /// Bytes of a slot: header and token, rounded up to 128.
    pub slot_bytes: u64,
    /// Bytes of the token in a slot.
    pub row_bytes: u64,
    /// Bytes of the token's scales, which follow the token at the next multiple of 16.
    pub scale_bytes: u64,
    /// Offset of the scales in a slot.
    pub scales_at: u64,
    /// Bytes of a combine row: BF16.
    pub combine_row_bytes: u64,
    /// Most combine rows that go back for one received row.
    pub rows_each: u64,
    /// Rows of one set that a caller may write into the staging window.
    pub staged_rows: u64,
    /// Offset of the combine rows in the slot window.
    pub combine_slots: u64,
    /// Bytes of the slot window.
    pub slots: u64,
    /// Offset of the combine rows in the staging window.
    pub combine_staging: u64,
    /// Offset in the staging window of the rows that a caller writes itself. If combine returns the row of every expert, these rows
    /// have their own memory: the caller writes them by expert, and copies lie by the rank that they go to. Otherwise they lie
    /// where copies would.
    pub zero_copy: u64,
    /// Bytes of the staging window.
    pub staging: u64,
    /// Bytes of the signal window.
    pub signals: u64,
}

/// No product below overflows within the limits of a shape. The largest of them are checked in u128.
const _: () = {
    let sets = SETS as u128;
    let (tokens, ranks) = (MAX_MOE_TOKENS as u128, MAX_MOE_RANKS as u128);
    let row = MAX_HIDDEN as u128 * 2;
    // A token and its scales have at most 2^32 bytes each, whatever the format.
    let slot = 2 * (1u128 << 32) + 1024;
    let dispatch = (sets * ranks + MOST_SEND_BUFFERS as u128) * tokens * slot;
    let returned = sets * ranks * tokens * MAX_TOP_K as u128 * row;
    let staged = sets * MAX_EXPERT_SLOTS as u128 * tokens * row;
    let picks = ranks * tokens * MAX_TOP_K as u128 * 64;
    assert!(MAX_EXPERTS <= MAX_EXPERT_SLOTS);
    let tiles = MAX_EXPERT_SLOTS as u128 * tokens * 4;
    assert!(dispatch + 2 * returned + staged + picks + tiles < u64::MAX as u128 / 2);
};

impl Layout {
    /// Returns the layout of `config`, which was checked, for a layer that `shared` ranks share.
    #[must_use]
    pub fn new(config: &MoeConfig, shared: u32) -> Self {
        let (tokens, ranks) = (u64::from(config.max_tokens), u64::from(shared));
        let (sets, room) = (u64::from(SETS), u64::from(config.room(shared)));
        let hidden = u64::from(config.hidden);
        let (row_bytes, scale_bytes) = token_bytes(config);
        let combine_row_bytes = hidden * 2;
        let header_bytes = (8 + 8 * u64::from(config.top_k)).next_multiple_of(SLOT_ALIGN.into());
        let scales_at = header_bytes + row_bytes.next_multiple_of(16);
        let slot_bytes = (scales_at + scale_bytes).next_multiple_of(SLOT_ALIGN.into());
        let combine_slots = sets * ranks * tokens * slot_bytes;
        let combine_staging = u64::from(config.buffers()) * tokens * slot_bytes;
        let received = ranks * tokens;
        let by_expert = (config.layout, config.returns) == (RowLayout::ExpertMajor, Returns::Rows);
        let (rows_each, staged_rows) = if by_expert {
            (u64::from(config.top_k).min(room), room * received)
        } else {
            (1, received)
        };
        let returned = sets * received * rows_each * combine_row_bytes;
        let copied = combine_staging + returned;
        let (zero_copy, staging) = if by_expert {
            (copied, copied + sets * staged_rows * combine_row_bytes)
        } else {
            (combine_staging, copied)
        };
        Self {
            header_bytes,
            slot_bytes,
            row_bytes,
            scale_bytes,
            scales_at,
            combine_row_bytes,
            rows_each,
            staged_rows,
            combine_slots,
            slots: combine_slots + returned,
            combine_staging,
            zero_copy,
            staging,
            signals: ranks * u64::from(SIGNALS_PER_PEER) * size_of::<MoeSignal>() as u64,
        }
    }
}

/// Returns the bytes of a token as it travels, and the bytes of its scales.
fn token_bytes(config: &MoeConfig) -> (u64, u64) {
    let hidden = u64::from(config.hidden);
    let groups = hidden.div_ceil(SCALE_CHANNELS.into());
    match config.format {
        Format::Bf16 => (hidden * 2, 0),
        Format::Fp8(Scales::Ue8m0) => (hidden, groups.next_multiple_of(4)),
        Format::Fp8(_) => (hidden, groups * 4),
        Format::Opaque {
            payload_bytes,
            scale_bytes,
        } => (payload_bytes.into(), scale_bytes.into()),
    }
}

/// Received rows of one source that are counted together: a row for each lane of a warp.
const TILE_ROWS: u32 = 32;

/// Alignment of each array in the blocks below.
const ALIGN: u64 = 128;

/// A cursor that places arrays one after another.
struct Cursor(u64);

impl Cursor {
    fn take(&mut self, count: u64, size: usize) -> u64 {
        let at = self.0.next_multiple_of(ALIGN);
        self.0 = at + count * size as u64;
        at
    }
}

/// Offsets in the block of device memory that holds the state of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateLayout {
    pub(super) peers: u64,
    pub(super) clock: u64,
    pub(super) active: u64,
    pub(super) views: u64,
    /// Offsets of the tables of each view: homes, experts, replicas.
    pub(super) tables: [[u64; 3]; MOE_VIEWS as usize],
    /// Offset of the counts of rows by local expert and tile. The array is empty in the rank-major layout.
    pub(super) tiles: u64,
    pub(super) bytes: u64,
}

impl StateLayout {
    pub(super) fn new(config: &MoeConfig, ranks: u32) -> Self {
        let mut cursor = Cursor(size_of::<MoeContext>() as u64);
        let peers = cursor.take(ranks.into(), size_of::<MoePeer>());
        let clock = cursor.take(1, size_of::<MoeClock>());
        let active = cursor.take(ranks.into(), size_of::<u32>());
        let views = cursor.take(MOE_VIEWS.into(), size_of::<MoeView>());
        let slots = u64::from(config.room(ranks)) * u64::from(ranks);
        let tables = std::array::from_fn(|_| {
            [
                cursor.take(slots, size_of::<ExpertHome>()),
                cursor.take(config.experts.into(), size_of::<ExpertSlots>()),
                cursor.take(slots, size_of::<u32>()),
            ]
        });
        let tiles = match config.layout {
            RowLayout::ExpertMajor => slots * u64::from(config.max_tokens.div_ceil(TILE_ROWS)),
            RowLayout::RankMajor => 0,
        };
        let tiles = cursor.take(tiles, size_of::<u32>());
        Self {
            peers,
            clock,
            active,
            views,
            tables,
            tiles,
            bytes: cursor.take(0, 1),
        }
    }
}

/// Offsets in the block of device memory that is one handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandleLayout {
    pub(super) peers: u64,
    pub(super) row_of: u64,
    pub(super) token_of: u64,
    pub(super) sources: u64,
    pub(super) picks: u64,
    pub(super) chosen: u64,
    pub(super) weights: u64,
    pub(super) bytes: u64,
}

impl HandleLayout {
    pub(super) fn new(config: &MoeConfig, ranks: u32) -> Self {
        let rows = u64::from(ranks) * u64::from(config.max_tokens);
        let choices = u64::from(config.max_tokens) * u64::from(config.top_k);
        let mut cursor = Cursor(size_of::<MoeHandle>() as u64);
        Self {
            peers: cursor.take(ranks.into(), size_of::<MoeHandlePeer>()),
            row_of: cursor.take(rows, size_of::<u32>()),
            token_of: cursor.take(rows, size_of::<u32>()),
            sources: cursor.take(rows, size_of::<MoeSource>()),
            picks: cursor.take(rows * u64::from(config.top_k), size_of::<MoePick>()),
            chosen: cursor.take(choices, size_of::<u32>()),
            weights: cursor.take(choices, size_of::<f32>()),
            bytes: cursor.take(0, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_holds_32_experts_with_their_weights() {
        let shape = MoeConfig {
            hidden: 8,
            experts: 64,
            top_k: 32,
            max_tokens: 1,
            ..MoeConfig::BF16
        };
        let layout = Layout::new(&shape, 2);
        assert_eq!(layout.header_bytes, 384);
        assert_eq!(layout.slot_bytes, 512);
    }

    #[test]
    fn the_arrays_of_a_handle_do_not_overlap() {
        let shape = MoeConfig {
            hidden: 8,
            experts: 64,
            top_k: 3,
            max_tokens: 100,
            ..MoeConfig::BF16
        };
        let at = HandleLayout::new(&shape, 7);
        let rows = 7 * 100u64;
        let arrays = [
            (0, size_of::<MoeHandle>() as u64),
            (at.peers, 7 * size_of::<MoeHandlePeer>() as u64),
            (at.row_of, rows * 4),
            (at.token_of, rows * 4),
            (at.sources, rows * size_of::<MoeSource>() as u64),
            (at.picks, rows * 3 * size_of::<MoePick>() as u64),
            (at.chosen, 300 * 4),
            (at.weights, 300 * 4),
            (at.bytes, 0),
        ];
        for pair in arrays.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
    }
}
