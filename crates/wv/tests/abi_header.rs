//! The checked-in headers of the measuring kernels and of the doctor's are those that the Rust definitions render.

use std::path::Path;

use warpverbs::abi::header;

#[track_caller]
fn check(path: &str, rendered: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    header::check(&path, rendered).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_header_of_the_measuring_kernels_is_current() {
    check(
        "../bench/kernels/abi.h",
        &warpverbs_bench::device::abi::render(),
    );
}

#[test]
fn the_header_of_the_doctors_kernel_is_current() {
    check(
        "../cli/kernels/abi.h",
        &warpverbs_cli::doctor::abi::render(),
    );
}
