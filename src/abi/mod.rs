//! Structs that host and kernels share: the one definition.
//!
//! `kernels/include/warpverbs/abi.h` is rendered from these by [`header::render`], with a `static_assert` for every size and
//! offset; `tests/docs/abi_header.rs` fails while the two differ and rewrites the file if `UPDATE` is set. Kernels take one struct
//! by value. All numbers are little-endian as the GPU and the host are; a field that ends in `_be` holds the big-endian bytes
//! that go into a WQE as they are.
//!
//! Crates with kernels of their own define parameters in the same way: [`abi_struct!`](crate::abi_struct),
//! [`abi_enum!`](crate::abi_enum), [`abi_const!`](crate::abi_const) and [`header`] are public.

#[macro_use]
mod macros;
pub mod header;
mod moe;
mod moe_calls;
mod moe_words;
mod qp;
mod status;
mod team;
mod types;

pub use moe::*;
pub use moe_calls::*;
pub use moe_words::*;
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
