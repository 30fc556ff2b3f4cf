//! The structs of a MoE layer's buffers.

use super::header::{Item, struct_item};
use super::layer::{LayerContext, MoeFault};
use super::moe_words::{CallStage, MoeCause, MoeFormat, MoeLayout, MoeReturns, MoeScales, Outcome};
use super::{DevicePtr, Status, Window};

abi_struct! {
    /// One MoE layer at one rank. Device memory; constant except for `layer` and the last two words.
    align(128)
    pub struct MoeContext {
        /// What a layer of any kind has. Its `data` holds the slots: dispatch `[set][source][max_tokens]`, at `combine_slots` combine
        /// rows of the same shape.
        pub layer: LayerContext,
        /// What the NIC sends from: dispatch `[buffers][max_tokens]`; at `combine_staging` combine rows
        /// `[set][source][max_tokens][rows of a received row]`; at `zero_copy` those that a caller writes.
        pub staging: Window,
        /// Of the receive phase of dispatch that runs: rows of each local expert before each tile of 32 received rows, by tile of
        /// source: `[local experts][ranks][tiles]`. Null by rank.
        pub tiles: DevicePtr<u32>,
        /// Offset of the combine rows in the slot window.
        pub combine_slots: u64,
        /// Offset of the combine rows in the staging window.
        pub combine_staging: u64,
        /// Bytes of a dispatch slot.
        pub slot_bytes: u64,
        /// Bytes of the token in a slot, without its scales.
        pub row_bytes: u64,
        /// Bytes of a combine row: `hidden` BF16.
        pub combine_row_bytes: u64,
        /// Offset in the staging window of the rows that a caller writes itself. By expert `[set][max_local_experts][ranks *
        /// max_tokens]`; by rank `combine_staging`.
        pub zero_copy: u64,
        /// Send buffers of dispatch, 2 to MOST_SEND_BUFFERS.
        pub buffers: u32,
        /// Expert slots that a rank has room for: length of the expert dimension of the outputs.
        pub max_local_experts: u32,
        /// Bytes of a slot before the token.
        pub header_bytes: u32,
        /// BF16 elements of a token.
        pub hidden: u32,
        /// Experts of all ranks.
        pub experts: u32,
        /// Choices of a token.
        pub top_k: u32,
        /// Most tokens of a rank in one call.
        pub max_tokens: u32,
        /// What a token is made of.
        pub format: MoeFormat,
        /// Its scales, if `format` is fp8.
        pub scales: MoeScales,
        /// Bytes of the scales of a token; 0: none.
        pub scale_bytes: u32,
        /// Offset of the scales in a slot.
        pub scales_at: u32,
        /// How dispatch lays out what it received.
        pub layout: MoeLayout,
        /// What combine sends back.
        pub returns: MoeReturns,
        /// Reserved, zero.
        pub reserved0: [u32; 7],
        /// The send buffer of the last dispatch that took one. Phases change this field and the next.
        pub buffer: u32,
        /// Calls so far that found no free send buffer in time. Wraps.
        pub unbuffered: u32,
        /// Reserved, zero.
        pub reserved1: [u32; 6],
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
        /// 1: takes part in the call, by the view and by the caller's mask. Else 0: nothing is sent to it or awaited from it.
        pub active: u32,
        /// 1: member of the call's epoch. A member that is not active gets a word that nothing comes.
        pub member: u32,
        /// Why rows of it are missing.
        pub cause: MoeCause,
        /// As `MoeFault::syndrome`.
        pub syndrome: u32,
        /// By kind: how long a phase has waited for it at most, from the begin of the phase, in units of 1,024 ns.
        pub waited: [u32; 2],
    }
}

abi_struct! {
    /// The format of the tokens of a call, and their largest number. Neither is more than the slots of the layer hold.
    pub struct MoeShape {
        /// Most tokens of a rank in the call.
        pub max_tokens: u32,
        /// What a token is made of.
        pub format: MoeFormat,
        /// Its scales, if `format` is fp8.
        pub scales: MoeScales,
        /// Bytes of the token in a slot, without its scales.
        pub row_bytes: u32,
        /// Bytes of its scales; 0: none.
        pub scale_bytes: u32,
        /// Offset of the scales in a slot.
        pub scales_at: u32,
        /// What the headers of its rows carry beside the number of the token, 16 bits: the same for equal shapes, 0 for the layer's.
        pub tag: u32,
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
        /// The weight that the source gave the choice.
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
        /// Expert slots that this rank's tokens go to, NONE for none, LOST if no rank serves the choice: `[max_tokens][top_k]`.
        pub chosen: DevicePtr<u32>,
        /// Weights of this rank's tokens: `[max_tokens][top_k]`.
        pub weights: DevicePtr<f32>,
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
        /// 1: the phase cannot do its work, and sends the peers a word that says so.
        pub stopped: u32,
        /// 1: the call was held for too long: it has its number, and does nothing else.
        pub aborted: u32,
        /// Bit 0: a credit is missing and awaited, so that all peers get a word of what this rank has released. Bit 1: rows for some
        /// peer are not staged, since an HCA reads their place, or since the peer gets none.
        pub tell: u32,
        /// token << 32 | expert of the first choice that was refused; all ones if none was. For an id that 32 bits do not hold
        /// stands the nearest that they do.
        pub refused: u64,
        /// The view of the call: place in `LayerContext::views`.
        pub view: u32,
        /// Flags of its combine: COMBINE_*. Before the combine: COMBINE_NONE if the call has none.
        pub combine_flags: u32,
        /// Longest wait of each phase, ns: of those of dispatch, and from the send phase of combine on of those of combine.
        pub deadline_ns: u64,
        /// Why it is not complete.
        pub fault: MoeFault,
        /// Its tokens.
        pub shape: MoeShape,
        /// Bit b: an HCA read send buffer b when the dispatch began.
        pub busy: u32,
        /// The send buffer of the dispatch before this one, whose rows for this rank itself may still be read.
        pub recent: u32,
        /// The send buffer of the dispatch; NONE if none was free in time.
        pub buffer: u32,
        /// 1: the caller may write what combine sends into the layer's own memory.
        pub offered: u32,
        /// 1: a credit came for a peer whose rows are not staged yet.
        pub landed: u32,
        /// `MoeContext::unbuffered` when the dispatch had its buffer.
        pub unbuffered: u32,
        /// Reserved, zero.
        pub reserved: [u32; 18],
    }
}

const _: () = {
    assert!(size_of::<MoeContext>() == 384);
    assert!(core::mem::offset_of!(MoeContext, layer) == 0);
    assert!(core::mem::offset_of!(MoeContext, buffer).is_multiple_of(32));
    assert!(size_of::<MoeHandlePeer>() == 60);
    assert!(size_of::<MoeHandle>() == 512);
};

/// Returns what the header holds of this file, in order.
pub(super) fn items() -> Vec<Item> {
    vec![
        struct_item::<MoeContext>(),
        struct_item::<MoeHandlePeer>(),
        struct_item::<MoeShape>(),
        struct_item::<MoeSource>(),
        struct_item::<MoePick>(),
        struct_item::<MoeHandle>(),
    ]
}
