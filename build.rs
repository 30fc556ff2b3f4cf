//! Makes the set of kernels of this crate (`src/gpu/kernel_set.rs` includes it), and passes the folder of the device library to
//! build scripts of dependents: `DEP_WARPVERBS_INCLUDE`.

use std::env;

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo names the package's folder");
    println!("cargo::metadata=include={root}/kernels/include");
    warpverbs_build::kernels("kernels")
        .include("kernels/include")
        .no_cpu_if_set("UPDATE")
        .compile();
}
