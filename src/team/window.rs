//! Symmetric windows: the same number of bytes at every rank, which every rank may write.

// UNSAFETY: registers device memory, which this module owns, with the HCA.
#![expect(unsafe_code, reason = "registration of memory that the window owns")]

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::exchange::Exchange;
use super::rail::Rail;
use super::{TeamConfig, TeamError};
use crate::abi::{PeerEntry, Window};
use crate::gpu::{DeviceMemory, Gpu};
use crate::verbs::{Access, Mr, Pd};

/// Longest window.
const MAX_WINDOW_BYTES: u64 = 1 << 40;
const ALIGN: usize = 4096;

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Anything, signals too: writes are seen in the order in which they come.
    Any,
    /// Data that is read behind a signal in another window: its writes may overtake each other on PCIe.
    Data,
}

impl Purpose {
    fn access(self) -> Access {
        match self {
            Self::Any => Access::ALL,
            Self::Data => Access::ALL | Access::RELAXED_ORDERING,
        }
    }
}

/// One window of this rank.
#[derive(Debug)]
pub(super) struct OwnedWindow {
    /// A registration for each rail and peer slot: what one peer is given can be taken from it alone. Before the memory.
    _keys: Vec<Vec<Mr>>,
    _memory: DeviceMemory,
    pub(super) window: Window,
    /// `[rail][peer]`, address and key.
    pub(super) entries: Vec<PeerEntry>,
    /// By rail, big-endian.
    pub(super) lkeys_be: Vec<u32>,
}

/// What a rank tells of a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WindowRecord {
    bytes: u64,
    base: u64,
    /// `[rail][peer]`.
    rkeys: Vec<Vec<u32>>,
}

impl OwnedWindow {
    /// Makes window `id` and tells the others. Collective.
    pub(super) fn new(
        exchange: &Exchange,
        gpu: &dyn Gpu,
        rails: &[Rail],
        config: &TeamConfig,
        id: u32,
        (bytes, purpose): (u64, Purpose),
    ) -> Result<Self, TeamError> {
        if !(1..=MAX_WINDOW_BYTES).contains(&bytes) {
            let limit = format!("1 to {MAX_WINDOW_BYTES} bytes");
            return Err(TeamError::limit("window", bytes, limit));
        }
        let length =
            usize::try_from(bytes).map_err(|_| TeamError::limit("window", bytes, usize::MAX))?;
        let memory = gpu.alloc(length, ALIGN)?;
        let register = |pd: &Arc<Pd>| {
            // SAFETY: `memory` is device memory, to which no Rust reference exists, and it is dropped after the
            // registrations: by the order of the fields, or here, where `keys` is dropped first.
            unsafe { Mr::register(pd, memory.addr(), bytes, purpose.access()) }
        };
        let on_rail = |rail: &Rail| -> Result<Vec<Mr>, _> {
            (0..config.ranks).map(|_| register(rail.pd())).collect()
        };
        let keys: Vec<Vec<Mr>> = rails.iter().map(on_rail).collect::<Result<_, _>>()?;
        let own = WindowRecord {
            bytes,
            base: memory.addr(),
            rkeys: keys
                .iter()
                .map(|keys| keys.iter().map(Mr::rkey).collect())
                .collect(),
        };
        let topic = format!("window-{id}");
        let records = exchange.all_checked(&topic, &own, |rank, record: &WindowRecord| {
            let shape: Vec<usize> = record.rkeys.iter().map(Vec::len).collect();
            if shape != vec![config.ranks as usize; rails.len()] {
                let (rails, ranks) = (rails.len(), config.ranks);
                let reason =
                    format!("{shape:?} keys by rail; the team has {rails} rails of {ranks}");
                return Err(exchange.record(rank, &topic, &reason));
            }
            if record.bytes == bytes {
                return Ok(());
            }
            let what = format!("bytes of window {id}");
            Err(exchange.mismatch(&what, bytes.to_string(), rank, record.bytes.to_string()))
        })?;
        let rank = config.rank as usize;
        let entry = |(rail, record): (usize, &WindowRecord)| PeerEntry {
            base: record.base,
            rkey_be: record.rkeys[rail][rank].to_be(),
            rail_generation: 0,
        };
        let all =
            (0..rails.len()).flat_map(|rail| records.iter().map(move |record| (rail, record)));
        let lkeys_be: Vec<u32> = keys.iter().map(|keys| keys[rank].lkey().to_be()).collect();
        Ok(Self {
            window: Window {
                id,
                lkey_be: lkeys_be[0],
                base: memory.addr(),
                bytes,
            },
            entries: all.map(entry).collect(),
            lkeys_be,
            _keys: keys,
            _memory: memory,
        })
    }
}
