//! What a device says of HCAs that read and write its memory.

use std::fmt;

use crate::topology::PciAddress;

/// Where a GPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuSlot {
    /// The driver's number of it, which depends on the devices that the process may see.
    pub ordinal: u32,
    /// Its PCI address, which does not.
    pub pci: PciAddress,
}

impl fmt::Display for GpuSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu {} ({})", self.ordinal, self.pci)
    }
}

/// Which observers see the writes of an HCA in the order in which they were made. Later ones include earlier ones.
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
    /// By its address, with the driver's peer-memory module (or because it is host memory).
    pub registration: bool,
    /// By DMA-BUFs, see [`DeviceMemory::dmabufs`](super::DeviceMemory::dmabufs).
    pub dmabuf: bool,
    /// Order in which an HCA's writes appear.
    pub write_ordering: WriteOrdering,
    /// Writes can be flushed by a call of the host.
    pub flush_by_host: bool,
    /// Writes can be flushed by a memory operation in a stream.
    pub flush_by_stream: bool,
}

impl RdmaSupport {
    /// Memory of the host.
    pub const HOST: Self = Self {
        registration: true,
        dmabuf: false,
        write_ordering: WriteOrdering::AllDevices,
        flush_by_host: false,
        flush_by_stream: false,
    };
}
