//! Parameters of the MoE kernels and the structs of their buffers.

use super::header::{Item, constant_items, enum_item, struct_item};
use super::{DevicePtr, Status, TeamContext, Window};

abi_const! {
    /// Most experts that a token may choose: one per lane of a warp.
    pub const MAX_TOP_K: u32 = 32;
    /// Most BF16 elements of a token.
    pub const MAX_HIDDEN: u32 = 16_384;
    /// Most tokens of a rank in one call: count + 1 has 16 bits in a signal.
    pub const MAX_MOE_TOKENS: u32 = 65_534;
    /// Slot sets: set = call mod SETS.
    pub const SETS: u32 = 2;
    /// Kind of a signal: dispatch.
    pub const KIND_DISPATCH: u32 = 0;
    /// Kind of a signal: combine.
    pub const KIND_COMBINE: u32 = 1;
    /// Signals from one peer, one per kind and set, at index kind * SETS + set.
    pub const SIGNALS_PER_PEER: u32 = 4;
    /// Alignment of slots and of the token in a slot.
    pub const SLOT_ALIGN: u32 = 128;
    /// No row, no expert.
    pub const NONE: u32 = u32::MAX;
    /// Bytes that one WQE of combine sends at most.
    pub const COMBINE_PUT_BYTES: u32 = 1 << 20;
}

abi_enum! {
    /// What became of one peer in one phase of a call. Final once it is not `none`.
    pub enum Outcome {
        /// Not settled.
        NONE / none = 0,
        /// Send phase: payload and word are posted.
        SENT / sent = 1,
        /// Send phase: the peer has not released the slots, or the call was refused; it was told that nothing comes.
        SKIPPED / skipped = 2,
        /// Send phase: the QP refused the work.
        FAILED / failed = 3,
        /// Receive phase: the word of this call is there.
        ACCEPTED / accepted = 4,
        /// Receive phase: the peer has not sent this call and will not.
        NOT_SENT / not_sent = 5,
        /// Receive phase: no word before the deadline, or the QP to the peer is in error.
        GAVE_UP / gave_up = 6,
    }
}

abi_enum! {
    /// How far a handle is. Each phase runs once, in this order; a phase that is called out of turn ends `invalid`.
    pub enum CallStage {
        /// Never used.
        FRESH / fresh = 0,
        /// The send phase of dispatch has run.
        DISPATCH_SENT / dispatch_sent = 1,
        /// The receive phase of dispatch has run.
        DISPATCHED / dispatched = 2,
        /// The send phase of combine has run.
        COMBINE_SENT / combine_sent = 3,
        /// The receive phase of combine has run.
        COMBINED / combined = 4,
    }
}

abi_struct! {
    /// What one peer tells about one (kind, set). 32 bytes in the receiver's memory, written only by that peer's NIC.
    align(32)
    pub struct MoeSignal {
        /// epoch:16 | call:32 | count+1:16, the newest data of this kind and set. 0: none yet.
        pub data: u64,
        /// dispatch released:32 | combine released:32, the newest calls that the peer has closed.
        pub credit: u64,
        /// first:32 | number:32: the `number` calls of this set from `first` were not and will not be sent.
        pub not_sent: u64,
        /// call:32 | beat:32: the peer is waiting in this call.
        pub alive: u64,
    }
}

abi_struct! {
    /// What this rank remembers of one peer. Device memory; changed by the send and receive phases, which run one at a time.
    align(128)
    pub struct MoePeer {
        /// By kind and set: newest call whose data was sent; 0 none.
        pub last: [u32; 4],
        /// By kind and set: first call of the newest run of calls that were not sent.
        pub skip_first: [u32; 4],
        /// By kind and set: length of that run; its last call is first + 2 * (number - 1).
        pub skip_number: [u32; 4],
        /// By kind and set: ticket of the last WQE that reads the staging rows; 0 none.
        pub ticket: [u64; 4],
        /// Credits that the peer was last told.
        pub told: u64,
        /// Sum of all that the peer's signals said when it became a suspect; another sum ends the suspicion.
        pub seen: u64,
        /// 1: it was waited for in vain. It is looked at, but not waited for.
        pub suspect: u32,
        /// Reserved, zero.
        pub reserved: [u32; 7],
    }
}

abi_struct! {
    /// Where an expert lives.
    pub struct ExpertHome {
        /// Rank.
        pub rank: u32,
        /// Its place among the experts of that rank.
        pub local: u32,
    }
}

