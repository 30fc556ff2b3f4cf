//! The kernels that only tests launch: `kernels/*.cu`.

use std::sync::Arc;

use warpverbs::gpu::{self, Gpu, GpuError, GpuSelector};

warpverbs::kernels! {
    /// For the CPU alone. A GPU loads their PTX from a folder that `./x gpu pack` fills.
    pub static KERNELS
}

/// Opens a device of the CPU and adds the kernels of tests.
///
/// # Errors
///
/// As [`gpu::open`]; a GPU has no use for the set.
pub fn open(selector: GpuSelector) -> Result<Arc<dyn Gpu>, GpuError> {
    let gpu = gpu::open(selector)?;
    gpu.add_kernels(&KERNELS)?;
    Ok(gpu)
}
