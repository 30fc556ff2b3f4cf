//! Compiles the thread-local of the current CUDA thread.

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
}
