//! Devices, streams and memory of cust.
//!
//! ```no_run
//! use warpverbs::gpu::Launch;
//! use warpverbs_interop::cust::{gpu, stream};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = cust::quick_init()?;
//! let own = cust::stream::Stream::new(cust::stream::StreamFlags::DEFAULT, None)?;
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
//! use cust::stream::Stream;
//! use warpverbs::gpu::Gpu;
//! fn early(gpu: &dyn Gpu, own: Stream) {
//!     let stream = unsafe { warpverbs_interop::cust::stream(gpu, &own) }.unwrap();
//!     drop(own);
//!     stream.record().unwrap();
//! }
//! ```
//!
//! ```compile_fail,E0505
//! use cust::memory::DeviceBuffer;
//! use warpverbs::gpu::Gpu;
//! fn early(gpu: &dyn Gpu, mut own: DeviceBuffer<u8>) {
//!     let memory = unsafe { warpverbs_interop::cust::memory(gpu, &mut own) }.unwrap();
//!     drop(own);
//!     println!("{}", memory.addr());
//! }
//! ```

// UNSAFETY: hands handles of the driver on by address.
#![expect(unsafe_code, reason = "handles of the CUDA driver")]

use std::sync::Arc;

use ::cust::context::Context;
use ::cust::memory::{DeviceBuffer, DeviceCopy};
use ::cust::stream::Stream as CustStream;
use warpverbs::gpu::cuda::CudaGpu;
use warpverbs::gpu::{DeviceMemory, Gpu, GpuError, Stream};

use crate::Lent;

/// The device of a context, which of cust is always the primary one. It keeps that itself.
///
/// # Errors
///
/// As [`CudaGpu::open`].
pub fn gpu(context: &Context) -> Result<Arc<dyn Gpu>, GpuError> {
    // SAFETY: it lives through the call.
    let gpu = unsafe { CudaGpu::of_context(context.as_raw().cast()) }?;
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
    stream: &'a CustStream,
) -> Result<Lent<'a, Stream>, GpuError> {
    // SAFETY: the caller's promise.
    unsafe { gpu.wrap_stream(stream.as_inner().cast()) }.map(Lent::new)
}

/// Memory, for a window or for kernels.
///
/// # Errors
///
/// As [`Gpu::wrap_memory`].
///
/// # Safety
///
/// Whatever value kernels and peers write, `T` has it. What was launched, and uses the memory, has ended.
pub unsafe fn memory<'a, T: DeviceCopy>(
    gpu: &dyn Gpu,
    memory: &'a mut DeviceBuffer<T>,
) -> Result<Lent<'a, DeviceMemory>, GpuError> {
    let bytes = memory.len() * size_of::<T>();
    // SAFETY: the memory is borrowed as long as the result lives.
    unsafe { gpu.wrap_memory(memory.as_device_ptr().as_raw(), bytes) }.map(Lent::new)
}
