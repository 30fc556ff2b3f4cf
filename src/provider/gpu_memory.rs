//! Memory of a GPU that HCAs read and write for as long as this process holds it.

// UNSAFETY: takes memory of a program on trust.
#![expect(unsafe_code, reason = "memory shared with HCAs")]

use std::any::Any;
use std::fmt;
use std::fs;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::error::ProviderError;
use super::local::{IpcName, MemoryName};
use super::memory::HostMemory;
use crate::gpu::{DeviceMemory, Gpu, MemoryDmabuf, RdmaSupport, WriteOrdering};
use crate::verbs::Dmabuf;

/// Memory of a GPU. HCAs and kernels read and write it; no thread of this process does so by its address.
pub struct GpuMemory {
    gpu: Arc<dyn Gpu>,
    memory: Arc<DeviceMemory>,
    /// Offset in `memory` of the first byte.
    offset: u64,
    bytes: u64,
    /// The device's number for the allocation that `memory` lies in.
    buffer: Option<u64>,
    support: RdmaSupport,
    /// What keeps the memory. It is dropped last.
    #[expect(dead_code, reason = "held for its drop")]
    owner: Option<Box<dyn Any + Send + Sync>>,
}

impl GpuMemory {
    /// Returns all of `memory`, which `gpu` has allocated or wrapped.
    ///
    /// # Errors
    /// [`ProviderError::Gpu`]: the memory is not of this device; [`ProviderError::NoFlush`].
    pub fn new(gpu: &Arc<dyn Gpu>, memory: &Arc<DeviceMemory>) -> Result<Self, ProviderError> {
        gpu.check_range(memory.addr(), memory.bytes())?;
        Self::of(gpu, Arc::clone(memory), None)
    }

