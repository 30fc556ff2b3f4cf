//! The measurements of `wv bench` on software HCAs and simt: they count what the protocols say.

#[path = "../../../../tests/common/mod.rs"]
mod common;
mod moe;
mod rejoin;
