//! Symmetric windows: the same number of bytes at every rank, which every rank may write.

// UNSAFETY: registers device memory, which this module owns, with the HCA.
#![expect(unsafe_code, reason = "registration of memory that the window owns")]

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::exchange::Exchange;
use super::{TeamConfig, TeamError};
use crate::abi::{PeerEntry, Window};
use crate::gpu::{DeviceMemory, Gpu};
use crate::verbs::{Access, Mr, Pd};

/// Longest window.
const MAX_WINDOW_BYTES: u64 = 1 << 40;
const ALIGN: usize = 4096;

/// One window of this rank.
#[derive(Debug)]
pub(super) struct OwnedWindow {
    /// A registration for each peer slot: what one peer is given can be taken from it alone. Before the memory.
    _keys: Vec<Mr>,
    _memory: DeviceMemory,
    pub(super) window: Window,
    /// By peer.
    pub(super) entries: Vec<PeerEntry>,
}

/// What a rank tells of a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WindowRecord {
    bytes: u64,
    base: u64,
    /// By peer.
    rkeys: Vec<u32>,
}

impl OwnedWindow {
    /// Makes window `id` and tells the others. Collective.
    pub(super) fn new(
        exchange: &Exchange,
        gpu: &dyn Gpu,
        pd: &Arc<Pd>,
        config: &TeamConfig,
        id: u32,
        bytes: u64,
    ) -> Result<Self, TeamError> {
        if !(1..=MAX_WINDOW_BYTES).contains(&bytes) {
            let limit = format!("1 to {MAX_WINDOW_BYTES} bytes");
            return Err(TeamError::limit("window", bytes, limit));
        }
        let length =
            usize::try_from(bytes).map_err(|_| TeamError::limit("window", bytes, usize::MAX))?;
        let memory = gpu.alloc(length, ALIGN)?;
        let register = |_| {
            // SAFETY: `memory` is device memory, to which no Rust reference exists, and it is dropped after the
            // registrations: by the order of the fields, or here, where `keys` is dropped first.
            unsafe { Mr::register(pd, memory.addr(), bytes, Access::ALL) }
        };
        let keys = (0..config.ranks)
            .map(register)
            .collect::<Result<Vec<_>, _>>()?;
        let own = WindowRecord {
            bytes,
            base: memory.addr(),
            rkeys: keys.iter().map(Mr::rkey).collect(),
        };
        let topic = format!("window-{id}");
        let records = exchange.all_checked(&topic, &own, |rank, record: &WindowRecord| {
            if record.rkeys.len() != config.ranks as usize {
                let reason = format!("{} keys; the team has {}", record.rkeys.len(), config.ranks);
                return Err(exchange.record(rank, &topic, &reason));
            }
            if record.bytes == bytes {
                return Ok(());
            }
            let what = format!("bytes of window {id}");
            Err(exchange.mismatch(&what, bytes.to_string(), rank, record.bytes.to_string()))
        })?;
        let entries = records.iter().map(|record| PeerEntry {
            base: record.base,
            rkey_be: record.rkeys[config.rank as usize].to_be(),
            rail_generation: 0,
        });
        Ok(Self {
            window: Window {
                id,
                lkey_be: keys[config.rank as usize].lkey().to_be(),
                base: memory.addr(),
                bytes,
            },
            entries: entries.collect(),
            _keys: keys,
            _memory: memory,
        })
    }
}