    /// Returns the `bytes` bytes at `address`, which the program has allocated on `gpu`. `owner` may be what keeps the bytes: it is dropped
    /// after everything that uses them.
    ///
    /// # Errors
    /// [`ProviderError::Gpu`]: no byte, memory of another device, or a range that no allocation has; [`ProviderError::NoFlush`].
    ///
    /// # Safety
    /// The bytes stay allocated until the result is dropped. Before that every region that was registered of it has been taken away,
    /// or its engine closed. Meanwhile no Rust reference to them is used, since HCAs read and write them.
    pub unsafe fn over(
        gpu: &Arc<dyn Gpu>,
        address: u64,
        bytes: u64,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, ProviderError> {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller's promise.
        let memory = unsafe { gpu.lend_memory(address, length) }?;
        Self::of(gpu, Arc::new(memory), owner)
    }

    fn of(
        gpu: &Arc<dyn Gpu>,
        memory: Arc<DeviceMemory>,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, ProviderError> {
        let support = gpu.rdma()?;
        if support.write_ordering == WriteOrdering::None && !support.flush_by_host {
            let gpu = gpu.label();
            return Err(ProviderError::NoFlush { gpu });
        }
        Ok(Self {
            buffer: gpu.buffer_id(memory.addr())?,
            gpu: Arc::clone(gpu),
            offset: 0,
            bytes: memory.bytes() as u64,
            memory,
            support,
            owner,
        })
    }

    /// Returns the `bytes` bytes at `offset` of `whole` as memory of their own, which keeps `whole`.
    ///
    /// # Errors
    /// [`ProviderError::Memory`]: `bytes` is 0; [`ProviderError::Range`]: the bytes are not all inside `whole`.
    pub fn part(whole: &Arc<Self>, offset: u64, bytes: u64) -> Result<Self, ProviderError> {
        let has = whole.bytes;
        if bytes == 0 {
            return Err(ProviderError::Memory { bytes, most: has });
        }
        if offset.checked_add(bytes).is_none_or(|end| end > has) {
            return Err(ProviderError::Range { offset, bytes, has });
        }
        Ok(Self {
            gpu: Arc::clone(&whole.gpu),
            memory: Arc::clone(&whole.memory),
            offset: whole.offset + offset,
            bytes,
            buffer: whole.buffer,
            support: whole.support,
            owner: Some(Box::new(Arc::clone(whole))),
        })
    }

    /// Returns the address of the first byte, which requests and kernels use.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.addr() + self.offset
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn gpu(&self) -> &Arc<dyn Gpu> {
        &self.gpu
    }

    /// Returns the GPU of this memory if that GPU makes copies.
    pub(crate) fn copier(&self) -> Option<&Arc<dyn Gpu>> {
        Some(&self.gpu).filter(|gpu| gpu.copies_within().is_some())
    }

    /// Returns the name by which other processes reach the memory. Returns None if the driver has no such name, or names a file that begins
    /// before this memory.
    pub(crate) fn name(&self) -> Option<MemoryName> {
        let handle = match self.memory.handle() {
            Ok(handle) => handle?,
            Err(error) => {
                tracing::debug!("no other process opens {self:?}: {error}");
                return None;
            }
        };
        if let Some(file) = handle.file() {
            return (self.offset == 0).then(|| MemoryName::File(file.clone()));
        }
        let (ipc, offset) = handle.ipc()?;
        IpcName::new(ipc, offset + self.offset, self.buffer?).map(MemoryName::Cuda)
    }

    /// Returns whether kernels see what an HCA has written only after a flush.
    pub(crate) fn needs_flush(&self) -> bool {
        self.support.write_ordering == WriteOrdering::None
    }

    /// Returns whether the address still has the allocation that it had when this memory was made.
    pub(crate) fn is_there(&self) -> Result<bool, ProviderError> {
        Ok(self.gpu.buffer_id(self.memory.addr())? == self.buffer)
    }

    /// Returns the DMA-BUFs of the memory, the best first. Each gives the offset of the memory's first byte in it. The list is empty if an
    /// HCA registers the memory by its address.
    pub(crate) fn dmabufs(&self) -> Result<Vec<MemoryDmabuf>, ProviderError> {
        let mut dmabufs = match self.memory.dmabufs() {
            Ok(dmabufs) => dmabufs,
            Err(error) if self.support.registration => {
                tracing::debug!("{self:?} is registered by its address: {error}");
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        if dmabufs.is_empty() && !self.support.registration {
            return Err(ProviderError::NotOffered {
                gpu: self.gpu.label(),
                address: self.address(),
                bytes: self.bytes,
            });
        }
        for dmabuf in &mut dmabufs {
            dmabuf.offset += self.offset;
        }
        Ok(dmabufs)
    }

    /// Returns the NUMA node of its GPU, if the system says it.
    fn numa_node(&self) -> Option<u32> {
        let pci = self.gpu.slot()?.pci;
        let text = fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/numa_node"));
        text.ok()?.trim().parse().ok()
    }
}

impl fmt::Debug for GpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gpu, bytes) = (self.gpu.label(), self.bytes);
        let address = self.address();
        write!(f, "GpuMemory({bytes} bytes at {address:#x} of {gpu})")
    }
}

/// Memory of the host or of a GPU, as an engine registers it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyMemory {
    /// Memory of the host.
    Host(Arc<HostMemory>),
    /// Memory of a GPU.
    Gpu(Arc<GpuMemory>),
}

impl AnyMemory {
    /// Returns the address of the first byte, which requests use.
    #[must_use]
    pub fn address(&self) -> u64 {
        match self {
            Self::Host(memory) => memory.address(),
            Self::Gpu(memory) => memory.address(),
        }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Host(memory) => memory.bytes(),
            Self::Gpu(memory) => memory.bytes(),
        }
    }

    /// Returns the memory if it is of a GPU.
    pub(crate) fn gpu(&self) -> Option<&Arc<GpuMemory>> {
        match self {
            Self::Host(_) => None,
            Self::Gpu(memory) => Some(memory),
        }
    }

    /// Returns the NUMA node that the memory is near, if the system says it.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        match self {
            Self::Host(memory) => memory.numa_node(),
            Self::Gpu(memory) => memory.numa_node(),
        }
    }
}

impl From<&Arc<HostMemory>> for AnyMemory {
    fn from(memory: &Arc<HostMemory>) -> Self {
        Self::Host(Arc::clone(memory))
    }
}

impl From<&Arc<GpuMemory>> for AnyMemory {
    fn from(memory: &Arc<GpuMemory>) -> Self {
        Self::Gpu(Arc::clone(memory))
    }
}

impl From<&Self> for AnyMemory {
    fn from(memory: &Self) -> Self {
        memory.clone()
    }
}

/// Returns a DMA-BUF in the form that verbs take.
pub(super) fn dmabuf_of(offered: &MemoryDmabuf) -> Dmabuf<'_> {
    Dmabuf {
        fd: offered.fd.as_fd(),
        offset: offered.offset,
        pcie: offered.pcie,
    }
}
