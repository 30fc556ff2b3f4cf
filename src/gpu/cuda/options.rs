//! Options with which a CUDA device is opened.

use super::sources::CudaSource;
use crate::config::setters;

/// The place of a GPU's "device memory".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLocation {
    /// In the GPU's memory: for a real NIC.
    #[default]
    Device,
    /// In pinned host memory, which kernels reach by PCIe: for a software HCA, which cannot read a GPU's memory. Fences, loads and stores
    /// of the kernels are widened to system scope, since the host reads what they write. Slow.
    Host,
}

/// The source of the kernels of this crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compile {
    /// From the PTX of their set. If the set has no PTX, or none that the driver can read, NVRTC compiles its sources.
    #[default]
    Auto,
    /// From the PTX of their set, or not at all.
    Ptx,
    /// From the embedded sources, always.
    Nvrtc,
}

/// Options for opening a [`CudaGpu`](super::CudaGpu).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CudaOptions<'a> {
    /// The place of device memory. Default the GPU.
    pub location: MemoryLocation,
    /// The source of this crate's kernels. Default the checked-in PTX, if the driver can read it.
    pub compile: Compile,
    /// True to leave out the kernels of this crate, which a driver compiles for seconds: for programs that need memory and no MoE.
    pub bare: bool,
    /// PTX texts with kernels besides those of this crate. A kernel here replaces one of this crate with the same name.
    pub ptx: &'a [CudaSource<'a>],
    /// CUDA C++ texts with further kernels, which NVRTC compiles; `<warpverbs/..>` is the device library.
    pub sources: &'a [CudaSource<'a>],
    /// The files that `#include "NAME"` in `sources` finds.
    pub headers: &'a [CudaSource<'a>],
}

setters! {
    const CudaOptions<'a> {
        with_location(location: MemoryLocation),
        with_compile(compile: Compile),
        with_bare(bare: bool),
        with_ptx(ptx: &'a [CudaSource<'a>]),
        with_sources(sources: &'a [CudaSource<'a>]),
        with_headers(headers: &'a [CudaSource<'a>]),
    }
}
