//! The header as text.

use super::{conformance, kernels, ops, team};
use warpverbs::abi::header;

/// Returns the text of `kernels/abi.h`.
#[must_use]
pub fn render() -> String {
    let mut items = kernels::items();
    items.extend(ops::items());
    items.extend(team::items());
    items.extend(conformance::items());
    let origin = "Rendered from src/abi by tests/docs/abi_header.rs; do not edit. Rewrite: UPDATE=1 cargo test --test abi_header.";
    header::file(origin, "wv", &["<warpverbs/abi.h>"], items)
}
