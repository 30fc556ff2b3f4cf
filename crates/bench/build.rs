//! Makes the set of kernels that measure, and that of the doctor.

fn main() {
    warpverbs_build::kernels("kernels/bench")
        .ptx_written_by("./x kernels")
        .no_cpu_if_set("UPDATE")
        .compile();
    // Its PTX is in git: `wv doctor` needs no NVRTC, whoever has built it.
    warpverbs_build::kernels("kernels/doctor")
        .named("doctor")
        .no_cpu_if_set("UPDATE")
        .compile();
}
