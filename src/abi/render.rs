//! `kernels/include/warpverbs/abi.h`: what the device library has of the ABI.

use super::header::{constant_items, enum_item, file, struct_item};
use super::{
    DeviceConfig, PeerEntry, PeerGuard, QpContext, Status, TeamContext, Window, layer, moe,
    moe_calls, moe_words, qp, team,
};

/// How the headers of this package come about.
const ORIGIN: &str = "Rendered from src/abi by tests/docs/abi_header.rs; do not edit. Rewrite: UPDATE=1 cargo test --test abi_header.";

/// `kernels/include/warpverbs/abi.h`.
#[must_use]
pub(crate) fn render() -> String {
    let mut items = vec![enum_item::<Status>()];
    items.extend(constant_items(qp::constants()));
    items.extend(constant_items(team::constants()));
    items.extend([
        struct_item::<QpContext>(),
        struct_item::<PeerEntry>(),
        struct_item::<PeerGuard>(),
        struct_item::<Window>(),
        struct_item::<DeviceConfig>(),
        struct_item::<TeamContext>(),
    ]);
    items.extend(moe_words::items());
    items.extend(layer::items());
    items.extend(moe::items());
    items.extend(moe_calls::items());
    file(ORIGIN, "wv", &["<cstddef>", "<cstdint>"], items)
}
