//! What the CUDA driver of this machine says before any of its devices is opened.

use super::{GpuSlot, RdmaSupport};

/// The driver and its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// CUDA version that the driver runs: `(13, 0)`.
    pub cuda: (u32, u32),
    /// The devices that this process may see, by ordinal.
    pub gpus: Vec<SurveyedGpu>,
}

/// One device of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SurveyedGpu {
    /// Ordinal and PCI address.
    pub slot: GpuSlot,
    /// The driver's name of it.
    pub name: String,
    /// Compute capability, 90 for sm_90.
    pub arch: u32,
    /// Memory of the device in bytes, as the driver reports it.
    pub memory_bytes: u64,
    /// Which processes may make contexts on it.
    pub compute_mode: ComputeMode,
    /// How an HCA reaches its memory.
    pub rdma: RdmaSupport,
    /// What the kernels of this crate need for it.
    pub kernels: KernelNeeds,
}

/// Which processes may use a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ComputeMode {
    /// Any number.
    Default,
    /// One process at a time.
    ExclusiveProcess,
    /// None.
    Prohibited,
    /// A code that this version does not know.
    Other(u32),
}

/// What it takes to load the PTX of this crate's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelNeeds {
    /// Version of the PTX, zeros if the crate has none that the device can run.
    pub ptx: (u32, u32),
    /// CUDA version of the driver.
    pub cuda: (u32, u32),
    /// First driver release with that version.
    pub release: u32,
}
