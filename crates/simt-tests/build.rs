//! Compiles the kernels of the tests.

fn main() {
    simt::build::kernels(
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
