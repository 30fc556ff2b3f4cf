//! The structs of a MoE layer's buffers.

use super::header::{Item, struct_item};
use super::moe_words::{
    CallStage, MoeCause, MoeFormat, MoeLayout, MoeOrder, MoeReturns, MoeScales, Outcome,
};
use super::{DevicePtr, Status, TeamContext, Window};

abi_struct! {
    /// The word of one peer about one (kind, set). 32 bytes in the receiver's memory, written only by that peer's NIC.
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
        /// By kind and set: newest call whose data was sent; valid only if the bit in `sent` is set.
        pub last: [u32; 4],
        /// By kind and set: first call of the newest run of calls that were not sent.
        pub skip_first: [u32; 4],
        /// By kind and set: length of that run; its last call is first + 2 * (number - 1).
        pub skip_number: [u32; 4],
        /// By kind and set: ticket of the last WQE that reads the staging rows; 0 none. Until the HCA has carried it, or its QP has
        /// failed, the peer gets no data of this kind and set.
        pub ticket: [u64; 4],
        /// Credits that the peer got last.
        pub told: u64,
        /// Sum of all that the peer's signals said when it became a suspect; another sum ends the suspicion.
        pub seen: u64,
        /// 1: it was waited for in vain. It is looked at, but not waited for.
        pub suspect: u32,
        /// Bit kind * SETS + set: data of this kind was sent in this set, so `last` is valid.
        pub sent: u32,
        /// 1: the phase that runs holds a guard of the peer, so that its QPs may be used.
        pub open: u32,
        /// Beats written to it so far.
        pub beat: u32,
        /// How its credit stands in the send phase that runs.
        pub credit: u32,
        /// Of dispatch, by set: the send buffer from which its last data went.
        pub buffer: [u32; 2],
        /// Bit kind * SETS + set: a send phase has waited in vain for the end of the work whose ticket stands in `ticket`.
        pub late: u32,
    }
}

abi_struct! {
    /// An expert slot: a place of an expert on a rank.
    pub struct ExpertHome {
        /// The rank that holds the slot.
        pub rank: u32,
        /// Its place among the expert slots of that rank.
        pub local: u32,
    }
}

abi_struct! {
    /// The expert slots that hold one expert: `count` of them from `first` in `MoeView::replicas`.
    pub struct ExpertSlots {
        /// Place of the first of them in `MoeView::replicas`.
        pub first: u32,
        /// How many; 0: no rank holds the expert now.
        pub count: u32,
    }
}

abi_struct! {
    /// The ranks that take part, and the ranks that hold each expert, from one call on. Written by the host while it is not the
    /// newest.
    align(128)
    pub struct MoeView {
        /// First call that it covers. It counts only until a call runs in the view.
        pub first: u32,
        /// Membership epoch, low 16 bits.
        pub epoch: u32,
        /// Expert slots of all ranks.
        pub expert_slots: u32,
        /// Expert slots of this rank.
        pub local_experts: u32,
        /// Expert slots by number.
        pub homes: DevicePtr<ExpertHome>,
        /// The slots of each expert, by its id.
        pub experts: DevicePtr<ExpertSlots>,
        /// Numbers of expert slots, grouped by expert.
        pub replicas: DevicePtr<u32>,
        /// Its place among all views that were written, in their order; 0: it is not written, or not whole.
        pub serial: u32,
        /// Reserved, zero.
        pub reserved: [u32; 21],
        /// Bit r: rank r is a member.
        pub members: [u32; 32],
    }
}

abi_struct! {
    /// How long calls wait. Device memory, written by the host.
    pub struct MoeClock {
        /// Longest wait of a phase, ns.
        pub steady_ns: u64,
        /// As `steady_ns`, for the calls up to `warm_calls`.
        pub warm_ns: u64,
        /// Calls up to this number are warm-up.
        pub warm_calls: u32,
        /// Reserved, zero.
        pub reserved: u32,
        /// Longest time for which a call is held back by a change that is being prepared, ns.
        pub change_ns: u64,
    }
}

