//! How HCAs reach this rank's memory: by DMA-BUFs where its device exports them, else by address.
//!
//! What an HCA has refused once is not tried again: a peer's new keys cost one command each, whatever the first ones did.

use std::os::fd::AsFd;

use crate::gpu::{DeviceMemory, MemoryDmabuf};
use crate::verbs::{Dmabuf, Export};

/// DMA-BUFs of device memory, the best first, for all its registrations.
#[derive(Debug)]
pub(crate) struct Offered(Vec<MemoryDmabuf>);

impl Offered {
    /// Those of `memory`. One whose device cannot export it is left to its address.
    pub(crate) fn of(memory: &DeviceMemory) -> Self {
        Self(memory.dmabufs().unwrap_or_else(|error| {
            tracing::warn!("device memory is registered by its address, not a DMA-BUF: {error}");
            Vec::new()
        }))
    }

    pub(crate) fn list(&self) -> Vec<Dmabuf<'_>> {
        self.0.iter().map(borrow).collect()
    }

    /// Forgets those that a registration which ended in `export` has passed over.
    pub(crate) fn settle(&mut self, export: &Export) {
        let refused = export.refused.len().min(self.0.len());
        for (rung, error) in &export.refused[..refused] {
            tracing::warn!("no memory is registered by {rung}: {error}");
        }
        self.0.drain(..refused);
    }
}

fn borrow(dmabuf: &MemoryDmabuf) -> Dmabuf<'_> {
    let MemoryDmabuf { fd, offset, pcie } = dmabuf;
    Dmabuf {
        fd: fd.as_fd(),
        offset: *offset,
        pcie: *pcie,
    }
}
