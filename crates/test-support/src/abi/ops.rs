//! Parameters of the kernels that carry out every operation, `kernels/ops*.cu`.

use warpverbs::abi::header::{Item, constant_items, enum_item, struct_item};
use warpverbs::abi::{DevicePtr, PeerEntry, QpContext, Status, TeamContext, Window};
use warpverbs::{abi_const, abi_enum, abi_struct};

abi_const! {
    /// `OpStep::options` bit: report the completion.
    pub const OPS_SIGNALLED: u32 = 1;
    /// `OpStep::options` bit: do not wait.
    pub const OPS_TRY: u32 = 2;
    /// `OpStep::options` bit: hold the doorbell back.
    pub const OPS_MORE: u32 = 4;
    /// `OpStep::options` bit: after earlier reads and atomics.
    pub const OPS_FENCE: u32 = 8;
    /// `OpStep::options` bit: `wait` for the ticket.
    pub const OPS_WAIT: u32 = 16;
    /// `OpStep::options` bit: `wait_data` for the ticket.
    pub const OPS_WAIT_DATA: u32 = 32;
    /// `OpStep::options` bit: a signal adds.
    pub const OPS_ADD: u32 = 64;
}

abi_enum! {
    /// An operation.
    pub enum OpKind {
        /// `put`.
        PUT / put = 0,
        /// `put_two`.
        PUT_TWO / put_two = 1,
        /// `put_value` of `OpStep::bytes`: words value, value + 1, and so on.
        PUT_VALUE / put_value = 2,
        /// `signal` of `OpStep::bytes`, 4 or 8.
        SIGNAL / signal = 3,
        /// `put_signal`, likewise.
        PUT_SIGNAL / put_signal = 4,
        /// `get`.
        GET / get = 5,
        /// `put_imm` with the low half of `OpItem::value`.
        PUT_IMM / put_imm = 6,
        /// `amo` number `OpStep::amo` on `OpStep::bytes`, 4 or 8.
        AMO / amo = 7,
        /// `flush`.
        FLUSH / flush = 8,
        /// `fence`.
        FENCE / fence = 9,
        /// `quiet`.
        QUIET / quiet = 10,
        /// `wait_imm` or `try_imm`.
        WAIT_IMM / wait_imm = 11,
    }
}

abi_struct! {
    /// One call of one scope.
    pub struct OpStep {
        /// What: an `OpKind`.
        pub kind: OpKind,
        /// Bits OPS_SIGNALLED to OPS_ADD.
        pub options: u32,
        /// Place of the item of the scope's first thread.
        pub first: u32,
        /// How many threads take part.
        pub count: u32,
        /// Width of a value, signal or atomic.
        pub bytes: u32,
        /// Number of the atomic, in the order of `AmoOp`.
        pub amo: u32,
    }
}

abi_struct! {
    /// What one thread of a scope does in a step.
    pub struct OpItem {
        /// Byte offset in the window at the peer.
        pub remote: u64,
        /// Byte offset in the local window; of an atomic ~0: the result is not wanted.
        pub local: u64,
        /// Length.
        pub bytes: u64,
        /// Byte offset of the second piece.
        pub second: u64,
        /// Length of the second piece.
        pub second_bytes: u64,
        /// Byte offset of the signal at the peer.
        pub signal: u64,
        /// Value of a signal, an atomic, an immediate.
        pub value: u64,
        /// What an atomic compares with.
        pub compare: u64,
    }
}

abi_struct! {
    /// How a step ended.
    pub struct OpResult {
        /// The call.
        pub posted: Status,
        /// The status of the wait for its ticket, if the post was ok and the step asks for a wait.
        pub waited: Status,
        /// Index of the ticket.
        pub ticket: u64,
        /// The immediate that was taken.
        pub imm: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// Each scope of the grid carries out its own steps, one after the other.
    pub struct OpsParams {
        /// The QP that all share.
        pub qp: DevicePtr<QpContext>,
        /// Entry of the window at the peer.
        pub peer: DevicePtr<PeerEntry>,
        /// The window at the peer that steps write and read.
        pub window: Window,
        /// The steps, scope by scope.
        pub steps: DevicePtr<OpStep>,
        /// The items that steps name.
        pub items: DevicePtr<OpItem>,
        /// How each step ended.
        pub results: DevicePtr<OpResult>,
        /// Steps of each scope.
        pub steps_per_unit: u64,
        /// Deadline of each call, ns.
        pub deadline_ns: u64,
    }
}

abi_struct! {
    /// One warp puts words by all QPs to a peer and waits for all of them, or for one after the other.
    pub struct OpsSeveralParams {
        /// The team of this rank.
        pub team: DevicePtr<TeamContext>,
        /// The window; words from offset 0.
        pub window: Window,
        /// Byte offset of the target words.
        pub dst_offset: u64,
        /// Deadline of the whole kernel, ns.
        pub deadline_ns: u64,
        /// Where the warp stores how it ended.
        pub status: DevicePtr<Status>,
        /// By QP: how its word ended, with mode 2.
        pub ended: DevicePtr<Status>,
        /// By QP: in which round, with mode 2.
        pub order: DevicePtr<u32>,
        /// The rank that gets the words.
        pub peer: u32,
        /// 0: quiet of the team. 1: of the peer. 2: `wait_any`.
        pub mode: u32,
        /// Words that each lane puts by each QP.
        pub count: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// Writes one WQE of each format into a ring, without posting; see `ops_wqe.cu` for the operands.
    pub struct OpsWqeParams {
        /// The QP whose ring gets the WQEs.
        pub qp: DevicePtr<QpContext>,
        /// Index of the first WQE; each has two WQEBBs.
        pub index: u64,
        /// Bit 0: signalled. Bit 1: fenced.
        pub flags: u32,
        /// Zero.
        pub reserved: u32,
        /// Where the thread stores how it ended.
        pub status: DevicePtr<Status>,
    }
}

/// Returns the items that the header has from this file, in order.
pub(super) fn items() -> Vec<Item> {
    let mut items = constant_items(constants());
    items.extend([
        enum_item::<OpKind>(),
        struct_item::<OpStep>(),
        struct_item::<OpItem>(),
        struct_item::<OpResult>(),
        struct_item::<OpsParams>(),
        struct_item::<OpsSeveralParams>(),
        struct_item::<OpsWqeParams>(),
    ]);
    items
}
