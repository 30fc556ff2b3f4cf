//! The checked-in header of the test kernels is the one that the Rust definitions render.

use std::path::Path;

use warpverbs::abi::header;

#[test]
fn the_header_of_the_test_kernels_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/abi.h");
    header::check(&path, &test_support::abi::render()).unwrap_or_else(|error| panic!("{error}"));
}
