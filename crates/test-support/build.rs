//! Makes the set of kernels that only tests launch.

fn main() {
    // Those of conformance are big and run a few times each.
    warpverbs_build::kernels("kernels")
        .quick("kernels/conformance_")
        // Included by its path, and named here so that cargo sees its changes.
        .include("../gpuhca/kernels/gpuhca")
        .no_cpu_if_set("UPDATE")
        .for_cpu_only()
        .compile();
}
