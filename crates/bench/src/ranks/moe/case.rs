//! A step whose traffic is counted, and what it is counted with.

use std::fmt;
use std::sync::Arc;

use super::routing::{Routing, choices};
use crate::error::BenchError;
use warpverbs::gpu::Gpu;
use warpverbs::gpu::simt::SimtGpu;
use warpverbs::moe::{MoeConfig, RowLayout};

/// A step whose traffic is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoeCase {
    /// Number of ranks.
    pub ranks: u32,
    /// The shape of the layer. Every rank has `max_tokens` tokens.
    pub config: MoeConfig,
    /// How tokens choose their experts.
    pub routing: Routing,
    /// The seed of tokens and routing.
    pub seed: u64,
}

impl MoeCase {
    /// Returns the experts that the tokens of `rank` choose.
    pub(super) fn choices(&self, rank: u32) -> Vec<i32> {
        let config = &self.config;
        let (tokens, experts) = (config.max_tokens, config.experts);
        choices(self.routing, self.seed, rank, tokens, experts, config.top_k)
    }
}

/// What the HCA of one rank has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HcaCounts {
    /// The number of work requests begun.
    pub wqes: u64,
    /// The number of doorbells taken.
    pub doorbells: u64,
    /// The number of work requests that are inline writes or atomics: signals and control words.
    pub signals: u64,
    /// The number of payload bytes sent.
    pub bytes: u64,
}

/// A function that returns the counts of the HCA with a name.
pub type ReadHca<'a> = dyn Fn(&str) -> Option<HcaCounts> + Sync + 'a;

/// The device of a rank.
pub(crate) struct RankGpu {
    /// The device on which the kernels of the rank run.
    pub(crate) gpu: Arc<dyn Gpu>,
    /// That device as a simt device, which counts what kernels do. None: it is no simt device.
    pub(crate) simt: Option<Arc<SimtGpu>>,
}

impl RankGpu {
    /// Returns a new simt device.
    ///
    /// # Errors
    /// The error of [`SimtGpu::open`].
    pub(crate) fn simt() -> Result<Self, BenchError> {
        let simt = SimtGpu::open()?;
        Ok(Self {
            gpu: Arc::<SimtGpu>::clone(&simt),
            simt: Some(simt),
        })
    }
}

/// A function that makes the device of a rank.
pub(crate) type OpenGpu<'a> = dyn Fn() -> Result<RankGpu, BenchError> + Sync + 'a;

impl fmt::Display for MoeCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = match self.config.layout {
            RowLayout::ExpertMajor => "by expert",
            RowLayout::RankMajor => "by rank",
        };
        write!(
            f,
            "{} ranks, {} tokens x {}, top-{} of {} experts, {}, {layout}",
            self.ranks,
            self.config.max_tokens,
            self.config.hidden,
            self.config.top_k,
            self.config.experts,
            self.routing,
        )
    }
}
