//! The inputs and outputs of the phases of a call: device addresses and options. Start from `Default` and fill in what the layer
//! needs.
//!
//! An address of 0 stands for an array that is not given. The format and the layout of a layer decide which arrays it needs. A
//! launch is refused if one of them is missing, or if an address is not aligned for its elements.

use std::time::Duration;

use crate::abi::{
    COMBINE_IN_PLACE, COMBINE_RENORMALISE, COMBINE_UNWEIGHTED, COMBINE_ZERO_COPY,
    CombineReceiveParams, CombineSendParams, DISPATCH_IDS_64, DISPATCH_ONLY, DISPATCH_QUANTIZED,
    DevicePtr, DispatchReceiveParams, DispatchSendParams, MoeContext, MoeHandle, RECEIVE_IN_PLACE,
    RECEIVE_STATS_32,
};
use crate::config::setters;
use crate::moe::calls::shape;
use crate::moe::{Format, MoeConfig, MoeError, Returns, RowLayout};

/// Input of a dispatch. Contents as in [`DispatchSendParams`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchInput {
    /// Tokens, `[tokens, row bytes]` in the layer's format, or in BF16 that dispatch casts. The address is a multiple of 16.
    pub x: u64,
    /// Scales of the tokens, `[tokens, scale bytes]`: for tokens that are FP8 already, and for opaque tokens.
    pub x_scales: u64,
    /// Choices, i32 `[tokens, top_k]`, -1 for no choice; i64 with `ids_64`.
    pub experts: u64,
    /// Weights, f32 `[tokens, top_k]`. 0: all weights are 1.
    pub weights: u64,
    /// Ranks that take part, u32 `[ranks]`, 0 for a rank that does not. 0 as address: all members take part.
    pub active: u64,
    /// Number of tokens.
    pub tokens: u32,
    /// The choices are i64, as PyTorch's top-k gives them. Ids that are no experts are refused as with 32 bits.
    pub ids_64: bool,
    /// The format of the tokens of this call, the same at all ranks. None: the layer's format. Rows of a rank with another format
    /// are not taken; a rank that gets such rows reports the sender with [`MoeCause::SHAPE`](crate::abi::MoeCause::SHAPE).
    pub format: Option<Format>,
    /// The most tokens that a rank has in this call, the same at all ranks. The outputs of its dispatch, and `y`, are as long as in
    /// a layer that was made for so many. 0: the number of the layer.
    pub max_tokens: u32,
    /// In a call of FP8: the tokens in `x` are FP8 already.
    pub quantized: bool,
    /// No combine follows: the call has ended with the receive phase of its dispatch. A call without this option that is not
    /// combined counts as running until a call two later begins, or until [`Moe::abandon`](crate::moe::Moe::abandon).
    pub no_combine: bool,
    /// The longest wait of each phase of the call, also of its combine unless that has its own deadline. None: the layer's
    /// deadline.
    pub deadline: Option<Duration>,
}

setters! {
    const DispatchInput {
        with_x(x: u64),
        with_x_scales(x_scales: u64),
        with_experts(experts: u64),
        with_weights(weights: u64),
        with_active(active: u64),
        with_tokens(tokens: u32),
        with_ids_64(ids_64: bool),
        with_format(format: Option<Format>),
        with_max_tokens(max_tokens: u32),
        with_quantized(quantized: bool),
        with_no_combine(no_combine: bool),
        with_deadline(deadline: Option<Duration>),
    }
}

