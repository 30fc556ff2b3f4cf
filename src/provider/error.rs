//! What providers refuse.

use std::io;

use crate::error::ThreadRefused;
use crate::gpu::GpuError;
use crate::provider::ofi::OfiError;
use crate::verbs::VerbsError;

/// What a provider refuses or reports, with the value and the limit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// An error of the HCA or its driver.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// An error of the device that the memory is on.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Memory of a GPU that cannot be registered with any HCA.
    #[error(
        "{bytes} bytes at {address:#x} of {gpu} have neither a DMA-BUF, nor does the driver register GPU memory by its address; it must be \
         memory with one of both: pages of one allocation and a driver with DMA-BUFs, or the module nvidia-peermem"
    )]
    NotOffered {
        /// The device.
        gpu: String,
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A GPU whose kernels may see an HCA's writes late or in another order, and which the host cannot flush.
    #[error(
        "{gpu} shows its kernels an HCA's writes in no order (GPU_DIRECT_RDMA_WRITES_ORDERING is none) and the host cannot flush them \
         (GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS has no HOST); it must do one of both for an engine that registers its memory"
    )]
    NoFlush {
        /// The device.
        gpu: String,
    },
    /// What libfabric refuses.
    #[error(transparent)]
    Ofi(#[from] OfiError),
    /// A thread of the engine could not be started.
    #[error(transparent)]
    Thread(#[from] ThreadRefused),
    /// A failed system call.
    #[error("{call}: {source}")]
    System {
        /// Name of the call.
        call: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Memory of no bytes, or of more than the address space has.
    #[error("{bytes} bytes of host memory; they must be 1 to {most}")]
    Memory {
        /// Number of bytes asked for.
        bytes: u64,
        /// Largest number of bytes.
        most: u64,
    },
    /// A range of a program's memory with pages that no longer exist.
    #[error(
        "{bytes} bytes at {address:#x} are not all there: their file was truncated; keep the file as long as the memory is used"
    )]
    Gone {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A range that is not inside its memory.
    #[error("{bytes} bytes at offset {offset} of a memory of {has} bytes")]
    Range {
        /// Offset of the range's first byte.
        offset: u64,
        /// Number of bytes of the range.
        bytes: u64,
        /// Number of bytes of the memory.
        has: u64,
    },
}

impl ProviderError {
    pub(super) fn system(call: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        Self::System { call, source }
    }
}
