//! What a program says of a transfer: how it is to run, and that it will be posted many times.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::ledger::plan::Plan;
use crate::engine::memory::table::{LocalTable, RemoteTable};

/// A transfer that was planned once, to be posted many times.
#[derive(Debug)]
pub struct Prepared {
    pub(super) plan: Plan,
    pub(super) operations: u32,
    pub(super) overlaps: bool,
    pub(super) reaches_gpu: bool,
    pub(super) local: Arc<LocalTable>,
    pub(super) remote: Arc<RemoteTable>,
    /// The engine whose memory it is of.
    pub(super) engine: u32,
    /// The life of the peer that it is for.
    pub(super) incarnation: u64,
}

/// How a transfer is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Nothing more is handed out when this time is over, as if it were cancelled. Default none: that of the engine's configuration.
    pub deadline: Option<Duration>,
    /// Each operation counts once at this [counter](crate::engine::Counter) of the peer, after its last byte; all are WRITEs. It is one
    /// WRITE of the HCA, by one QP, and is never posted again. If it fails the transfer fails, although the peer may have counted
    /// it. Default none.
    pub counter: Option<u32>,
}

impl Options {
    /// The same with this [`deadline`](Options::deadline).
    #[must_use]
    pub const fn with_deadline(self, deadline: Option<Duration>) -> Self {
        Self { deadline, ..self }
    }

    /// The same with this [`counter`](Options::counter).
    #[must_use]
    pub const fn with_counter(self, counter: Option<u32>) -> Self {
        Self { counter, ..self }
    }

    /// The same with this deadline, where it has none.
    pub(in crate::engine) fn or(self, deadline: Option<Duration>) -> Self {
        Self {
            deadline: self.deadline.or(deadline),
            ..self
        }
    }
}