/// Output of a dispatch. Contents as in [`DispatchReceiveParams`].
///
/// "Local experts" in a shape are the expert slots that each rank has room for, [`MoeConfig::room`]. The kernel writes all of them,
/// even if this rank has fewer experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchOutput {
    /// Tokens: by expert `[local experts, ranks · max_tokens, row bytes]`, or by rank `[ranks, max_tokens, row bytes]`. The address
    /// is a multiple of 16.
    pub recv_x: u64,
    /// Scales of the tokens, if the format has any.
    pub recv_scales: u64,
    /// Number of rows of each local expert, or of each rank, u32.
    pub counts: u64,
    /// Source of each row: its row in the input of the rank that sent it, u32, in the shape of the rows.
    pub src_info: u64,
    /// By expert: begin and count of the rows of each rank, u64 `[local experts, ranks]`.
    pub layout_range: u64,
    /// By rank: local experts of each row, i32 `[ranks, max_tokens, top_k]`.
    pub recv_experts: u64,
    /// By rank: weights of these experts, f32 `[ranks, max_tokens, top_k]`.
    pub recv_weights: u64,
    /// Counters of rows of each local expert, u64, to which the call adds. 0: not kept.
    pub recv_stats: u64,
    /// The counters of `recv_stats` are i32, which wrap.
    pub stats_32: bool,
    /// Counters of the nanoseconds that the call waited for each rank, u64, to which the call adds; in ns for any clock of the
    /// device. 0: not kept.
    pub wait_ns: u64,
    /// 1 for each rank whose rows are here, u32 `[ranks]`. 0 as address: not written.
    pub active: u64,
    /// The address of this call's [`CombineStaging`](crate::moe::CombineStaging), u64; 0 if the caller may not write to the staging
    /// memory, since an HCA still reads it. 0 as address: not written. It is for kernels of graphs that are replayed: only the
    /// device knows the set of such a call.
    pub staging: u64,
    /// The format with which the dispatch of this call was sent, if it is not the layer's. The format decides whether the call has
    /// scales.
    pub format: Option<Format>,
    /// `active` is the caller's own mask, for example [`DispatchInput::active`]. The entry of a rank whose rows did not arrive
    /// becomes 0, and the other entries stay as they are.
    pub active_in_place: bool,
}

setters! {
    const DispatchOutput {
        with_recv_x(recv_x: u64),
        with_recv_scales(recv_scales: u64),
        with_counts(counts: u64),
        with_src_info(src_info: u64),
        with_layout_range(layout_range: u64),
        with_recv_experts(recv_experts: u64),
        with_recv_weights(recv_weights: u64),
        with_recv_stats(recv_stats: u64),
        with_stats_32(stats_32: bool),
        with_wait_ns(wait_ns: u64),
        with_active(active: u64),
        with_staging(staging: u64),
        with_format(format: Option<Format>),
        with_active_in_place(active_in_place: bool),
    }
}

/// Input of a combine. Contents as in [`CombineSendParams`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CombineInput {
    /// The output of the experts for `recv_x`, BF16, in the same places. By rank: the weighted rows that go back. The address is a
    /// multiple of 16.
    pub y: u64,
    /// The rows of `y` are in the layer's own staging memory already ([`Moe::combine_staging`](crate::moe::Moe::combine_staging)).
    /// Then `y` may be 0, which stands for the staging memory of the call: a graph that is replayed for calls of either set needs
    /// no address.
    pub zero_copy: bool,
    /// Memory in the shape of `y`, for a call with `zero_copy` whose dispatch offered no staging memory
    /// ([`DispatchOutput::staging`] 0, [`CallReport::offered`](crate::moe::CallReport::offered) false): the combine of such a call
    /// copies from here. 0: such a combine is refused, and its report says `invalid`.
    pub copy_from: u64,
    /// Every weight counts as 1.
    pub unweighted: bool,
    /// The longest wait of each phase of the combine. None: the deadline of its dispatch.
    pub deadline: Option<Duration>,
}

setters! {
    const CombineInput {
        with_y(y: u64),
        with_zero_copy(zero_copy: bool),
        with_copy_from(copy_from: u64),
        with_unweighted(unweighted: bool),
        with_deadline(deadline: Option<Duration>),
    }
}

