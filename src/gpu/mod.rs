//! Devices that run kernels: the trait [`Gpu`], with CUDA and simt as its implementations.
//!
//! A `Gpu` is one device. Launches run asynchronously, and launches of one [`Stream`] in the order in which they were made. Copies by
//! [`Gpu::read`] and [`Gpu::write`] happen at once and do *not* wait for any stream. The runtime uses them beside running kernels, on
//! host-mapped words or on memory that no kernel touches at that time. `simt` runs the kernels on the CPU. Its device memory is ordinary
//! memory, which the software HCA reads and writes directly. `cuda` uses the driver API.
//!
//! A device knows the kernels of this crate. The kernels of any other crate are a [`KernelSet`], made by that crate's build script and
//! added by [`Gpu::add_kernels`].
//!
//! ```
//! use warpverbs::gpu::{self, GpuSelector};
//!
//! let gpu = gpu::open(GpuSelector::Simt)?;
//! let memory = gpu.alloc(64, 64)?;
//! gpu.write(memory.addr(), &[7; 64])?;
//! let mut bytes = [0; 64];
//! gpu.read(memory.addr(), &mut bytes)?;
//! assert_eq!(bytes, [7; 64]);
//! # Ok::<(), warpverbs::gpu::GpuError>(())
//! ```
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! select.rs          the choice of a device
//! cuda.rs simt.rs    devices: a CUDA GPU; kernels on the CPU
//! forward.rs device.rs   devices that stand before another one; the trait `Gpu`
//! arena.rs launch.rs   the memory of a device; what to launch
//! stream.rs          streams and graphs
//! event.rs memory.rs survey.rs register_page.rs   the end of a launch; memory as the host owns it; devices before they are opened; pages of registers
//! share.rs ranges.rs kernel_set.rs copy.rs facts.rs rdma.rs   names of memory between processes; live ranges; kernels of a crate; plain data
//! file.rs            files that processes map
//! error.rs           all errors
//! ```

mod arena;
mod copy;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod error;
mod event;
mod facts;
mod file;
mod forward;
mod kernel_set;
mod launch;
mod memory;
mod ranges;
mod rdma;
mod register_page;
mod select;
mod share;
pub mod simt;
mod stream;
mod survey;

pub use arena::Arena;
pub use copy::CopyPiece;
pub use device::Gpu;
pub use error::{GpuError, OldDriver};
pub use event::Event;
pub use facts::{DeviceFacts, KernelFacts, RegisterKind};
pub(crate) use file::{FileName, Mapping, SharedFile};
pub use kernel_set::KernelSet;
#[doc(hidden)]
pub use kernel_set::kernel_set_table;
pub use launch::{Dim3, Launch, Persistent};
pub use memory::{DeviceMemory, HostMapped, MappedMmio, MemoryDmabuf, OpenedMemory};
pub use rdma::{GpuSlot, RdmaSupport, WriteOrdering};
pub use select::{GpuSelector, nvrtc, open, open_bare, open_for, survey, visible};
pub use share::MemoryHandle;
pub use stream::{Graph, Stream};
pub use survey::{ComputeMode, KernelNeeds, Survey, SurveyedGpu};
