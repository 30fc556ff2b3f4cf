//! How a CUDA device is opened.

use super::sources::CudaSource;
use crate::config::setters;

/// Where the "device memory" of a GPU lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLocation {
    /// In the GPU: for a real NIC.
    #[default]
    Device,
    /// In pinned host memory that kernels reach by PCIe: for a software HCA, which cannot look into a GPU. Fences, loads and
    /// stores of the kernels are widened to system scope, since the host reads what they write. Slow.
    Host,
}

/// Where the kernels of this crate come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compile {
    /// From the PTX of their set; from its sources by NVRTC if it has no PTX, or none that the driver can read.
    #[default]
    Auto,
    /// From the PTX of their set or not at all.
    Ptx,
    /// From the embedded sources, always.
    Nvrtc,
}

/// How a [`CudaGpu`](super::CudaGpu) is opened.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CudaOptions<'a> {
    /// Where allocations go. Default the GPU.
    pub location: MemoryLocation,
    /// Where this crate's kernels come from. Default the checked-in PTX, if the driver can read it.
    pub compile: Compile,
    /// Leaves out the kernels of this crate, which take a driver seconds to compile: for what needs memory and no MoE.
    pub bare: bool,
    /// PTX texts with kernels besides those of this crate; a name that the crate has too means the extra one.
    pub ptx: &'a [CudaSource<'a>],
    /// As `ptx`, as CUDA C++, which NVRTC compiles; `<warpverbs/..>` is the device library.
    pub sources: &'a [CudaSource<'a>],
    /// What `#include "NAME"` in `sources` finds.
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