/// Output of a combine. Contents as in [`CombineReceiveParams`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CombineOutput {
    /// Sums, BF16 `[tokens, hidden]`. The address is a multiple of 16.
    pub out: u64,
    /// 1 for each token all of whose experts contributed, u8 `[tokens]`.
    pub token_valid: u64,
    /// Weights, f32 `[tokens, top_k]`, in a layer that returns every expert's row. 0: the weights of dispatch.
    pub weights: u64,
    /// Counters of the nanoseconds that the call waited for each rank, u64, to which the call adds; in ns for any clock of the
    /// device. 0: not kept.
    pub wait_ns: u64,
    /// 1 for each rank whose rows were added, u32 `[ranks]`. 0 as address: not written.
    pub active: u64,
    /// `active` is the caller's own mask. The entry of a rank whose rows were not added becomes 0, and the other entries stay as
    /// they are.
    pub active_in_place: bool,
    /// The sum of a token that lost experts is divided by the share of its weights that is left.
    pub renormalise: bool,
}

setters! {
    const CombineOutput {
        with_out(out: u64),
        with_token_valid(token_valid: u64),
        with_weights(weights: u64),
        with_wait_ns(wait_ns: u64),
        with_active(active: u64),
        with_active_in_place(active_in_place: bool),
        with_renormalise(renormalise: bool),
    }
}

/// The layer and the handle of a launch.
#[derive(Clone, Copy)]
pub(in crate::moe) struct LaunchContext {
    pub(in crate::moe) moe: DevicePtr<MoeContext>,
    pub(in crate::moe) handle: DevicePtr<MoeHandle>,
    /// The address of the layer's own mask, which counts if a call brings none.
    pub(in crate::moe) active: u64,
    /// The number of ranks of the layer.
    pub(in crate::moe) ranks: u32,
}

impl DispatchInput {
    pub(in crate::moe) fn params(
        &self,
        config: &MoeConfig,
        subject: LaunchContext,
    ) -> Result<DispatchSendParams, MoeError> {
        let layer = config;
        let config = &shape::of_call(layer, subject.ranks, self.format, self.max_tokens)?;
        if self.tokens > config.max_tokens {
            return Err(MoeError::Tokens {
                tokens: self.tokens as usize,
                max_tokens: config.max_tokens,
            });
        }
        let scales = match config.format {
            Format::Bf16 => false,
            Format::Fp8(_) => self.quantized,
            Format::Opaque { scale_bytes, .. } => scale_bytes > 0,
        };
        if self.quantized && !matches!(config.format, Format::Fp8(_)) {
            return Err(MoeError::Option {
                what: "quantized",
                needs: "a layer of FP8",
            });
        }
        let some = self.tokens > 0;
        array("x", self.x, 16, some)?;
        array("x_scales", self.x_scales, 4, some && scales)?;
        array(
            "experts",
            self.experts,
            if self.ids_64 { 8 } else { 4 },
            some,
        )?;
        array("weights", self.weights, 4, false)?;
        array("active", self.active, 4, false)?;
        Ok(DispatchSendParams {
            moe: subject.moe,
            handle: subject.handle,
            x: DevicePtr::new(self.x),
            x_scales: DevicePtr::new(self.x_scales),
            experts: DevicePtr::new(self.experts),
            weights: DevicePtr::new(self.weights),
            active: DevicePtr::new(match self.active {
                0 => subject.active,
                own => own,
            }),
            deadline_ns: nanoseconds(self.deadline),
            tokens: self.tokens,
            flags: flag(self.quantized, DISPATCH_QUANTIZED)
                | flag(self.no_combine, DISPATCH_ONLY)
                | flag(self.ids_64, DISPATCH_IDS_64),
            ..shape::params(layer, config, subject.ranks)
        })
    }
}

