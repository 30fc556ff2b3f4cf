//! The structs of the kernel and of this crate are the same. Those that softhca has too are defined once, in crate `gpuhca-abi`.

use std::path::Path;

use gpuhca::abi;
use warpverbs::abi::header;

#[test]
fn the_header_of_the_kernel_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/gpuhca/abi.h");
    header::check(&path, &abi::render()).unwrap_or_else(|error| panic!("{error}"));
}
