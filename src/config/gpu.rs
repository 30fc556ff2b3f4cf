//! Which device kernels run on, in words.

use std::fmt;

use crate::config::number::whole;

/// Which device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuSelector {
    /// The CUDA GPU with the rank's number on its machine, if the machine has a driver and a GPU; else simt.
    #[default]
    Auto,
    /// The CPU.
    Simt,
    /// The CPU, with device memory that a software HCA registers by DMA-BUFs, as a NIC does that of a GPU.
    SimtDmabuf,
    /// CUDA device with this ordinal.
    Cuda(u32),
}

impl GpuSelector {
    /// The one that a word stands for: `auto`, `simt`, `simt-dmabuf`, a number.
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