impl DispatchOutput {
    pub(in crate::moe) fn params(
        &self,
        config: &MoeConfig,
        subject: LaunchContext,
    ) -> Result<DispatchReceiveParams, MoeError> {
        let by_expert = config.layout == RowLayout::ExpertMajor;
        let scales = match self.format.unwrap_or(config.format) {
            Format::Bf16 => false,
            Format::Fp8(_) => true,
            Format::Opaque { scale_bytes, .. } => scale_bytes > 0,
        };
        array("recv_x", self.recv_x, 16, true)?;
        array("recv_scales", self.recv_scales, 4, scales)?;
        array("counts", self.counts, 4, true)?;
        array("src_info", self.src_info, 4, true)?;
        array("layout_range", self.layout_range, 8, by_expert)?;
        array("recv_experts", self.recv_experts, 4, !by_expert)?;
        array("recv_weights", self.recv_weights, 4, !by_expert)?;
        let counter = if self.stats_32 { 4 } else { 8 };
        array("recv_stats", self.recv_stats, counter, self.stats_32)?;
        array("wait_ns", self.wait_ns, 8, false)?;
        array("active", self.active, 4, self.active_in_place)?;
        array("staging", self.staging, 8, false)?;
        if self.staging != 0 {
            config.check_zero_copy()?;
        }
        Ok(DispatchReceiveParams {
            moe: subject.moe,
            handle: subject.handle,
            recv_x: DevicePtr::new(self.recv_x),
            recv_scales: DevicePtr::new(self.recv_scales),
            counts: DevicePtr::new(self.counts),
            src_info: DevicePtr::new(self.src_info),
            layout_range: DevicePtr::new(self.layout_range),
            recv_experts: DevicePtr::new(self.recv_experts),
            recv_weights: DevicePtr::new(self.recv_weights),
            recv_stats: DevicePtr::new(self.recv_stats),
            wait_ns: DevicePtr::new(self.wait_ns),
            active: DevicePtr::new(self.active),
            staging: DevicePtr::new(self.staging),
            flags: flag(self.active_in_place, RECEIVE_IN_PLACE)
                | flag(self.stats_32, RECEIVE_STATS_32),
            reserved: 0,
        })
    }
}

impl CombineInput {
    /// Returns whether the device does what is asked, once the layer allows it. Only the device knows which set's memory `y` of a
    /// zero-copy call is, and whether its dispatch offered that memory.
    pub(in crate::moe) fn is_sure(&self) -> bool {
        !self.zero_copy || (self.y == 0 && self.copy_from != 0)
    }

    pub(in crate::moe) fn params(
        &self,
        config: &MoeConfig,
        subject: LaunchContext,
    ) -> Result<CombineSendParams, MoeError> {
        array("y", self.y, 16, !self.zero_copy)?;
        array("copy_from", self.copy_from, 16, false)?;
        if self.zero_copy {
            config.check_zero_copy()?;
        }
        Ok(CombineSendParams {
            moe: subject.moe,
            handle: subject.handle,
            y: DevicePtr::new(self.y),
            copy_from: DevicePtr::new(self.copy_from),
            deadline_ns: nanoseconds(self.deadline),
            flags: flag(self.zero_copy, COMBINE_ZERO_COPY)
                | flag(self.unweighted, COMBINE_UNWEIGHTED),
            reserved: 0,
        })
    }
}

impl CombineOutput {
    pub(in crate::moe) fn params(
        &self,
        config: &MoeConfig,
        subject: LaunchContext,
    ) -> Result<CombineReceiveParams, MoeError> {
        array("out", self.out, 16, true)?;
        array("token_valid", self.token_valid, 1, true)?;
        array("weights", self.weights, 4, false)?;
        array("wait_ns", self.wait_ns, 8, false)?;
        array("active", self.active, 4, self.active_in_place)?;
        if self.weights != 0 && config.returns != Returns::Rows {
            return Err(MoeError::Option {
                what: "weights of combine",
                needs: "a layer that returns every expert's row",
            });
        }
        Ok(CombineReceiveParams {
            moe: subject.moe,
            handle: subject.handle,
            out: DevicePtr::new(self.out),
            token_valid: DevicePtr::new(self.token_valid),
            weights: DevicePtr::new(self.weights),
            wait_ns: DevicePtr::new(self.wait_ns),
            active: DevicePtr::new(self.active),
            flags: flag(self.renormalise, COMBINE_RENORMALISE)
                | flag(self.active_in_place, COMBINE_IN_PLACE),
            reserved: 0,
        })
    }
}

