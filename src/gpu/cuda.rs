//! A CUDA GPU by the driver API, opened at run time: without a driver the result is an error, never a panic.
//!
//! Kernels come from the checked-in PTX of the newest architecture that the device can run. The driver compiles it when the device is
//! opened. If the driver is too old for it, NVRTC compiles the embedded sources. No stream waits for another: neither the stream of copies,
//! nor the default stream, nor those that a user makes.
//!
//! ```no_run
//! use warpverbs::gpu::Gpu;
//! use warpverbs::gpu::cuda::{Compile, CudaGpu, CudaOptions};
//!
//! let gpu = CudaGpu::with_options(0, &CudaOptions::default().with_compile(Compile::Ptx))?;
//! println!("{}", gpu.label());
//! # Ok::<(), warpverbs::gpu::GpuError>(())
//! ```
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! gpu.rs             `CudaGpu`
//! survey.rs facts.rs   what the driver says before a device is opened, and of an open one
//! persistent.rs memory.rs   kernels that do not end by themselves; memory
//! share.rs register.rs rdma.rs stream.rs   memory between processes, pages of registers, peers that write memory; streams
//! device.rs          an open device
//! module.rs          loaded kernels
//! context.rs kernels.rs   the primary context; which images a device loads
//! waiting.rs cubins.rs nvrtc.rs options.rs   what waits for all kernels; machine code; the compiler; how a device is opened
//! driver.rs widen.rs sources.rs ptx.rs   calls of the driver; texts of kernels
//! functions.rs       the driver's functions that are called
//! ```

mod context;
mod cubins;
mod device;
mod driver;
mod facts;
mod functions;
mod gpu;
mod kernels;
mod memory;
mod module;
mod nvrtc;
mod options;
mod persistent;
mod ptx;
mod rdma;
mod register;
mod share;
mod sources;
mod stream;
mod survey;
mod waiting;
mod widen;

pub(super) use driver::visible;
pub use gpu::CudaGpu;
pub(super) use nvrtc::found_nvrtc;
pub use options::{Compile, CudaOptions, MemoryLocation};
pub use sources::CudaSource;
pub(super) use survey::survey;
