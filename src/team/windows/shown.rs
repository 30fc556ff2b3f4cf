//! Windows as kernels reach them by load and store: the handle that this rank publishes, and the memory of peers that it has opened.

use serde::{Deserialize, Serialize};

use crate::fabric::Reach;
use crate::gpu::{DeviceMemory, Gpu, MemoryHandle, OpenedMemory};

pub(super) const ALIGN: usize = 4096;

/// The properties of a window that are the same at all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::team) struct WindowShape {
    pub(in crate::team) bytes: u64,
    pub(in crate::team) purpose: String,
}

/// The offer to a peer of one window of this rank: what the peer needs to write the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::team) struct WindowOffer {
    pub(in crate::team) shape: WindowShape,
    pub(in crate::team) base: u64,
    /// The keys by rail; empty for a window that no peer writes.
    pub(in crate::team) rkeys: Vec<u32>,
    /// The handle by which other processes of the machine open the window; none if they cannot.
    pub(in crate::team) handle: Option<MemoryHandle>,
}

/// The access to a window by loads and stores: the handle that this rank publishes, and the memory of peers that it has opened.
#[derive(Debug)]
pub(super) struct Shown {
    /// The handle by which other processes of the machine open the window; none if they cannot.
    handle: Option<MemoryHandle>,
    /// The opened memory of each peer.
    opened: Vec<Option<OpenedMemory>>,
}

impl Shown {
    /// Makes the access to a window in `memory`, in a team of so many ranks. `shared`: other processes may open the memory.
    pub(super) fn new(memory: &DeviceMemory, shared: bool, ranks: u32) -> Self {
        let handle = match shared.then(|| memory.handle()) {
            Some(Ok(handle)) => handle,
            Some(Err(error)) => {
                tracing::warn!("other processes reach a window by the HCA only: {error}");
                None
            }
            None => None,
        };
        Self {
            handle,
            opened: (0..ranks).map(|_| None).collect(),
        }
    }

    /// Returns the address at which kernels of this rank reach the window of `peer`; 0 if they cannot. A peer of this process has
    /// the window at `here`, as its team has registered it. A peer of another process has published the `handle` that opens it; the
    /// caller has checked the handle.
    pub(super) fn open(
        &mut self,
        gpu: &dyn Gpu,
        peer: u32,
        reach: Reach,
        here: Option<u64>,
        handle: Option<&MemoryHandle>,
    ) -> u64 {
        let handle = match (reach, handle) {
            (Reach::Process, _) => return here.unwrap_or(0),
            (Reach::Machine, Some(handle)) => handle,
            _ => return 0,
        };
        match gpu.open_memory(handle) {
            Ok(opened) if !opened.addr().is_multiple_of(ALIGN as u64) => {
                let addr = opened.addr();
                tracing::warn!(
                    "a window of rank {peer} is reached by the HCA only: it opens at {addr:#x}, no multiple of {ALIGN}"
                );
                0
            }
            Ok(opened) => {
                let addr = opened.addr();
                self.opened[peer as usize] = Some(opened);
                addr
            }
            Err(error) => {
                tracing::warn!("a window of rank {peer} is reached by the HCA only: {error}");
                0
            }
        }
    }

    pub(super) fn handle(&self) -> Option<&MemoryHandle> {
        self.handle.as_ref()
    }

    /// Closes the memory of `peer`: no kernel reaches it by load and store any more.
    pub(super) fn close(&mut self, peer: u32) {
        self.opened[peer as usize] = None;
    }
}

/// Refuses a handle by which less than a window of `bytes` would be opened. The error is the reason in words.
pub(in crate::team) fn check_handle(
    handle: Option<&MemoryHandle>,
    bytes: u64,
) -> Result<(), String> {
    match handle.map(MemoryHandle::bytes) {
        Some(told) if told < bytes => {
            Err(format!("a handle of {told} bytes for a window of {bytes}"))
        }
        _ => Ok(()),
    }
}
