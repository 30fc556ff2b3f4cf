//! Transfers as programs describe them: a plan that is posted many times, and options.

use std::time::Duration;

use crate::engine::error::EngineError;
use crate::engine::ledger::plan::{Operation, Plan};
use crate::engine::lives::attached::Attached;
use crate::engine::memory::table::Tables;

/// A transfer that was planned once, to be posted many times.
#[derive(Debug)]
pub struct Prepared {
    pub(super) plan: Plan,
    pub(super) operations: u32,
    pub(super) overlaps: bool,
    pub(super) reaches_gpu: bool,
    pub(super) tables: Tables,
    /// The number of the engine that has prepared it, whose memory it moves.
    pub(super) engine: u32,
    /// The life of the peer for which it was prepared.
    pub(super) incarnation: u64,
}

/// What a transfer moves.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Moves<'a> {
    pub(in crate::engine) operations: &'a [Operation],
    /// True if a WRITE writes to memory from which another WRITE reads.
    pub(in crate::engine) overlaps: bool,
}

/// How a transfer runs, and the notice that goes with it.
#[derive(Debug, Default)]
pub(in crate::engine) struct How {
    pub(in crate::engine) deadline: Option<Duration>,
    pub(in crate::engine) counter: Option<u32>,
    pub(in crate::engine) notice: Option<Attached>,
}

impl Moves<'_> {
    /// Plans the operations. With `counts` each operation is one slice, which may count at the peer.
    pub(super) fn plan_into(
        self,
        plan: &mut Plan,
        tables: &Tables,
        counts: bool,
    ) -> Result<(), EngineError> {
        if counts {
            plan.set_counting(self.operations, &*tables.local, &*tables.remote)
        } else {
            plan.set(self.operations, &*tables.local, &*tables.remote)
        }
    }
}

/// How a transfer is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options<'a> {
    /// The time after which no more slices are posted, as if the transfer were cancelled. Default none: the deadline of the engine's
    /// configuration holds.
    pub deadline: Option<Duration>,
    /// The [counter](crate::engine::Counter) of the peer at which each operation counts once, after its last byte. All operations must be
    /// WRITEs. Each is one WRITE of the HCA, by one QP, and is never posted again. If it fails the transfer fails, although the peer may
    /// have counted it. Default none.
    pub counter: Option<u32>,
    /// The bytes that the peer's program gets after the last byte of the transfer, up to
    /// [`MOST_NOTICE_BYTES`](crate::engine::MOST_NOTICE_BYTES). If the transfer fails, the program gets them too, with the outcome and the
    /// first cause. Default none.
    pub notice: Option<&'a [u8]>,
    /// The longest wait of the call that begins the transfer, while no slot is free or the peer has no room for the notice. Default 0: the
    /// call never waits.
    pub wait: Duration,
}

impl<'a> Options<'a> {
    /// Returns the options with this [`deadline`](Options::deadline).
    #[must_use]
    pub const fn with_deadline(self, deadline: Option<Duration>) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the options with this [`counter`](Options::counter).
    #[must_use]
    pub const fn with_counter(self, counter: Option<u32>) -> Self {
        Self { counter, ..self }
    }

    /// Returns the options with this [`notice`](Options::notice).
    #[must_use]
    pub const fn with_notice(self, notice: Option<&'a [u8]>) -> Self {
        Self { notice, ..self }
    }

    /// Returns the options with this [`wait`](Options::wait).
    #[must_use]
    pub const fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }
}
