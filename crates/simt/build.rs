//! Compiles the thread-local of the current CUDA thread and, for the crate's own tests, their kernels.

#[cfg(feature = "test-kernels")]
#[path = "src/build/mod.rs"]
#[expect(
    unreachable_pub,
    dead_code,
    reason = "the same source is the public module `simt::build`"
)]
mod build;

fn main() {
    println!("cargo::rerun-if-changed=runtime/current.c");
    let mut current = cc::Build::new();
    current.file("runtime/current.c").flag("-g1");
    if cfg!(feature = "asan") {
        current.define("SIMT_ASAN", None);
    }
    current.compile("simt_current");
    #[cfg(feature = "tsan")]
    {
        println!("cargo::rerun-if-changed=runtime/order.c");
        cc::Build::new()
            .file("runtime/order.c")
            .flag("-g1")
            .opt_level(2)
            .compile("simt_order");
    }
    #[cfg(feature = "test-kernels")]
    build::kernels(
        [
            "warp.cu",
            "block.cu",
            "defects.cu",
            "speed.cu",
            "order.cu",
            "memory.cu",
        ]
        .map(|name| format!("tests/kernels/{name}")),
    )
    .compile();
}
