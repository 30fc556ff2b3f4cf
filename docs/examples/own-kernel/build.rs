//! Compiles the kernels of this crate: for the CPU, and as source for a GPU.

fn main() {
    warpverbs_build::kernels("kernels").compile();
}
