//! Limits of the shape of a layer.

use crate::abi::{MAX_HIDDEN, MAX_MOE_RANKS, MOST_SEND_BUFFERS, SETS};

/// Most experts of a layer.
pub const MAX_EXPERTS: u32 = 4096;
/// Most ranks that share a layer.
pub const MAX_RANKS: u32 = MAX_MOE_RANKS;
/// Most expert slots of all ranks together.
pub const MAX_EXPERT_SLOTS: u32 = 65_536;

/// Most bytes of an opaque token: as many as the longest BF16 token has.
pub const MAX_PAYLOAD_BYTES: u32 = MAX_HIDDEN * 2;
/// Most bytes of the scales of an opaque token: an f32 for each 16 channels.
pub const MAX_SCALE_BYTES: u32 = MAX_HIDDEN / 4;

/// Most links that may fail. Each takes two send buffers, besides the two of a layer whose links all work.
pub const MAX_FAILING_LINKS: u32 = MOST_SEND_BUFFERS / SETS - 1;
