//! Windows of peers that kernels of this rank reach by load and store: opened when a peer is connected, closed in its grace period.
//!
//! What holds stores back is not what holds packets back. A QP in Err and a key that has ended mean nothing to a process that has
//! the memory mapped. So a rank that could store into the windows of this one is replaced only when its process has ended. In one
//! process, its team must have ended. Until then this rank clears nothing of the layer and connects no QP, and the successor
//! waits. This rank closes its own mappings of the peer as soon as the peer has been failed and no kernel holds a guard of it.
//! That frees the memory of the process that has died.

use std::time::Instant;

use super::hello::{Offer, WindowOffer};
use super::links::{Known, PeerState};
use super::window::{ALIGN, OwnedWindow};
use super::{Team, TeamError};
use crate::fabric::{Identity, Reach};
use crate::gpu::{DeviceMemory, Gpu, MemoryHandle, OpenedMemory};

/// The access to a window by loads and stores: the handle that this rank publishes, and the memory of peers that it has opened.
#[derive(Debug)]
pub(super) struct Shown {
    /// By which other processes open it; none if they cannot.
    pub(super) handle: Option<MemoryHandle>,
    /// By peer.
    opened: Vec<Option<OpenedMemory>>,
}

impl Shown {
    /// Of memory that others may open, or not, in a team of so many ranks.
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

    /// Where kernels of this rank reach the window at `peer`; 0: nowhere. A peer of this process has it at `here`, as its team
    /// has registered it. A peer of another process has published the `handle` that opens it; the caller has checked the handle.
    pub(super) fn open(
        &mut self,
        gpu: &dyn Gpu,
        (peer, reach): (u32, Reach),
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

    fn close(&mut self, peer: u32) {
        self.opened[peer as usize] = None;
    }
}

/// Refuses a handle by which less than a window of `bytes` would be opened; why, in words.
pub(super) fn check_handle(handle: Option<&MemoryHandle>, bytes: u64) -> Result<(), String> {
    match handle.map(MemoryHandle::bytes) {
        Some(told) if told < bytes => {
            Err(format!("a handle of {told} bytes for a window of {bytes}"))
        }
        _ => Ok(()),
    }
}

impl Team {
    /// Whether kernels that open a path reach all windows of `peer` by load and store.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn is_direct(&self, peer: u32) -> Result<bool, TeamError> {
        self.peer(peer)?;
        let windows = self.tables.direct(peer);
        Ok(!windows.is_empty() && !windows.contains(&false))
    }

    /// Closes what this rank has opened of the memory of `peer`, which has been failed and is not waited for. The memory of a
    /// dead process stays allocated until all other ranks have closed it. `false` while kernels hold guards of it, or if it has
    /// not been failed; call it again. [`Team::connect_peer`] does it, too, for the next generation.
    ///
    /// # Errors
    /// A rank that the team does not have; the device's.
    pub(crate) fn release_peer(&self, peer: u32) -> Result<bool, TeamError> {
        let links = self.peer(peer)?;
        if !self.tables.direct(peer).contains(&true) {
            return Ok(true);
        }
        let Some(_only) = links.try_work() else {
            return Ok(false);
        };
        // Held, so that no thread opens the peer meanwhile.
        let state = links.state();
        if !state.failed || !self.tables.is_closed(peer) || self.tables.readers(peer)? != 0 {
            return Ok(false);
        }
        self.close_windows(peer)?;
        Ok(true)
    }

    /// Refuses generation `generation` of `peer` while the generation before it may still store into windows of this rank. The
    /// same check is part of [`Team::connect_peer`]. A layer calls this one before it clears what it knows of the former
    /// generation.
    ///
    /// # Errors
    /// [`TeamError::StillRuns`]; [`TeamError::Absent`] if the new generation has published no hello; as [`Team::resolve_peer`].
    pub(crate) fn check_former(&self, peer: u32, generation: u32) -> Result<(), TeamError> {
        if self.peer(peer)?.state().visitor.is_none() {
            return Ok(());
        }
        let known = self.known(peer, generation, Instant::now())?;
        self.former_is_over(peer, generation, &known.identity)
    }

    /// The same, of a generation that is known.
    pub(super) fn former_is_over(
        &self,
        peer: u32,
        generation: u32,
        successor: &Identity,
    ) -> Result<(), TeamError> {
        let mut state = self.peer(peer)?.state();
        match &state.visitor {
            Some((former, identity)) if *former != generation && !identity.is_over(successor) => {
                Err(TeamError::StillRuns {
                    peer,
                    generation: *former,
                    process: identity.process().to_string(),
                })
            }
            Some((former, _)) if *former != generation => {
                state.visitor = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Nothing of `peer` is reached by load and store any more. In its grace period.
    pub(super) fn close_windows(&self, peer: u32) -> Result<(), TeamError> {
        if self.tables.direct(peer).contains(&true) {
            self.tables.end_direct(peer)?;
        }
        for window in self.windows().iter_mut() {
            window.shown.close(peer);
        }
        Ok(())
    }

    /// Where kernels reach the windows of `peer` from now on, by window.
    pub(super) fn open_windows(&self, peer: u32, known: &Known, theirs: &Offer) -> Vec<u64> {
        let mut windows = self.windows();
        let pairs = windows.iter_mut().zip(&theirs.windows);
        let open = |(own, told): (&mut OwnedWindow, &WindowOffer)| match told.rkeys.is_empty() {
            true => 0,
            false => {
                let handle = told.handle.as_ref();
                let (gpu, reached) = (self.gpu.as_ref(), (peer, known.reach));
                let here = known.identity.window(own.window.id, own.window.bytes);
                own.shown.open(gpu, reached, here, handle)
            }
        };
        pairs.map(open).collect()
    }
}

impl PeerState {
    /// Publishes to generation `generation` the names and addresses by which it may store into windows of this rank, if it reaches
    /// them so.
    pub(super) fn admit(&mut self, generation: u32, reach: Reach, identity: &Identity) {
        if reach != Reach::Hca {
            self.visitor = Some((generation, identity.clone()));
        }
    }
}
