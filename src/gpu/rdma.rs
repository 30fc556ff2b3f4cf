//! What a device says about HCAs that read and write its memory.

use std::fmt;

use crate::topology::PciAddress;

/// The ordinal and the PCI address of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuSlot {
    /// The driver's number of the GPU. It depends on which devices the process may see.
    pub ordinal: u32,
    /// The PCI address of the GPU. It does not depend on that.
    pub pci: PciAddress,
}

impl fmt::Display for GpuSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu {} ({})", self.ordinal, self.pci)
    }
}

/// The observers that see the writes of an HCA in the order in which they were made. Each variant includes the variants before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteOrdering {
    /// No observer, before a flush.
    None,
    /// Kernels of the device that owns the memory.
    Owner,
    /// Kernels of all devices.
    AllDevices,
}

/// How an HCA reaches the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaSupport {
    /// True if the HCA reaches the memory by its address, by the driver's peer-memory module or because it is host memory.
    pub registration: bool,
    /// True if the HCA reaches the memory by DMA-BUFs, see [`DeviceMemory::dmabufs`](super::DeviceMemory::dmabufs).
    pub dmabuf: bool,
    /// The observers that see an HCA's writes in order.
    pub write_ordering: WriteOrdering,
    /// True if a call of the host can flush writes.
    pub flush_by_host: bool,
    /// True if a memory operation in a stream can flush writes.
    pub flush_by_stream: bool,
}

impl RdmaSupport {
    /// The support of host memory.
    pub const HOST: Self = Self {
        registration: true,
        dmabuf: false,
        write_ordering: WriteOrdering::AllDevices,
        flush_by_host: false,
        flush_by_stream: false,
    };
}
