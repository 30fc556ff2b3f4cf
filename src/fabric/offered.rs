//! How HCAs reach memory of this rank: by one step of the ladder, for all registrations of that memory.

use std::os::fd::AsFd;

use super::error::FabricError;
use crate::gpu::{DeviceMemory, Gpu, MemoryDmabuf};
use crate::verbs::{Dmabuf, Rung};

/// Memory as it is offered where it is registered.
#[derive(Debug)]
pub(crate) struct Offered {
    rung: Rung,
    dmabuf: Option<MemoryDmabuf>,
}

impl Offered {
    /// Offers `memory` by the step `rung`.
    ///
    /// # Errors
    /// [`FabricError::Step`] if the owner of the memory does not offer it so.
    pub(crate) fn on(memory: &DeviceMemory, rung: Rung) -> Result<Self, FabricError> {
        let pcie = match rung {
            Rung::DmabufPcie => true,
            Rung::Dmabuf => false,
            Rung::Address | Rung::Host => return Ok(Self { rung, dmabuf: None }),
        };
        match memory.dmabuf(pcie) {
            Ok(Some(dmabuf)) => Ok(Self {
                rung,
                dmabuf: Some(dmabuf),
            }),
            Ok(None) => Err(FabricError::of_step(FabricError::NotOffered(if pcie {
                "DMA-BUFs across PCIe"
            } else {
                "DMA-BUFs"
            }))),
            Err(error) => Err(FabricError::of_step(error)),
        }
    }

    pub(crate) fn rung(&self) -> Rung {
        self.rung
    }

    /// Returns the DMA-BUF. Returns None if the memory is registered by its address.
    pub(crate) fn dmabuf(&self) -> Option<Dmabuf<'_>> {
        let MemoryDmabuf { fd, offset, pcie } = self.dmabuf.as_ref()?;
        Some(Dmabuf {
            fd: fd.as_fd(),
            offset: *offset,
            pcie: *pcie,
        })
    }
}

/// Returns memory of `gpu` for the step `rung`: device memory, or pinned host memory in its place.
///
/// # Errors
/// Errors of the device. If host memory is refused: [`FabricError::Step`].
pub(crate) fn memory_on(
    gpu: &dyn Gpu,
    rung: Rung,
    bytes: usize,
    align: usize,
    shared: bool,
) -> Result<DeviceMemory, FabricError> {
    match rung {
        Rung::Host if shared => gpu
            .alloc_host_shared(bytes, align)
            .map_err(FabricError::of_step),
        Rung::Host => gpu.alloc_host(bytes, align).map_err(FabricError::of_step),
        _ if shared => Ok(gpu.alloc_shared(bytes, align)?),
        _ => Ok(gpu.alloc(bytes, align)?),
    }
}
