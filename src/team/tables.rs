//! The team in device memory: what kernels read of it. One block; its address never moves.

use std::sync::Arc;

use bytemuck::Zeroable;

use super::config::MAX_WINDOWS;
use super::{TeamConfig, TeamError};
use crate::abi::{DeviceConfig, DevicePtr, PeerEntry, QpContext, TeamContext};
use crate::gpu::{DeviceMemory, Gpu};

const ALIGN: u64 = 128;

/// Context, settings, QP pointers and peer table.
#[derive(Debug)]
pub(super) struct Tables {
    gpu: Arc<dyn Gpu>,
    memory: DeviceMemory,
    config: u64,
    peers: u64,
    ranks: u32,
}

impl Tables {
    /// Fills a new block; `contexts` are the QP pointers, `[peer][qps_per_peer]`.
    pub(super) fn new(
        gpu: &Arc<dyn Gpu>,
        team: &TeamConfig,
        contexts: &[u64],
    ) -> Result<Self, TeamError> {
        let after = |at: u64, bytes: usize| (at + bytes as u64).next_multiple_of(ALIGN);
        let config = after(0, size_of::<TeamContext>());
        let qps = after(config, size_of::<DeviceConfig>());
        let peers = after(qps, size_of_val(contexts));
        let entries = (MAX_WINDOWS * team.ranks) as usize;
        let bytes = peers + (entries * size_of::<PeerEntry>()) as u64;
        let bytes = usize::try_from(bytes).expect("at most 1,024 ranks");
        let memory = gpu.alloc(bytes, 128)?;
        let base = memory.addr();
        let tables = Self {
            gpu: Arc::clone(gpu),
            memory,
            config: base + config,
            peers: base + peers,
            ranks: team.ranks,
        };
        tables.write_config(team.deadline, false)?;
        gpu.write(base + qps, bytemuck::cast_slice(contexts))?;
        let context = TeamContext {
            rank: team.rank,
            ranks: team.ranks,
            max_ranks: team.ranks,
            qps_per_peer: team.qps_per_peer,
            max_windows: MAX_WINDOWS,
            rails: 1,
            qps: DevicePtr::<DevicePtr<QpContext>>::new(base + qps),
            peers: DevicePtr::new(base + peers),
            config: DevicePtr::new(base + config),
            ..TeamContext::zeroed()
        };
        gpu.write(base, bytemuck::bytes_of(&context))?;
        Ok(tables)
    }

    /// Device address of the `TeamContext`.
    pub(super) fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Sets the deadline of device calls and whether they end now.
    pub(super) fn write_config(
        &self,
        deadline: std::time::Duration,
        abort: bool,
    ) -> Result<(), TeamError> {
        let config = DeviceConfig {
            deadline_ns: u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX),
            abort: abort.into(),
            ..DeviceConfig::zeroed()
        };
        Ok(self.gpu.write(self.config, bytemuck::bytes_of(&config))?)
    }

    /// Sets the row of `window`: where it lies at each peer.
    pub(super) fn write_window(&self, window: u32, entries: &[PeerEntry]) -> Result<(), TeamError> {
        let row = u64::from(window) * u64::from(self.ranks) * size_of::<PeerEntry>() as u64;
        Ok(self
            .gpu
            .write(self.peers + row, bytemuck::cast_slice(entries))?)
    }
}
