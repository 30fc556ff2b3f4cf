//! Device memory that processes of one machine share, so that kernels of one process load from and store to memory of another.
//!
//! The owner allocates the memory with [`Gpu::alloc_shared`](super::Gpu::alloc_shared) and names it
//! ([`DeviceMemory::handle`](super::DeviceMemory::handle)). The name travels through the store. The other process opens the memory
//! ([`Gpu::open_memory`](super::Gpu::open_memory)) at an address of its own. A name is good while the owner lives: memory of a process that
//! has ended is not opened, even if another process has its number. Opened memory stays until the opener drops it, even if the owner has
//! ended.

use serde::{Deserialize, Serialize};

use super::error::GpuError;
use super::file::FileName;

/// A name by which other processes open device memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryHandle {
    bytes: u64,
    pub(super) name: Name,
}

/// The kinds of names that devices give memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Name {
    /// Memory of the CPU.
    File(FileName),
    /// Memory of a CUDA device.
    Cuda(CudaName),
}

/// A CUDA IPC handle, and the offset of the memory in the allocation that the driver opens by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CudaName {
    pub(super) ipc: Vec<u8>,
    pub(super) offset: u64,
}

impl MemoryHandle {
    pub(super) fn new(bytes: u64, name: Name) -> Self {
        Self { bytes, name }
    }

    /// Returns the length of the memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the name of the first `bytes` bytes of an allocation with this CUDA IPC handle.
    pub(crate) fn of_ipc(bytes: u64, ipc: &[u8]) -> Self {
        let name = Name::Cuda(CudaName {
            ipc: ipc.to_vec(),
            offset: 0,
        });
        Self { bytes, name }
    }

    /// Returns the CUDA IPC handle of the memory's allocation, and the memory's offset in it. None for a file.
    pub(crate) fn ipc(&self) -> Option<(&[u8], u64)> {
        match &self.name {
            Name::Cuda(name) => Some((&name.ipc, name.offset)),
            Name::File(_) => None,
        }
    }

    /// Returns the file that holds the memory. None for memory of a CUDA device.
    pub(crate) fn file(&self) -> Option<&FileName> {
        match &self.name {
            Name::File(name) => Some(name),
            Name::Cuda(_) => None,
        }
    }
}

/// Returns the error for memory that cannot be opened here, with the reason.
pub(super) fn refused(why: impl ToString) -> GpuError {
    GpuError::NotOpened {
        why: why.to_string(),
    }
}