abi_struct! {
    /// Words that host and kernels of one rank share while kernels run. Host-mapped memory.
    align(128)
    pub struct MoeBoard {
        /// Written by the host: the last call that may start now, if `limited`.
        pub limit: u32,
        /// Written by the host: 1 while calls end `aborted` as soon as they would be held.
        pub refuse: u32,
        /// Written by the host: 1 while a change is being prepared.
        pub preparing: u32,
        /// Reserved, zero.
        pub reserved0: u32,
        /// Written by the host: 1 while `limit` counts, 0 while any call may start. Kernels read it and `alone` in one load.
        pub limited: u32,
        /// Written by the host: 1 while this rank exchanges with no other member, so that its calls keep pace.
        pub alone: u32,
        /// Reserved, zero.
        pub reserved1: [u32; 26],
        /// Written by kernels: the last call that has taken its number.
        pub started: u32,
        /// Written by kernels: the last call all phases of which have ended, or that is closed.
        pub finished: u32,
        /// Written by kernels: number of times that `fault` was written so far, after it.
        pub faults: u32,
        /// Written by kernels: the same number, before `fault` is written. Equal numbers around a read: the read is whole.
        pub faults_begun: u32,
        /// Written by kernels: `serial` << 32 | first call of the newest view in which a call has run. The kernel moves that first
        /// call on, so that it stays within 2^30 of the newest call. 0: no call has run.
        pub in_force: u64,
        /// Written by kernels: `MoeContext::unbuffered`.
        pub unbuffered: u32,
        /// Reserved, zero.
        pub reserved2: [u32; 25],
        /// Written by kernels: the newest fault.
        pub fault: MoeFault,
        /// Written by the host, bit r: rank r has promised the change that is being prepared, so its clock stands still.
        pub promised: [u32; 32],
        /// Written by the host, bit r: do not wait for rank r.
        pub suspects: [u32; 32],
        /// Written by kernels, bit r: rank r is a suspect of this rank.
        pub suspected: [u32; 32],
    }
}

abi_struct! {
    /// Why a call is not complete: the first fault of the call, and all its suspects.
    align(128)
    pub struct MoeFault {
        /// Number of the call; 0: none.
        pub call: u32,
        /// Its epoch, low 16 bits.
        pub epoch: u32,
        /// Why.
        pub cause: MoeCause,
        /// The peer; NONE if it is this rank itself.
        pub peer: u32,
        /// Phase in which it showed: 0 to 3, in the order of `MoeHandle::phase`.
        pub phase: u32,
        /// Vendor syndrome << 8 | syndrome, if `cause` is `cqe_error`. If it is `shape`: the tag of the peer's shape << 16 | that of
        /// this rank's. Else 0.
        pub syndrome: u32,
        /// The expert slot concerned; NONE if all of the peer's.
        pub expert: u32,
        /// Reserved, zero.
        pub reserved: [u32; 25],
        /// Bit r: rank r is a suspect.
        pub suspects: [u32; 32],
    }
}

