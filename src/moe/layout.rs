//! Where everything lies in the buffers of a MoE layer, and how many bytes that takes. Pure arithmetic.
//!
//! Slot window (peers write it): dispatch slots `[set][source rank][max_tokens]`, then combine rows of the same shape.
//! Staging window (the NIC reads it): dispatch slots `[set][max_tokens]`, one per token however many ranks get it, then
//! combine rows `[set][source rank][max_tokens]`. Signal window: `[writer][kind, set]`.
//! A slot is a header (source token, call, expert ids, weights), padded to 128 bytes, and the token.

use super::{Format, MoeConfig, MoeError, Scales};
use crate::abi::{
    ExpertHome, ExpertSlots, MOE_VIEWS, MoeClock, MoeContext, MoeHandle, MoeHandlePeer, MoePeer,
    MoePick, MoeSignal, MoeSource, MoeView, SCALE_CHANNELS, SETS, SIGNALS_PER_PEER, SLOT_ALIGN,
};

/// Bytes and offsets of one rank's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a slot's header: 8 + 8 · top-k, rounded up to 128.
    pub header_bytes: u64,
    /// Bytes of a slot: header and token, rounded up to 128.
    pub slot_bytes: u64,
    /// Bytes of the token in a slot.
    pub row_bytes: u64,
    /// Bytes of its scales behind it, at the next multiple of 16.
    pub scale_bytes: u64,
    /// Offset of the scales in a slot.
    pub scales_at: u64,
    /// Bytes of a combine row: BF16.
    pub combine_row_bytes: u64,
    /// Offset of the combine rows in the slot window.
    pub combine_slots: u64,
    /// Bytes of the slot window.
    pub slots: u64,
    /// Offset of the combine rows in the staging window.
    pub combine_staging: u64,
    /// Bytes of the staging window.
    pub staging: u64,
    /// Bytes of the signal window.
    pub signals: u64,
}

impl Layout {
    /// The layout of `config` (already checked) among `ranks`.
    #[must_use]
    pub fn new(config: &MoeConfig, ranks: u32) -> Self {
        let (tokens, ranks) = (u64::from(config.max_tokens), u64::from(ranks));
        let sets = u64::from(SETS);
        let hidden = u64::from(config.hidden);
        let (row_bytes, scale_bytes) = token_bytes(config);
        let combine_row_bytes = hidden * 2;
        let header_bytes = (8 + 8 * u64::from(config.top_k)).next_multiple_of(SLOT_ALIGN.into());
        let scales_at = header_bytes + row_bytes.next_multiple_of(16);
        let slot_bytes = (scales_at + scale_bytes).next_multiple_of(SLOT_ALIGN.into());
        let combine_slots = sets * ranks * tokens * slot_bytes;
        let combine_staging = sets * tokens * slot_bytes;
        let combine = sets * ranks * tokens * combine_row_bytes;
        Self {
            header_bytes,
            slot_bytes,
            row_bytes,
            scale_bytes,
            scales_at,
            combine_row_bytes,
            combine_slots,
            slots: combine_slots + combine,
            combine_staging,
            staging: combine_staging + combine,
            signals: ranks * u64::from(SIGNALS_PER_PEER) * size_of::<MoeSignal>() as u64,
        }
    }
}

/// Bytes of a token as it travels, and of its scales.
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

/// Device memory of a MoE layer, per rank, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequiredBytes {
    /// Slots that peers write into.
    pub slots: u64,
    /// Copies that the NIC sends from.
    pub staging: u64,
    /// Signals of all peers.
    pub signals: u64,
    /// Context, state per peer, expert table.
    pub state: u64,
    /// One handle; a program with two calls open at once has two.
    pub handle: u64,
    /// The caller's output of one dispatch, `recv_x`: `[local experts, ranks · max_tokens, hidden]` at the rank that holds most.
    pub recv_x: u64,
}

impl RequiredBytes {
    /// What the library allocates with `handles` handles. `recv_x` is the caller's.
    #[must_use]
    pub fn library(&self, handles: u64) -> u64 {
        self.slots + self.staging + self.signals + self.state + handles * self.handle
    }
}

/// The device memory that a layer of this shape takes at each of `ranks`, without making anything.
///
/// # Errors
/// A shape beyond the limits.
pub fn required_bytes(config: &MoeConfig, ranks: u32) -> Result<RequiredBytes, MoeError> {
    config.check(ranks)?;
    let layout = Layout::new(config, ranks);
    let rows = u64::from(ranks) * u64::from(config.max_tokens);
    let most_local = u64::from(config.room(ranks));
    Ok(RequiredBytes {
        slots: layout.slots,
        staging: layout.staging,
        signals: layout.signals,
        state: state_bytes(config, ranks),
        handle: HandleLayout::new(config, ranks).bytes,
        recv_x: most_local * rows * layout.row_bytes,
    })
}

/// Alignment of each array below.
const ALIGN: u64 = 128;

/// Places arrays behind one another.
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
    pub(super) views: u64,
    pub(super) homes: u64,
    pub(super) experts: u64,
    pub(super) replicas: u64,
    pub(super) bytes: u64,
}

impl StateLayout {
    pub(super) fn new(config: &MoeConfig, ranks: u32) -> Self {
        let mut cursor = Cursor(size_of::<MoeContext>() as u64);
        let peers = cursor.take(ranks.into(), size_of::<MoePeer>());
        let clock = cursor.take(1, size_of::<MoeClock>());
        let views = cursor.take(MOE_VIEWS.into(), size_of::<MoeView>());
        let slots = u64::from(config.room(ranks)) * u64::from(ranks);
        let homes = cursor.take(slots, size_of::<ExpertHome>());
        let experts = cursor.take(config.experts.into(), size_of::<ExpertSlots>());
        let replicas = cursor.take(slots, size_of::<u32>());
        Self {
            peers,
            clock,
            views,
            homes,
            experts,
            replicas,
            bytes: cursor.take(0, 1),
        }
    }
}

fn state_bytes(config: &MoeConfig, ranks: u32) -> u64 {
    StateLayout::new(config, ranks).bytes
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
    fn the_published_shape_takes_the_bytes_of_its_formula() {
        let shape = MoeConfig {
            hidden: 7168,
            experts: 256,
            top_k: 8,
            max_tokens: 128,
            ..MoeConfig::BF16
        };
        let bytes = required_bytes(&shape, 8).unwrap();
        let slot = 128 + 14_336;
        assert_eq!(bytes.slots, 2 * 8 * 128 * (slot + 14_336));
        assert_eq!(bytes.staging, 2 * 128 * slot + 2 * 8 * 128 * 14_336);
        assert_eq!(bytes.signals, 8 * 4 * 32);
        assert_eq!(bytes.recv_x, 32 * 8 * 128 * 14_336);
    }

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

    #[test]
    fn the_largest_shape_does_not_overflow() {
        let shape = MoeConfig {
            hidden: 16_384,
            experts: 4096,
            top_k: 32,
            max_tokens: 65_534,
            ..MoeConfig::BF16
        };
        let bytes = required_bytes(&shape, 1024).unwrap();
        assert!(bytes.slots > 1 << 42);
    }
}
