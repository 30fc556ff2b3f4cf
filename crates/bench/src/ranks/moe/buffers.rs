//! The device buffers of a measured layer: inputs and outputs of one step.

use std::sync::Arc;

use super::case::MoeCase;
use crate::error::BenchError;
use warpverbs::gpu::{DeviceMemory, Gpu};
use warpverbs::moe::{DispatchOutput, Layout, RowLayout, bf16};

/// Buffers of one step, with their sizes.
pub(super) struct Buffers {
    pub(super) x: DeviceMemory,
    pub(super) experts: DeviceMemory,
    pub(super) weights: DeviceMemory,
    pub(super) recv_x: DeviceMemory,
    recv_scales: DeviceMemory,
    counts: DeviceMemory,
    src_info: DeviceMemory,
    /// The ranges by expert, or the experts of the rows by rank, as the layout has them.
    of_rows: DeviceMemory,
    recv_weights: DeviceMemory,
    pub(super) out: DeviceMemory,
    pub(super) valid: DeviceMemory,
}

impl Buffers {
    pub(super) fn new(case: &MoeCase, gpu: &Arc<dyn Gpu>) -> Result<Self, BenchError> {
        let config = &case.config;
        let (ranks, tokens) = (u64::from(case.ranks), u64::from(config.max_tokens));
        let local = u64::from(config.experts.div_ceil(case.ranks));
        let choices = tokens * u64::from(config.top_k);
        let layout = Layout::new(config, case.ranks);
        let (rows, of_rows) = match config.layout {
            RowLayout::ExpertMajor => (local * ranks * tokens, local * ranks * 8),
            RowLayout::RankMajor => (ranks * tokens, ranks * choices * 4),
        };
        let alloc = |bytes: u64| {
            let bytes = usize::try_from(bytes.max(16)).unwrap_or(usize::MAX);
            gpu.alloc(bytes, 128)
        };
        Ok(Self {
            // The BF16 tokens that dispatch casts are longer than the rows that it sends.
            x: alloc(tokens * layout.row_bytes.max(layout.combine_row_bytes))?,
            experts: alloc(choices * 4)?,
            weights: alloc(choices * 4)?,
            recv_x: alloc(rows * layout.row_bytes)?,
            recv_scales: alloc(rows * layout.scale_bytes)?,
            counts: alloc(local.max(ranks) * 4)?,
            src_info: alloc(rows * 4)?,
            of_rows: alloc(of_rows)?,
            recv_weights: alloc(ranks * choices * 4)?,
            out: alloc(tokens * u64::from(config.hidden) * 2)?,
            valid: alloc(tokens)?,
        })
    }

    /// Fills the buffers: tokens with random numbers, experts with the choices of the case, weights all equal.
    pub(super) fn fill(
        &self,
        case: &MoeCase,
        gpu: &Arc<dyn Gpu>,
        rank: u32,
    ) -> Result<(), BenchError> {
        let config = &case.config;
        let mut random = fastrand::Rng::with_seed(case.seed ^ u64::from(rank) << 32);
        let x: Vec<u16> = (0..u64::from(config.max_tokens) * u64::from(config.hidden))
            .map(|_| bf16::from_f32(random.f32() - 0.5))
            .collect();
        let experts = case.choices(rank);
        #[expect(clippy::cast_precision_loss, reason = "at most 32")]
        let weights = vec![1.0 / config.top_k as f32; experts.len()];
        gpu.write(self.x.addr(), bytemuck::cast_slice(&x))?;
        gpu.write(self.experts.addr(), bytemuck::cast_slice(&experts))?;
        Ok(gpu.write(self.weights.addr(), bytemuck::cast_slice(&weights))?)
    }

    pub(super) fn output(&self, layout: RowLayout) -> DispatchOutput {
        let common = DispatchOutput::default()
            .with_recv_x(self.recv_x.addr())
            .with_recv_scales(self.recv_scales.addr())
            .with_counts(self.counts.addr())
            .with_src_info(self.src_info.addr());
        match layout {
            RowLayout::ExpertMajor => common.with_layout_range(self.of_rows.addr()),
            RowLayout::RankMajor => common
                .with_recv_experts(self.of_rows.addr())
                .with_recv_weights(self.recv_weights.addr()),
        }
    }
}
