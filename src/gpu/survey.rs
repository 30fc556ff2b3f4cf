//! What the CUDA driver of this machine says before any of its devices is opened.

use super::{GpuSlot, RdmaSupport};

/// The CUDA driver and its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// CUDA version that the driver runs, for example `(13, 0)`.
    pub cuda: (u32, u32),
    /// The devices that this process may see, by ordinal.
    pub gpus: Vec<SurveyedGpu>,
}

/// One device of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SurveyedGpu {
    /// Ordinal and PCI address of the device.
    pub slot: GpuSlot,
    /// The driver's name of the device.
    pub name: String,
    /// Compute capability, for example 90 for sm_90.
    pub arch: u32,
    /// Memory of the device in bytes, as the driver reports it.
    pub memory_bytes: u64,
    /// The processes that may make contexts on the device.
    pub compute_mode: ComputeMode,
    /// How an HCA reaches the device's memory.
    pub rdma: RdmaSupport,
    /// What the kernels of this crate need on the device.
    pub kernels: KernelNeeds,
}

/// The processes that may use a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One process at a time.
    ExclusiveProcess,
    /// No process.
    Prohibited,
    /// A code that this version does not know.
    Other(u32),
}

/// The versions that can load the PTX of this crate's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelNeeds {
    /// Version of the PTX; zeros if the crate has no PTX that the device can run.
    pub ptx: (u32, u32),
    /// CUDA version of a driver that reads this PTX.
    pub cuda: (u32, u32),
    /// First driver release with that CUDA version.
    pub release: u32,
}