abi_struct! {
    /// One MoE layer at one rank. Device memory; constant except for the last line, which the phases change.
    align(128)
    pub struct MoeContext {
        /// The team.
        pub team: DevicePtr<TeamContext>,
        /// State per peer, by rank.
        pub peers: DevicePtr<MoePeer>,
        /// Home of each expert.
        pub homes: DevicePtr<ExpertHome>,
        /// Slots that peers write: dispatch `[set][source][max_tokens]`, at `combine_slots` combine rows of the same shape.
        pub slots: Window,
        /// What the NIC sends from: dispatch `[set][max_tokens]`, at `combine_staging` combine rows `[set][source][max_tokens]`.
        pub staging: Window,
        /// `MoeSignal [writer][kind * SETS + set]`.
        pub signals: Window,
        /// Offset of the combine rows in the slot window.
        pub combine_slots: u64,
        /// Offset of the combine rows in the staging window.
        pub combine_staging: u64,
        /// Bytes of a dispatch slot.
        pub slot_bytes: u64,
        /// Bytes of a combine row, and of the token in a slot.
        pub row_bytes: u64,
        /// Bytes of a slot before the token.
        pub header_bytes: u32,
        /// BF16 elements of a token.
        pub hidden: u32,
        /// Experts of all ranks.
        pub experts: u32,
        /// Experts of this rank.
        pub local_experts: u32,
        /// Choices of a token.
        pub top_k: u32,
        /// Most tokens of a rank in one call.
        pub max_tokens: u32,
        /// Membership epoch, low 16 bits.
        pub epoch: u32,
        /// Reserved, zero.
        pub reserved0: [u32; 25],

        /// Number of the last call that began. Last line: changed by the phases.
        pub call: u32,
        /// Newest closed call, by kind.
        pub released: [u32; 2],
        /// Words of the expected call that named another epoch.
        pub foreign_epochs: u32,
        /// Reserved, zero.
        pub reserved1: [u32; 28],
    }
}

