//! The device that kernels run on, as text.

use std::fmt;

use crate::config::number::whole;

/// The device that kernels run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuSelector {
    /// The CUDA GPU whose ordinal is the rank's number on its machine, if the machine has a driver and a GPU; otherwise simt.
    #[default]
    Auto,
    /// The CPU, by simt.
    Simt,
    /// The CPU, with device memory that a software HCA registers by DMA-BUFs, as a NIC registers the memory of a GPU.
    SimtDmabuf,
    /// The CUDA device with this ordinal.
    Cuda(u32),
}

impl GpuSelector {
    /// Returns the selector for a word: `auto`, `simt`, `simt-dmabuf` or a number.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self::Auto),
            "simt" => Some(Self::Simt),
            "simt-dmabuf" => Some(Self::SimtDmabuf),
            ordinal => whole(ordinal)?.try_into().ok().map(Self::Cuda),
        }
    }
}

impl fmt::Display for GpuSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Simt => f.write_str("simt"),
            Self::SimtDmabuf => f.write_str("simt-dmabuf"),
            Self::Cuda(ordinal) => write!(f, "{ordinal}"),
        }
    }
}
