//! Limits, flags and words of the MoE kernels.

use super::header::{Item, constant_items, enum_item};

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
    /// In `MoeHandle::chosen`: a choice that no rank serves, since no rank that takes part holds its expert.
    pub const LOST: u32 = u32::MAX - 1;
    /// Bytes that one WQE of combine sends at most.
    pub const COMBINE_PUT_BYTES: u32 = 1 << 20;
    /// Channels that share one scale of FP8.
    pub const SCALE_CHANNELS: u32 = 128;
    /// Most ranks of a layer.
    pub const MAX_MOE_RANKS: u32 = 1024;
    /// Most send buffers of dispatch in a layer: one bit of a word for each.
    pub const MOST_SEND_BUFFERS: u32 = 30;
    /// Views and expert tables that a layer holds: the newest, and those before it in which a rank that is behind has calls to end.
    pub const MOE_VIEWS: u32 = 8;
    /// Flag of `DispatchSendParams`: `x` is FP8 already and `x_scales` holds its scales.
    pub const DISPATCH_QUANTIZED: u32 = 1;
    /// Flag of `DispatchSendParams`: no combine follows, so the call ends with the receive phase of its dispatch.
    pub const DISPATCH_ONLY: u32 = 2;
    /// Flag of `DispatchSendParams`: choices are i64.
    pub const DISPATCH_IDS_64: u32 = 4;
    /// Flag of `DispatchReceiveParams`: `active` is the caller's mask. Ranks whose rows are not here are taken out of it, and none
    /// is put in.
    pub const RECEIVE_IN_PLACE: u32 = 1;
    /// Flag of `DispatchReceiveParams`: `recv_stats` is i32, which wraps.
    pub const RECEIVE_STATS_32: u32 = 2;
    /// Flag of `CombineSendParams`: the rows lie in the layer's own staging memory for this call, so nothing is copied. If the call
    /// was not offered that memory, they are copied from `copy_from`.
    pub const COMBINE_ZERO_COPY: u32 = 1;
    /// Flag of `CombineSendParams`: every weight counts as 1.
    pub const COMBINE_UNWEIGHTED: u32 = 2;
    /// Flag of `CombineReceiveParams`: a token that lost experts is divided by the share of its weights that is left.
    pub const COMBINE_RENORMALISE: u32 = 4;
    /// In `MoeHandle::combine_flags`: the call has no combine.
    pub const COMBINE_NONE: u32 = 8;
    /// Flag of `CombineReceiveParams`: `active` is the caller's mask, as with RECEIVE_IN_PLACE.
    pub const COMBINE_IN_PLACE: u32 = 16;
}

abi_enum! {
    /// What a token is made of on its way to the experts.
    pub enum MoeFormat {
        /// `hidden` BF16.
        BF16 / bf16 = 0,
        /// `hidden` FP8 (e4m3) and one scale for each 128 of them.
        FP8 / fp8 = 1,
        /// Payload and scales as bytes that the library does not look into.
        OPAQUE / opaque = 2,
    }
}

abi_enum! {
    /// How the scales of FP8 are kept.
    pub enum MoeScales {
        /// f32.
        F32 / f32 = 0,
        /// f32, rounded up to a power of two.
        POWER_OF_TWO / power_of_two = 1,
        /// The exponent byte of such a power (UE8M0), four to a 32-bit word.
        UE8M0 / ue8m0 = 2,
    }
}

abi_enum! {
    /// How dispatch lays out what it received.
    pub enum MoeLayout {
        /// By local expert: `[local experts, ranks * max_tokens]`, the rows of an expert in the order (rank, token).
        EXPERT_MAJOR / expert_major = 0,
        /// By source: `[ranks, max_tokens]`, each token once, with the local experts it chose.
        RANK_MAJOR / rank_major = 1,
    }
}

abi_enum! {
    /// What combine sends back for a token.
    pub enum MoeReturns {
        /// One row: the sum over the experts of the rank.
        SUMS / sums = 0,
        /// One row for each expert, for callers that know the weights only at combine.
        ROWS / rows = 1,
    }
}

abi_enum! {
    /// How a data signal is kept after its data.
    pub enum MoeOrder {
        /// An inline write on the same QP: where the device places writes in order.
        INLINE_WRITE / inline_write = 0,
        /// An unconditional swap on the same QP: where atomics are ordered after writes but writes not among themselves.
        SWAP / swap = 1,
        /// The data is complete before the signal is posted: anywhere.
        FLUSH / flush = 2,
    }
}

abi_enum! {
    /// Why rows are missing from a call.
    pub enum MoeCause {
        /// Nothing is missing.
        NONE / none = 0,
        /// No word of the peer before the deadline.
        TIMEOUT / timeout = 1,
        /// A WQE to the peer ended in error, and the syndrome says why.
        CQE_ERROR / cqe_error = 2,
        /// The peer's word named another epoch.
        EPOCH / epoch = 3,
        /// The peer has not sent this call.
        MISSED_CALL / missed_call = 4,
        /// A slot of the peer was out of range.
        MALFORMED / malformed = 5,
        /// The host or a user word ended the call.
        ABORTED / aborted = 6,
        /// This rank's own input was refused.
        REFUSED / refused = 7,
        /// The QP to the peer ended in error; what failed first was flushed over before it was seen, so the cause is lost.
        FLUSHED / flushed = 8,
        /// The peer's rows have another format, or its call another `max_tokens`, than this rank's.
        SHAPE / shape = 9,
        /// HCAs still read all send buffers of this rank, so that the call sent nothing.
        NO_BUFFER / no_buffer = 10,
    }
}

abi_enum! {
    /// What became of one peer in one phase of a call. Final once it is not `none`.
    pub enum Outcome {
        /// Not settled.
        NONE / none = 0,
        /// Send phase: payload and word are posted.
        SENT / sent = 1,
        /// Send phase: the peer has not released the slots, or the call was refused; it got a word that nothing comes.
        SKIPPED / skipped = 2,
        /// Send phase: the QP refused the work.
        FAILED / failed = 3,
        /// Receive phase: the word of this call has arrived.
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

/// Returns what the header holds of this file, in order.
pub(super) fn items() -> Vec<Item> {
    let mut items = constant_items(constants());
    items.extend([
        enum_item::<MoeFormat>(),
        enum_item::<MoeScales>(),
        enum_item::<MoeLayout>(),
        enum_item::<MoeReturns>(),
        enum_item::<MoeOrder>(),
        enum_item::<MoeCause>(),
        enum_item::<Outcome>(),
        enum_item::<CallStage>(),
    ]);
    items
}
