//! Makes the set of kernels that measure.

fn main() {
    warpverbs_build::kernels("kernels")
        .ptx_written_by("./x kernels")
        .no_cpu_if_set("UPDATE")
        .compile();
}
