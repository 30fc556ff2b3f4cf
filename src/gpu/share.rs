//! Device memory that processes of one machine show each other, so that kernels of one load from and store to that of another.
//!
//! The owner allocates it with [`Gpu::alloc_shared`](super::Gpu::alloc_shared) and names it ([`DeviceMemory::handle`](super::DeviceMemory::handle)). The name
//! travels through the store. The other process opens it ([`Gpu::open_memory`](super::Gpu::open_memory)) at an address of its
//! own. A name is good while its owner lives: of a process that has ended nothing is opened, also where another one has got its
//! number. What has been opened stays until it is dropped, and with it the memory, whose owner may have died.

use serde::{Deserialize, Serialize};

use super::error::GpuError;
use super::file::FileName;

/// A name by which other processes open device memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryHandle {
    bytes: u64,
    pub(super) name: Name,
}

/// How a device names memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Name {
    /// Memory of the CPU.
    File(FileName),
    /// Memory of a CUDA device.
    Cuda(CudaName),
}

/// A CUDA IPC handle, and where the memory begins in what the driver opens by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CudaName {
    pub(super) ipc: Vec<u8>,
    pub(super) offset: u64,
}

impl MemoryHandle {
    pub(super) fn new(bytes: u64, name: Name) -> Self {
        Self { bytes, name }
    }

    /// Length of the memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// That of the first `bytes` bytes of an allocation with this CUDA IPC handle.
    pub(crate) fn of_ipc(bytes: u64, ipc: &[u8]) -> Self {
        let name = Name::Cuda(CudaName {
            ipc: ipc.to_vec(),
            offset: 0,
        });
        Self { bytes, name }
    }

    /// Returns the CUDA IPC handle of its allocation, and where in that it begins.
    pub(crate) fn ipc(&self) -> Option<(&[u8], u64)> {
        match &self.name {
            Name::Cuda(name) => Some((&name.ipc, name.offset)),
            Name::File(_) => None,
        }
    }

    /// Returns the file that it is.
    pub(crate) fn file(&self) -> Option<&FileName> {
        match &self.name {
            Name::File(name) => Some(name),
            Name::Cuda(_) => None,
        }
    }
}

/// Returns the memory cannot be opened here, and why.
pub(super) fn refused(why: impl ToString) -> GpuError {
    GpuError::NotOpened {
        why: why.to_string(),
    }
}