/// Returns the caller's deadline in nanoseconds; 0 if there is none.
fn nanoseconds(deadline: Option<Duration>) -> u64 {
    let ns = |deadline: Duration| u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
    deadline.map_or(0, |deadline| ns(deadline).max(1))
}

fn flag(set: bool, flag: u32) -> u32 {
    if set { flag } else { 0 }
}

/// Refuses an address that is missing although it is needed, or that is not aligned.
fn array(what: &'static str, address: u64, align: u64, needed: bool) -> Result<(), MoeError> {
    if address.is_multiple_of(align) && (address != 0 || !needed) {
        return Ok(());
    }
    Err(MoeError::Address {
        what,
        address,
        align,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::Scales;

    const BF16: MoeConfig = MoeConfig {
        hidden: 128,
        experts: 4,
        top_k: 2,
        max_tokens: 8,
        ..MoeConfig::BF16
    };
    const FP8: MoeConfig = MoeConfig {
        format: Format::Fp8(Scales::F32),
        ..BF16
    };

    fn subject() -> LaunchContext {
        LaunchContext {
            moe: DevicePtr::new(0x1000),
            handle: DevicePtr::new(0x2000),
            active: 0x2000,
            ranks: 2,
        }
    }

    fn refused<T>(result: Result<T, MoeError>) -> String {
        result.err().expect("refused").to_string()
    }

    #[test]
    fn a_rank_without_tokens_needs_no_arrays() {
        let params = DispatchInput::default().params(&BF16, subject()).unwrap();
        assert_eq!((params.tokens, params.flags, params.deadline_ns), (0, 0, 0));
    }

    #[test]
    fn what_is_missing_or_not_aligned_is_named_with_its_address() {
        let input = DispatchInput {
            x: 0x100,
            experts: 0x200,
            tokens: 8,
            ..DispatchInput::default()
        };
        assert!(input.params(&BF16, subject()).is_ok());
        let text = refused(DispatchInput { x: 0, ..input }.params(&BF16, subject()));
        assert_eq!(
            text,
            "x is at 0x0; it must be a device address that is a multiple of 16"
        );
        let text = refused(
            DispatchInput {
                weights: 6,
                ..input
            }
            .params(&BF16, subject()),
        );
        assert!(
            text.contains("weights is at 0x6") && text.contains("of 4"),
            "{text}"
        );
        let text = refused(DispatchInput { tokens: 9, ..input }.params(&BF16, subject()));
        assert_eq!(text, "9 tokens in a call; max_tokens is 8");
    }

    #[test]
    fn scales_are_needed_where_the_caller_has_them() {
        let input = DispatchInput {
            x: 0x100,
            experts: 0x200,
            tokens: 1,
            ..DispatchInput::default()
        };
        let quantized = DispatchInput {
            quantized: true,
            ..input
        };
        assert!(input.params(&FP8, subject()).is_ok());
        assert!(refused(quantized.params(&FP8, subject())).contains("x_scales"));
        assert!(refused(quantized.params(&BF16, subject())).contains("a layer of FP8"));
        let given = DispatchInput {
            x_scales: 0x300,
            ..quantized
        };
        assert_eq!(
            given.params(&FP8, subject()).unwrap().flags,
            DISPATCH_QUANTIZED
        );
    }

    #[test]
    fn ids_of_64_bits_lie_at_multiples_of_8() {
        let input = DispatchInput {
            x: 0x100,
            experts: 0x204,
            tokens: 1,
            ..DispatchInput::default()
        };
        assert_eq!(input.params(&BF16, subject()).unwrap().flags, 0);
        let wide = input.with_ids_64(true);
        assert_eq!(
            refused(wide.params(&BF16, subject())),
            "experts is at 0x204; it must be a device address that is a multiple of 8"
        );
        let aligned = wide.with_experts(0x208).params(&BF16, subject()).unwrap();
        assert_eq!(aligned.flags, DISPATCH_IDS_64);
    }

    #[test]
    fn each_layout_has_outputs_of_its_own() {
        let common = DispatchOutput {
            recv_x: 0x100,
            counts: 0x200,
            src_info: 0x300,
            ..DispatchOutput::default()
        };
        let by_rank = MoeConfig {
            layout: RowLayout::RankMajor,
            ..BF16
        };
        assert!(refused(common.params(&BF16, subject())).contains("layout_range"));
        assert!(refused(common.params(&by_rank, subject())).contains("recv_experts"));
        let expert_major = DispatchOutput {
            layout_range: 0x400,
            ..common
        };
        assert!(expert_major.params(&BF16, subject()).is_ok());
        assert!(refused(expert_major.params(&FP8, subject())).contains("recv_scales"));
    }

    #[test]
    fn a_mask_in_place_must_be_given() {
        let output = DispatchOutput {
            recv_x: 0x100,
            counts: 0x200,
            src_info: 0x300,
            layout_range: 0x400,
            active_in_place: true,
            ..DispatchOutput::default()
        };
        let text = refused(output.params(&BF16, subject()));
        assert!(text.starts_with("active is at 0x0"), "{text}");
        let given = output.with_active(0x500).params(&BF16, subject()).unwrap();
        assert_eq!(given.flags, RECEIVE_IN_PLACE);
        let sums = CombineOutput {
            out: 0x100,
            token_valid: 0x201,
            active_in_place: true,
            ..CombineOutput::default()
        };
        assert!(refused(sums.params(&BF16, subject())).starts_with("active is at 0x0"));
        let given = sums.with_active(0x500).params(&BF16, subject()).unwrap();
        assert_eq!(given.flags, COMBINE_IN_PLACE);
    }

    #[test]
    fn counters_lie_at_multiples_of_their_width() {
        let output = DispatchOutput {
            recv_x: 0x100,
            counts: 0x200,
            src_info: 0x300,
            layout_range: 0x400,
            recv_stats: 0x504,
            ..DispatchOutput::default()
        };
        let text = refused(output.params(&BF16, subject()));
        assert_eq!(
            text,
            "recv_stats is at 0x504; it must be a device address that is a multiple of 8"
        );
        let narrow = output.with_stats_32(true);
        let params = narrow.params(&BF16, subject()).unwrap();
        assert_eq!(params.flags, RECEIVE_STATS_32);
        let none = narrow.with_recv_stats(0).params(&BF16, subject());
        assert!(refused(none).starts_with("recv_stats is at 0x0"));
    }

    #[test]
    fn options_of_combine_become_parameters_and_weights_need_rows() {
        let input = CombineInput {
            y: 0x100,
            zero_copy: true,
            copy_from: 0x200,
            unweighted: true,
            deadline: Some(Duration::MAX),
        };
        let by_rank = MoeConfig {
            layout: RowLayout::RankMajor,
            ..BF16
        };
        let params = input.params(&by_rank, subject()).unwrap();
        assert_eq!((params.flags, params.deadline_ns), (3, u64::MAX));
        let none = CombineInput {
            deadline: None,
            ..input
        };
        assert_eq!(none.params(&by_rank, subject()).unwrap().deadline_ns, 0);
        let text = refused(input.params(&BF16, subject()));
        assert!(text.starts_with("zero-copy: needs"), "{text}");
        let nowhere = CombineInput { y: 0, ..input };
        assert!(nowhere.params(&by_rank, subject()).is_ok());
        let output = CombineOutput {
            out: 0x100,
            token_valid: 0x201,
            weights: 0x300,
            renormalise: true,
            ..CombineOutput::default()
        };
        assert!(refused(output.params(&BF16, subject())).contains("every expert's row"));
        let rows = MoeConfig {
            returns: Returns::Rows,
            ..BF16
        };
        assert_eq!(
            output.params(&rows, subject()).unwrap().flags,
            COMBINE_RENORMALISE
        );
    }
}
