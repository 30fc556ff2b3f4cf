//! Structs that host and kernels share: the one definition.
//!
//! `kernels/include/warpverbs/abi.h` is rendered from these by [`header`], with a `static_assert` for every size and offset.
//! `tests/docs/abi_header.rs` fails while the two differ, and rewrites the file if `UPDATE` is set. Kernels take one struct by
//! value. All numbers are little-endian, as on the GPU and the host. A field that ends in `_be` holds the big-endian bytes that go
//! into a WQE unchanged.
//!
//! Crates with kernels of their own define parameters in the same way: [`abi_struct!`](crate::abi_struct),
//! [`abi_enum!`](crate::abi_enum), [`abi_const!`](crate::abi_const) and [`header`] are public. Numbers that kernels give are open:
//! one that this version does not know is no error.
//!
//! ```
//! use warpverbs::abi::Status;
//!
//! assert_eq!(Status(0), Status::OK);
//! assert_eq!(Status(0).name(), Some("ok"));
//! assert_eq!(Status(4_000_000).name(), None);
//! ```

#[macro_use]
mod macros;
pub mod header;
pub(crate) mod layer;
pub(crate) mod moe;
pub(crate) mod moe_calls;
pub(crate) mod moe_words;
mod qp;
pub(crate) mod render;
mod status;
mod team;
mod types;

pub(crate) use layer::*;
pub use moe::MoeHandlePeer;
pub(crate) use moe::*;
pub(crate) use moe_calls::*;
pub(crate) use moe_words::*;
pub use moe_words::{
    CallStage, MAX_HIDDEN, MAX_MOE_RANKS, MAX_MOE_TOKENS, MAX_TOP_K, MoeCause, Outcome,
    SCALE_CHANNELS,
};
pub use qp::{
    ATOMIC_64, ATOMIC_MASKED_32, ATOMIC_MASKED_64, ATOMIC_RESULT_BE, EMPTY_BYTE, MAX_DEPTH,
    MAX_INLINE_BYTES, MAX_PUT_BYTES, MIN_DEPTH, MODE_CTA, MODE_EXCLUSIVE, MODE_HOST_QUEUES,
    MODE_MAILBOX, MODE_NO_RECORD, MODE_WIDE_CQ, QpContext, SERVICE_ROUNDS, WQEBB_BYTES,
    control_bytes, parked,
};
pub use status::Status;
pub use team::{
    DeviceConfig, MAX_RAILS, PEER_DIRECT, PeerEntry, PeerGuard, RAIL_SHIFT, TeamContext, Window,
};
pub use types::{AbiEnum, AbiField, AbiStruct, AbiType, DevicePtr};
