//! The rungs of the export ladder: ways in which the HCA reaches memory.

use std::fmt;

/// A rung of the ladder, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rung {
    /// The HCA registers a DMA-BUF that was made for access across PCIe.
    DmabufPcie,
    /// The HCA registers another DMA-BUF of the memory.
    Dmabuf,
    /// The HCA registers the memory by its address.
    Address,
    /// The memory is host memory in place of device memory.
    Host,
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DmabufPcie => "dmabuf (PCIe)",
            Self::Dmabuf => "dmabuf",
            Self::Address => "address",
            Self::Host => "host memory",
        })
    }
}
