//! The outcome of a transfer, operation by operation.

use crate::engine::ledger::account::Outcome;
use crate::error::ThreadPanicked;
use crate::provider::Cause;

/// The outcome of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationStatus {
    /// All its bytes have landed.
    Done,
    /// A part of it has failed. Other parts may have landed. If the operation counts at the peer, it may have counted.
    Failed,
    /// A part of it was never posted, and no part has failed. Other parts may have landed.
    NotPosted,
}

/// The first failure of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstCause {
    /// The number of the QP. None: no QP was left, or a copy within the machine has failed.
    pub qp: Option<u32>,
    /// The rail of this side by which the slice was posted, by its number in [`Engine::rails`](crate::engine::Engine::rails);
    /// none as of `qp`.
    pub rail: Option<u32>,
    /// The cause, as the HCA or the system says it. None: the slice was refused before it was posted.
    pub cause: Option<Cause>,
    /// The place of the operation in the transfer, from 0 on.
    pub operation: u32,
    /// The address in the peer's memory at which the WQE begins.
    pub remote: u64,
}

/// What is known of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Nothing of this transfer lands in the peer's memory any more.
    Quiet,
    /// The peer has not said that its QPs are reset. Bytes may land until they are.
    Unknown,
}

/// The outcome of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// What became of each operation, in the order of the transfer.
    pub operations: Vec<OperationStatus>,
    /// Bytes that are known to have landed.
    pub bytes_landed: u64,
    /// The first failure. If the transfer is done, a retry has made it good.
    pub first: Option<FirstCause>,
    /// The RDMA device of the rail of the first failure, as it is named in [`Engine::devices`](crate::engine::Engine::devices).
    pub device: Option<String>,
    /// The panic of a thread that held slices of the transfer. All slices that were handed out then count as failed.
    pub panicked: Option<ThreadPanicked>,
    /// True if a WRITE of the transfer writes to memory of this process from which another of its WRITEs reads. Those bytes are old or new.
    pub overlaps: bool,
    /// What is known of the peer's memory. The memory of this side is quiet.
    pub remote: Remote,
}
