//! The checked-in headers are the ones that the Rust definitions render.

use std::{env, fs, path::Path};

use warpverbs::abi::header;

#[track_caller]
fn check(path: &str, rendered: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, rendered).unwrap();
    }
    let on_disk = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        on_disk == rendered,
        "stale {}: run UPDATE=1 cargo test --test abi_header",
        path.display()
    );
}

#[test]
fn the_public_header_is_current() {
    check("kernels/include/warpverbs/abi.h", &header::render());
}

#[test]
fn the_header_of_the_test_kernels_is_current() {
    check("kernels/test/abi.h", &header::render_tests());
}

#[test]
fn the_header_of_the_measuring_kernels_is_current() {
    check("kernels/bench/abi.h", &header::render_bench());
}
