//! What became of a transfer, operation by operation.

use crate::engine::ledger::account::Outcome;
use crate::error::ThreadPanicked;
use crate::provider::Cause;

/// What became of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationStatus {
    /// All its bytes have landed.
    Done,
    /// A part of it has failed. Other parts may have landed. One that counts may have counted.
    Failed,
    /// A part of it was never posted, and no part has failed. Other parts may have landed.
    NotPosted,
}

/// The first failure of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstCause {
    /// The QP; none where no QP was left, and of a copy within the machine.
    pub qp: Option<u32>,
    /// The rail of this side by which the slice was posted, by its number in [`Engine::rails`](crate::engine::Engine::rails); none as above.
    pub rail: Option<u32>,
    /// Why, as the HCA or the system says it; none of what was refused before it was posted.
    pub cause: Option<Cause>,
    /// Place of the operation in the transfer, from 0 on.
    pub operation: u32,
    /// Where in the peer's memory the WQE would have begun.
    pub remote: u64,
}

/// What is known of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Nothing of this transfer lands in the peer's memory any more.
    Quiet,
    /// The peer has not said that its QPs are reset: bytes may land until it does.
    Unknown,
}

/// What became of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// What became of each operation, in the order of the transfer.
    pub operations: Vec<OperationStatus>,
    /// Bytes that are known to have landed.
    pub bytes_landed: u64,
    /// The first failure. Of a transfer that is done: one that a retry has made good.
    pub first: Option<FirstCause>,
    /// The RDMA device of the rail by which that was posted, as it is named in [`Engine::devices`](crate::engine::Engine::devices).
    pub device: Option<String>,
    /// The worker that has panicked while it held slices of the transfer. All that was handed out counts as failed then.
    pub panicked: Option<ThreadPanicked>,
    /// Some WRITE of it goes where a WRITE of it comes from, in this process: bytes that both have are old or new.
    pub overlaps: bool,
    /// Whether the peer's memory is quiet. That of this side is.
    pub remote: Remote,
}
