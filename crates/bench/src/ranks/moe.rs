//! What a MoE step costs on the wire: work requests, doorbells, signals and bytes of dispatch and combine.
//!
//! Ranks are threads of this process, each with a software HCA and a simt device of its own. Both the HCA and the QPs' contexts in device
//! memory count, and they must agree on work requests. Doorbells are those that kernels rang; the HCA may find fewer. Beside the counts
//! stands what DeepEP's published low-latency algorithm needs for the same routing, which is computed. DeepEP posts one work request for
//! each token and expert of another rank, and one signal for each expert of another rank. It rings one doorbell for each four of these
//! together. No times are taken, because `softhca+simt` says nothing about speed. [`bandwidth`] runs the kernels of one rank alone, and
//! takes their times where the machine has a GPU.

pub mod bandwidth;
mod buffers;
mod need;
mod rank;
mod report;
mod routing;

use std::sync::Arc;

pub use need::{Need, deepep, lower_bound};
pub use report::{Counts, KernelWork, MoeReport, MoeRow};
pub use routing::{Routing, choices};

use super::BenchError;
use super::ranks::{devices_of, together};
use warpverbs::gpu::Gpu;
use warpverbs::gpu::simt::SimtGpu;
use warpverbs::moe::{MoeConfig, RowLayout};
use warpverbs::team::MemoryStore;

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
    fn choices(&self, rank: u32) -> Vec<i32> {
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
pub struct RankGpu {
    /// The device on which the kernels of the rank run.
    pub gpu: Arc<dyn Gpu>,
    /// That device as a simt device, which counts what kernels do. None: it is no simt device.
    pub simt: Option<Arc<SimtGpu>>,
}

impl RankGpu {
    /// Returns a new simt device.
    ///
    /// # Errors
    /// The error of [`SimtGpu::open`].
    pub fn simt() -> Result<Self, BenchError> {
        let simt = SimtGpu::open()?;
        Ok(Self {
            gpu: Arc::<SimtGpu>::clone(&simt),
            simt: Some(simt),
        })
    }
}

/// A function that makes the device of a rank.
pub type OpenGpu<'a> = dyn Fn() -> Result<RankGpu, BenchError> + Sync + 'a;

/// Runs one step, dispatch and combine, on the first `ranks` of `devices`, and counts its traffic.
///
/// # Errors
/// Too few devices; what team, layer and device refuse; counts that disagree; a call that is not complete.
pub fn measure(
    case: &MoeCase,
    devices: &[String],
    read: &ReadHca<'_>,
) -> Result<Vec<MoeRow>, BenchError> {
    measure_on(case, devices, read, &RankGpu::simt)
}

/// Measures as [`measure`] does, on devices that `open` makes, one for each rank.
///
/// # Errors
/// The errors of [`measure`] and of `open`.
pub fn measure_on(
    case: &MoeCase,
    devices: &[String],
    read: &ReadHca<'_>,
    open: &OpenGpu<'_>,
) -> Result<Vec<MoeRow>, BenchError> {
    case.config.check(case.ranks)?;
    let devices = devices_of(case.ranks, devices)?;
    let store = Arc::new(MemoryStore::new());
    let runs = (0u32..).zip(devices).map(|(rank, device)| {
        let store = Arc::clone(&store);
        move || rank::run(case, rank, device, store, read, open)
    });
    let mut dispatch = Counts::default();
    let mut combine = Counts::default();
    for phases in together(runs.collect(), &case.to_string())? {
        dispatch.add(&phases.dispatch);
        combine.add(&phases.combine);
    }
    Ok(vec![
        MoeRow::new(case, "dispatch", dispatch),
        MoeRow::new(case, "combine", combine),
    ])
}

impl std::fmt::Display for MoeCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
