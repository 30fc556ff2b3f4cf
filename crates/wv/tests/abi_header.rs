//! The checked-in header of the measuring kernels is the one that the Rust definitions render.

use std::path::Path;

use warpverbs::abi::header;

#[test]
fn the_header_of_the_measuring_kernels_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/bench/abi.h");
    header::check(&path, &wv::abi::render()).unwrap_or_else(|error| panic!("{error}"));
}
