//! Devices, streams and memory of cudarc.
//!
//! ```no_run
//! use warpverbs::gpu::Launch;
//! use warpverbs_interop::cudarc::{gpu, stream};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = cudarc::driver::CudaContext::new(0)?;
//! let own = context.new_stream()?;
//! let gpu = gpu(&context)?;
//! let stream = unsafe { stream(gpu.as_ref(), &own) }?;
//! let _launch = Launch::new("wv_example", 1, 32).with_stream(Some(&*stream)); // after what is in `own`
//! # Ok(())
//! # }
//! ```
//!
//! A stream, and memory, cannot go before their use:
//!
//! ```compile_fail,E0505
//! use std::sync::Arc;
//! use cudarc::driver::CudaStream;
//! use warpverbs::gpu::Gpu;
//! fn early(gpu: &dyn Gpu, own: Arc<CudaStream>) {
//!     let stream = unsafe { warpverbs_interop::cudarc::stream(gpu, &own) }.unwrap();
//!     drop(own);
//!     stream.record().unwrap();
//! }
//! ```
//!
//! ```compile_fail,E0505
//! use cudarc::driver::CudaSlice;
//! use warpverbs::gpu::Gpu;
//! fn early(gpu: &dyn Gpu, mut own: CudaSlice<u8>) {
//!     let memory = unsafe { warpverbs_interop::cudarc::memory(gpu, &mut own) }.unwrap();
//!     drop(own);
//!     println!("{}", memory.addr());
//! }
//! ```

// UNSAFETY: hands handles of the driver on by address.
#![expect(unsafe_code, reason = "handles of the CUDA driver")]

use std::sync::Arc;

use ::cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use warpverbs::gpu::cuda::CudaGpu;
use warpverbs::gpu::{DeviceMemory, Gpu, GpuError, Stream};

use crate::Lent;

/// The device of a context. It keeps the primary context itself.
///
/// # Errors
///
/// [`GpuError::BadArgument`] for a context that is not primary (`CudaContext::new_non_primary`); as [`CudaGpu::open`].
pub fn gpu(context: &CudaContext) -> Result<Arc<dyn Gpu>, GpuError> {
    // SAFETY: it lives through the call.
    let gpu = unsafe { CudaGpu::of_context(context.cu_ctx().cast()) }?;
    Ok(gpu)
}

/// A stream. Kernels that Warpverbs launches in it run after the program's earlier work in it.
///
/// # Errors
///
/// As [`Gpu::wrap_stream`].
///
/// # Safety
///
/// The stream lives until all clones of the result are gone, and what was launched in it has ended.
pub unsafe fn stream<'a>(
    gpu: &dyn Gpu,
    stream: &'a CudaStream,
) -> Result<Lent<'a, Stream>, GpuError> {
    // SAFETY: the caller's promise.
    unsafe { gpu.wrap_stream(stream.cu_stream().cast()) }.map(Lent::new)
}

/// Memory, for a window or for kernels. Of a device with memory pools cudarc takes it from a pool, which drivers do not export to
/// HCAs: what `cudarc::driver::result::malloc_sync` gives they do.
///
/// # Errors
///
/// As [`Gpu::wrap_memory`].
///
/// # Safety
///
/// Whatever value kernels and peers write, `T` has it. What is in the stream of the memory, and uses it, has ended.
pub unsafe fn memory<'a, T>(
    gpu: &dyn Gpu,
    memory: &'a mut CudaSlice<T>,
) -> Result<Lent<'a, DeviceMemory>, GpuError> {
    let bytes = memory.num_bytes();
    let stream = Arc::clone(memory.stream());
    let (addr, _read) = memory.device_ptr(&stream);
    // SAFETY: the memory is borrowed as long as the result lives.
    unsafe { gpu.wrap_memory(addr, bytes) }.map(Lent::new)
}
