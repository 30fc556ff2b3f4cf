//! A handle: the device memory that follows one call through its four phases.

use std::sync::Arc;

use bytemuck::Zeroable;

use super::layout::HandleLayout;
use super::{CallReport, MoeConfig, MoeError};
use crate::abi::{DevicePtr, MoeHandle, MoeHandlePeer};
use crate::gpu::{DeviceMemory, Gpu};
use crate::team::Team;

/// The handle of one call at a time. A program with two calls open at once (two micro-batches, or a combine received after the
/// next dispatch is sent) has two.
#[derive(Debug)]
pub struct MoeCall {
    gpu: Arc<dyn Gpu>,
    memory: DeviceMemory,
    layout: HandleLayout,
    rank: u32,
    ranks: u32,
}

impl MoeCall {
    pub(super) fn new(team: &Team, config: &MoeConfig) -> Result<Self, MoeError> {
        let gpu = Arc::clone(team.gpu());
        let layout = HandleLayout::new(config, team.ranks());
        let bytes = usize::try_from(layout.bytes).expect("checked with the shape");
        let memory = gpu.alloc(bytes, 128)?;
        let at = |offset: u64| memory.addr() + offset;
        let handle = MoeHandle {
            peers: DevicePtr::new(at(layout.peers)),
            row_of: DevicePtr::new(at(layout.row_of)),
            token_of: DevicePtr::new(at(layout.token_of)),
            sources: DevicePtr::new(at(layout.sources)),
            picks: DevicePtr::new(at(layout.picks)),
            chosen: DevicePtr::new(at(layout.chosen)),
            weights: DevicePtr::new(at(layout.weights)),
            ..MoeHandle::zeroed()
        };
        gpu.write(memory.addr(), bytemuck::bytes_of(&handle))?;
        Ok(Self {
            gpu,
            memory,
            layout,
            rank: team.rank(),
            ranks: team.ranks(),
        })
    }

    /// Device address of the [`MoeHandle`].
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// How the call went so far. The phases that are asked about have ended.
    ///
    /// # Errors
    /// The device's.
    pub fn report(&self) -> Result<CallReport, MoeError> {
        let mut handle = MoeHandle::zeroed();
        self.gpu
            .read(self.addr(), bytemuck::bytes_of_mut(&mut handle))?;
        let mut peers = vec![MoeHandlePeer::zeroed(); self.ranks as usize];
        let at = self.addr() + self.layout.peers;
        self.gpu.read(at, bytemuck::cast_slice_mut(&mut peers))?;
        Ok(CallReport::new(self.rank, &handle, peers))
    }

    /// The report as an error unless everything went through.
    ///
    /// # Errors
    /// [`MoeError::Call`]; the device's.
    pub fn check(&self) -> Result<CallReport, MoeError> {
        let report = self.report()?;
        match report.is_complete() {
            true => Ok(report),
            false => Err(MoeError::Call(Box::new(report))),
        }
    }
}