abi_struct! {
    /// One MoE layer at one rank. Device memory; constant except for the last line, which the phases change.
    align(128)
    pub struct MoeContext {
        /// The team whose QPs and windows the kernels use.
        pub team: DevicePtr<TeamContext>,
        /// State per peer, by rank.
        pub peers: DevicePtr<MoePeer>,
        /// `MoeView [MOE_VIEWS]`.
        pub views: DevicePtr<MoeView>,
        /// Slots that peers write: dispatch `[set][source][max_tokens]`, at `combine_slots` combine rows of the same shape.
        pub slots: Window,
        /// What the NIC sends from: dispatch `[buffers][max_tokens]`; at `combine_staging` combine rows
        /// `[set][source][max_tokens][rows of a received row]`; at `zero_copy` those that a caller writes.
        pub staging: Window,
        /// `MoeSignal [writer][kind * SETS + set]`.
        pub signals: Window,
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
        /// Waiting times.
        pub clock: DevicePtr<MoeClock>,
        /// Words shared with the host.
        pub board: DevicePtr<MoeBoard>,
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
        /// How signals are kept after data.
        pub order: MoeOrder,
        /// Expert slots that a rank has room for: length of the expert dimension of the outputs.
        pub max_local_experts: u32,
        /// Number of the first call that this rank has a part in.
        pub joined: u32,
        /// Of the receive phase of dispatch that runs: rows of each local expert before each tile of 32 received rows, by tile of
        /// source: `[local experts][ranks][tiles]`. Null by rank.
        pub tiles: DevicePtr<u32>,
        /// When the phase that runs began, device clock.
        pub began_ns: u64,
        /// Offset in the staging window of the rows that a caller writes itself. By expert `[set][max_local_experts][ranks *
        /// max_tokens]`; by rank `combine_staging`.
        pub zero_copy: u64,
        /// Send buffers of dispatch, 2 to MOST_SEND_BUFFERS.
        pub buffers: u32,
        /// Reserved, zero.
        pub reserved0: [u32; 5],

        /// Number of the last call that began. This begins the last line of the struct, the only one that phases change.
        pub call: u32,
        /// Newest closed call, by kind.
        pub released: [u32; 2],
        /// Words of the expected call that named another epoch.
        pub foreign_epochs: u32,
        /// By set: newest call that has ended with its last phase.
        pub ended: [u32; 2],
        /// Peers that the running phase has not settled.
        pub waiting: u32,
        /// 1: a call was held in vain. While the limit is `refused_limit`, further ones end when another rank has begun them.
        pub refusing: u32,
        /// The limit at which that was.
        pub refused_limit: u32,
        /// 1: the suspects or the members have changed since the board was written.
        pub changed: u32,
        /// The view of the last call that ran: place in `views`.
        pub view: u32,
        /// Its `serial`; 0: no call has run.
        pub serial: u32,
        /// Its first call, or a later one, as in `MoeBoard::in_force`.
        pub first: u32,
        /// The newest calls in a row that have ended `aborted`, at most SETS.
        pub aborted: u32,
        /// So many calls before the last one that began ended `aborted`: its dispatch says so again.
        pub untold: u32,
        /// Blocks that have ended the receive phase that runs.
        pub left: u32,
        /// The send buffer of the last dispatch that took one.
        pub buffer: u32,
        /// Calls so far that found no free send buffer in time. Wraps.
        pub unbuffered: u32,
        /// The newest call that a peer was found to have passed by 2 * SETS calls, or one at least three before the last that began.
        pub passed: u32,
        /// Reserved, zero.
        pub reserved1: [u32; 13],
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
        /// The view of the call: place in `MoeContext::views`.
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
    assert!(size_of::<MoeSignal>() == 32);
    assert!(size_of::<MoePeer>() == 128);
    assert!(size_of::<MoeView>() == 256);
    assert!(size_of::<MoeFault>() == 256);
    assert!(size_of::<MoeBoard>() == 896);
    assert!(size_of::<MoeContext>() == 384);
    assert!(core::mem::offset_of!(MoeContext, call) == 256);
    assert!(size_of::<MoeHandlePeer>() == 60);
    assert!(size_of::<MoeHandle>() == 512);
};

/// Returns what the header holds of this file, in order.
pub(super) fn items() -> Vec<Item> {
    vec![
        struct_item::<MoeSignal>(),
        struct_item::<MoePeer>(),
        struct_item::<ExpertHome>(),
        struct_item::<ExpertSlots>(),
        struct_item::<MoeView>(),
        struct_item::<MoeFault>(),
        struct_item::<MoeClock>(),
        struct_item::<MoeBoard>(),
        struct_item::<MoeContext>(),
        struct_item::<MoeHandlePeer>(),
        struct_item::<MoeShape>(),
        struct_item::<MoeSource>(),
        struct_item::<MoePick>(),
        struct_item::<MoeHandle>(),
    ]
}
