//! The kernels that only tests launch: `kernels/*.cu`.

use std::sync::Arc;

use warpverbs::gpu::{self, Gpu, GpuError, GpuSelector};

warpverbs::kernels! {
    /// The set of these kernels, for the CPU alone. A GPU loads their PTX from a folder that `./x gpu pack` fills.
    pub static KERNELS
}

/// Opens a device of the CPU and adds the kernels of tests.
///
/// # Errors
///
/// The errors of [`gpu::open`]. A GPU has no use for this set.
pub fn open(selector: GpuSelector) -> Result<Arc<dyn Gpu>, GpuError> {
    let gpu = gpu::open(selector)?;
    gpu.add_kernels(&KERNELS)?;
    Ok(gpu)
}