abi_struct! {
    /// What a call knows of one peer. Each field is written once per call, by one thread.
    pub struct MoeHandlePeer {
        /// Rows that this rank's dispatch has for the peer.
        pub rows_sent: u32,
        /// Whether they were sent.
        pub dispatch_sent: Outcome,
        /// Rows that the peer's dispatch has brought; 0 unless accepted.
        pub rows_received: u32,
        /// Whether its dispatch was accepted.
        pub dispatch_received: Outcome,
        /// Whether its rows were sent back.
        pub combine_sent: Outcome,
        /// Whether its combine was accepted.
        pub combine_received: Outcome,
        /// Rows that the peer says it has processed.
        pub rows_combined: u32,
        /// 1: all rows sent to it have come back, so that they are added.
        pub valid: u32,
        /// Received rows whose header was out of range: not processed.
        pub malformed: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// One row that dispatch received, as its header said, after the range checks.
    pub struct MoeSource {
        /// Row of the source's input.
        pub token: u32,
        /// Choices that live at this rank.
        pub picks: u32,
    }
}

abi_struct! {
    /// One choice of a received row.
    pub struct MoePick {
        /// Local number of the expert; NONE if it lives elsewhere or is no choice.
        pub local: u32,
        /// Row of the expert's output.
        pub row: u32,
        /// Weight.
        pub weight: f32,
    }
}

abi_struct! {
    /// One call, from the send phase of dispatch to the receive phase of combine. Device memory; holds all that combine needs,
    /// so that slots are free again when dispatch has been received.
    align(128)
    pub struct MoeHandle {
        /// By rank.
        pub peers: DevicePtr<MoeHandlePeer>,
        /// Row that a token has at a peer, or NONE: `[peer][max_tokens]`.
        pub row_of: DevicePtr<u32>,
        /// Token of a row at a peer, the inverse of `row_of`: `[peer][max_tokens]`.
        pub token_of: DevicePtr<u32>,
        /// Received rows: `[source][max_tokens]`.
        pub sources: DevicePtr<MoeSource>,
        /// Their choices: `[source][max_tokens][top_k]`.
        pub picks: DevicePtr<MoePick>,
        /// Number of the call.
        pub call: u32,
        /// Epoch in which it began, low 16 bits.
        pub epoch: u32,
        /// Tokens of this rank.
        pub tokens: u32,
        /// How far it is.
        pub stage: CallStage,
        /// How each phase ended: dispatch send, dispatch receive, combine send, combine receive.
        pub phase: [Status; 4],
        /// 1: the phase that runs was called in turn.
        pub in_turn: u32,
        /// 1: the phase cannot do its work, and tells the peers so.
        pub stopped: u32,
        /// Reserved, zero.
        pub reserved0: u32,
        /// 1: a peer has not released the slots yet, so that everybody is told what this rank has released.
        pub tell: u32,
        /// token << 32 | expert of the first choice that was refused; all ones if none was.
        pub refused: u64,
        /// Reserved, zero.
        pub reserved: [u32; 8],
    }
}

abi_struct! {
    /// Send phase of dispatch. Cooperative launch.
    pub struct DispatchSendParams {
        /// The layer.
        pub moe: DevicePtr<MoeContext>,
        /// The call.
        pub handle: DevicePtr<MoeHandle>,
        /// Tokens, BF16 `[tokens, hidden]`, 16-byte aligned.
        pub x: DevicePtr<u16>,
        /// Choices `[tokens, top_k]`; -1 none.
        pub experts: DevicePtr<i32>,
        /// Weights `[tokens, top_k]`.
        pub weights: DevicePtr<f32>,
        /// Tokens of this call.
        pub tokens: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// A row of the output of dispatch.
    pub struct ReceivedRow {
        /// Rank that sent it.
        pub rank: u32,
        /// Row of that rank's input.
        pub token: u32,
    }
}

abi_struct! {
    /// Receive phase of dispatch. Cooperative launch.
    pub struct DispatchReceiveParams {
        /// The layer.
        pub moe: DevicePtr<MoeContext>,
        /// The call.
        pub handle: DevicePtr<MoeHandle>,
        /// Output: tokens by expert, BF16 `[local experts, ranks * max_tokens, hidden]`; the first `counts[e]` rows are written.
        pub recv_x: DevicePtr<u16>,
        /// Output: rows of each local expert.
        pub counts: DevicePtr<u32>,
        /// Output: where the rows come from, `[local experts, ranks * max_tokens]`.
        pub rows: DevicePtr<ReceivedRow>,
    }
}

abi_struct! {
    /// Send phase of combine. Cooperative launch.
    pub struct CombineSendParams {
        /// The layer.
        pub moe: DevicePtr<MoeContext>,
        /// The call.
        pub handle: DevicePtr<MoeHandle>,
        /// What the experts made of `recv_x`, in the same places.
        pub y: DevicePtr<u16>,
    }
}

abi_struct! {
    /// Receive phase of combine. Cooperative launch.
    pub struct CombineReceiveParams {
        /// The layer.
        pub moe: DevicePtr<MoeContext>,
        /// The call.
        pub handle: DevicePtr<MoeHandle>,
        /// Output: BF16 `[tokens, hidden]`, 16-byte aligned.
        pub out: DevicePtr<u16>,
        /// Output: 1 for each token all of whose experts contributed, else 0.
        pub token_valid: DevicePtr<u8>,
    }
}

abi_struct! {
    /// The experts of `wv demo`: y = x * scale(e) + shift(e), each operation rounded, for the rows that dispatch has written.
    pub struct DemoExpertParams {
        /// Rows by local expert, BF16 `[local experts, rows, hidden]`.
        pub x: DevicePtr<u16>,
        /// Output in the same places.
        pub y: DevicePtr<u16>,
        /// Rows of each local expert.
        pub counts: DevicePtr<u32>,
        /// Scale and shift of each local expert: `[local experts][2]`.
        pub factors: DevicePtr<f32>,
        /// Local experts.
        pub local_experts: u32,
        /// Rows between two experts.
        pub rows: u32,
        /// BF16 elements of a row.
        pub hidden: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

const _: () = {
    assert!(size_of::<MoeSignal>() == 32);
    assert!(size_of::<MoePeer>() == 128);
    assert!(size_of::<MoeContext>() == 384);
    assert!(core::mem::offset_of!(MoeContext, call) == 256);
    assert!(size_of::<MoeHandlePeer>() == 40);
    assert!(size_of::<MoeHandle>() == 128);
};

/// What the header holds of this file, in order.
pub(super) fn items() -> Vec<Item> {
    let mut items = constant_items(constants());
    items.extend([
        enum_item::<Outcome>(),
        enum_item::<CallStage>(),
        struct_item::<MoeSignal>(),
        struct_item::<MoePeer>(),
        struct_item::<ExpertHome>(),
        struct_item::<MoeContext>(),
        struct_item::<MoeHandlePeer>(),
        struct_item::<MoeSource>(),
        struct_item::<MoePick>(),
        struct_item::<MoeHandle>(),
        struct_item::<DispatchSendParams>(),
        struct_item::<ReceivedRow>(),
        struct_item::<DispatchReceiveParams>(),
        struct_item::<CombineSendParams>(),
        struct_item::<CombineReceiveParams>(),
        struct_item::<DemoExpertParams>(),
    ]);
    items
}
