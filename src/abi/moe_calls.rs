//! Parameters of the MoE kernels, one struct for each.

use super::DevicePtr;
use super::header::{Item, struct_item};
use super::moe::{MoeContext, MoeHandle};
use super::moe_words::{MoeFormat, MoeScales};

abi_struct! {
    /// Send phase of dispatch. Cooperative launch.
    pub struct DispatchSendParams {
        /// The layer.
        pub moe: DevicePtr<MoeContext>,
        /// The call.
        pub handle: DevicePtr<MoeHandle>,
        /// Tokens, 16-byte aligned: BF16 `[tokens, hidden]`, or FP8 with DISPATCH_QUANTIZED, or opaque `[tokens, row_bytes]`.
        pub x: DevicePtr<u8>,
        /// Scales of quantized or opaque tokens: `[tokens, scale_bytes]`.
        pub x_scales: DevicePtr<u8>,
        /// Choices `[tokens, top_k]`; -1 none. With DISPATCH_IDS_64 they are i64.
        pub experts: DevicePtr<i32>,
        /// Weights `[tokens, top_k]`; null: all are 1.
        pub weights: DevicePtr<f32>,
        /// Ranks that take part as the caller sees it: `[ranks]`, 0 = not. Null: all members.
        pub active: DevicePtr<u32>,
        /// Longest wait of each phase of this call, ns; 0: the layer's.
        pub deadline_ns: u64,
        /// Tokens of this call.
        pub tokens: u32,
        /// DISPATCH_* flags.
        pub flags: u32,
        /// Most tokens of a rank in this call. 0: the call has the shape of the layer, and the next four fields are not read.
        pub max_tokens: u32,
        /// What a token is made of.
        pub format: MoeFormat,
        /// Its scales, if `format` is fp8.
        pub scales: MoeScales,
        /// Bytes of the token in a slot, without its scales.
        pub row_bytes: u32,
        /// Bytes of its scales; 0: none.
        pub scale_bytes: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// Receive phase of dispatch. Cooperative launch.
    pub struct DispatchReceiveParams {
        /// The layer.
        pub moe: DevicePtr<MoeContext>,
        /// The call.
        pub handle: DevicePtr<MoeHandle>,
        /// Output: tokens, with `max_tokens` of the call. By expert: `[max_local_experts, ranks * max_tokens, row_bytes]`, with the
        /// first `counts[e]` rows of each expert written. By rank: `[ranks, max_tokens, row_bytes]`, with the first `counts[r]`
        /// rows of each rank written.
        pub recv_x: DevicePtr<u8>,
        /// Output: their scales. FP8 by expert, transposed: `[max_local_experts, scale words, ranks * max_tokens]` of 4 bytes each;
        /// else `[.., scale_bytes]` as `recv_x`.
        pub recv_scales: DevicePtr<u8>,
        /// Output: rows of each local expert, or of each rank.
        pub counts: DevicePtr<u32>,
        /// Output: the row of the source rank's input from which each row comes: `[max_local_experts, ranks * max_tokens]` or
        /// `[ranks, max_tokens]`.
        pub src_info: DevicePtr<u32>,
        /// Output by expert: begin << 32 | count of the rows of each rank: `[max_local_experts, ranks]`.
        pub layout_range: DevicePtr<u64>,
        /// Output by rank: local experts of each row, -1 none: `[ranks, max_tokens, top_k]`.
        pub recv_experts: DevicePtr<i32>,
        /// Output by rank: their weights: `[ranks, max_tokens, top_k]`.
        pub recv_weights: DevicePtr<f32>,
        /// Added to: rows of each local expert so far: `[max_local_experts]`, with RECEIVE_STATS_32 of i32. Null: not kept.
        pub recv_stats: DevicePtr<u64>,
        /// Added to: nanoseconds of the device's clock, not its cycles, waited for each rank: `[ranks]`. Null: not kept.
        pub wait_ns: DevicePtr<u64>,
        /// Output: 1 for each rank whose rows arrived, 0 for those masked, late or in error: `[ranks]`. Null: not written.
        pub active: DevicePtr<u32>,
        /// Output, if combine sends rows as they are: address of the memory from which the combine of this call sends. 0 if the
        /// caller may not write to it, since an HCA still reads it; the rows then go back from the caller's own memory. Null: not written.
        pub staging: DevicePtr<u64>,
        /// RECEIVE_* flags.
        pub flags: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// Dispatch in one launch. Cooperative.
    pub struct DispatchParams {
        /// Its send phase.
        pub send: DispatchSendParams,
        /// Its receive phase: same layer and handle.
        pub receive: DispatchReceiveParams,
    }
}

abi_struct! {
    /// Send phase of combine. Cooperative launch.
    pub struct CombineSendParams {
        /// The layer.
        pub moe: DevicePtr<MoeContext>,
        /// The call.
        pub handle: DevicePtr<MoeHandle>,
        /// What the experts made of `recv_x`, BF16, in the same places; by rank: what is to be sent back, already weighted.
        pub y: DevicePtr<u16>,
        /// With COMBINE_ZERO_COPY, in the shape of `y`: from where a call copies whose dispatch offered no staging memory
        /// (`DispatchReceiveParams::staging` 0). Null: such a combine is refused.
        pub copy_from: DevicePtr<u16>,
        /// Longest wait of each phase of this combine, ns; 0: that of its dispatch.
        pub deadline_ns: u64,
        /// COMBINE_ZERO_COPY | COMBINE_UNWEIGHTED.
        pub flags: u32,
        /// Reserved, zero.
        pub reserved: u32,
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
        /// Weights `[tokens, top_k]` where rows of all experts come back; null: those of dispatch.
        pub weights: DevicePtr<f32>,
        /// Added to: nanoseconds of the device's clock, not its cycles, waited for each rank: `[ranks]`. Null: not kept.
        pub wait_ns: DevicePtr<u64>,
        /// Output: 1 for each rank whose rows were added, else 0: `[ranks]`. Null: not written.
        pub active: DevicePtr<u32>,
        /// COMBINE_RENORMALISE | COMBINE_IN_PLACE.
        pub flags: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// Combine in one launch. Cooperative.
    pub struct CombineParams {
        /// Its send phase.
        pub send: CombineSendParams,
        /// Its receive phase: same layer and handle.
        pub receive: CombineReceiveParams,
    }
}

abi_struct! {
    /// Ends a call that has no combine. One warp.
    pub struct AbandonParams {
        /// The layer.
        pub moe: DevicePtr<MoeContext>,
        /// The call.
        pub handle: DevicePtr<MoeHandle>,
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
        /// Expert slots of this rank.
        pub local_experts: u32,
        /// Rows between two experts.
        pub rows: u32,
        /// BF16 elements of a row.
        pub hidden: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

/// Returns what the header holds of this file, in order.
pub(super) fn items() -> Vec<Item> {
    vec![
        struct_item::<DispatchSendParams>(),
        struct_item::<DispatchReceiveParams>(),
        struct_item::<CombineSendParams>(),
        struct_item::<CombineReceiveParams>(),
        struct_item::<DispatchParams>(),
        struct_item::<CombineParams>(),
        struct_item::<AbandonParams>(),
        struct_item::<DemoExpertParams>(),
    ]
}
