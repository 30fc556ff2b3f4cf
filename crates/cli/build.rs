//! Makes the set of the doctor's kernel.

fn main() {
    // Its PTX is in git: `wv doctor` needs no NVRTC, whoever has built it.
    warpverbs_build::kernels("kernels")
        .no_cpu_if_set("UPDATE")
        .compile();
}
