//! The checked-in header is the one that the Rust definitions render.

use std::path::Path;

use warpverbs::abi::header;
use warpverbs::internal::abi_header;

#[track_caller]
fn check(path: &str, rendered: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    header::check(&path, rendered).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_public_header_is_current() {
    check("kernels/include/warpverbs/abi.h", &abi_header());
}
