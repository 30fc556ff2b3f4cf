//! The setting of `wv bench engine`.

use serde::Serialize;

use crate::error::BenchError;
use crate::host::p2p::P2pOptions;

/// The setting of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct EngineOptions {
    /// The number of QPs of the connection.
    pub(crate) qps: u32,
    /// The number of bytes of a slice.
    pub(crate) slice: u32,
    /// The number of rounds of each figure.
    pub(crate) rounds: u32,
    /// The number of transfers that are timed singly.
    pub(crate) wakes: u32,
    /// The number of idle QPs beside the busy ones, at least 512.
    pub(crate) idle_qps: u32,
    /// Milliseconds for which idle engines are watched.
    pub(crate) idle_ms: u32,
}

impl EngineOptions {
    /// Returns these options for an engine of one worker.
    pub(super) fn p2p(&self) -> P2pOptions {
        P2pOptions {
            workers: 1,
            qps: self.qps,
            slice: self.slice,
            rounds: self.rounds,
        }
    }
}

pub(super) fn wrong(detail: String) -> BenchError {
    BenchError::Wrong {
        case: "engine".to_owned(),
        detail,
    }
}
