//! One rank of the measurement: a step whose phases are counted apart.

// UNSAFETY: launches phases on buffers that live to the end of the step.
#![expect(unsafe_code, reason = "launches of the MoE kernels")]

use std::sync::Arc;
use std::time::Duration;

use super::{Counts, HcaCounts, MoeCase, ReadHca, choices};
use crate::bench::BenchError;
use crate::gpu::{self, DeviceMemory, Event, Gpu, GpuSelector};
use crate::moe::{
    CombineInput, CombineOutput, DispatchInput, DispatchOutput, Layout, Moe, RowLayout, bf16,
};
use crate::team::{MemoryStore, Store, Team, TeamConfig};
use crate::verbs::{Context, DeviceSelector};

/// Bound of every wait: 64 ranks may share two cores.
const LONG: Duration = Duration::from_secs(600);
/// log2 of the WQEBBs of a send queue, the least that a layer takes.
const LOG_DEPTH: u8 = 8;

/// What one rank counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phases {
    pub(super) dispatch: Counts,
    pub(super) combine: Counts,
}

/// Runs one rank; if it fails, the others are told.
pub(super) fn run(
    case: &MoeCase,
    rank: u32,
    device: &str,
    store: Arc<MemoryStore>,
    read: &ReadHca<'_>,
) -> Result<Phases, BenchError> {
    let context = Context::open(&DeviceSelector::Name(device.to_owned()))?;
    let gpu = gpu::open_for(GpuSelector::Simt, context.info().is_soft())?;
    let config = TeamConfig {
        log_depth: LOG_DEPTH,
        timeout: LONG,
        deadline: LONG,
        direct: false,
        ..TeamConfig::new(rank, case.ranks)
    };
    let store: Arc<dyn Store> = store;
    let team = Team::join(config, &context, &gpu, store)?;
    let counted = step(case, &team, device, read);
    match &counted {
        Ok(_) => team.barrier("counted")?,
        Err(error) => team.give_up(&error.to_string()),
    }
    counted
}

/// Buffers of one step, with their sizes.
struct Buffers {
    x: DeviceMemory,
    experts: DeviceMemory,
    weights: DeviceMemory,
    recv_x: DeviceMemory,
    counts: DeviceMemory,
    src_info: DeviceMemory,
    /// By expert the ranges; by rank the experts of the rows.
    of_rows: DeviceMemory,
    recv_weights: DeviceMemory,
    out: DeviceMemory,
    valid: DeviceMemory,
}

impl Buffers {
    fn new(case: &MoeCase, gpu: &Arc<dyn Gpu>) -> Result<Self, BenchError> {
        let config = &case.config;
        let (ranks, tokens) = (u64::from(case.ranks), u64::from(config.max_tokens));
        let local = u64::from(config.experts.div_ceil(case.ranks));
        let (choices, row) = (
            tokens * u64::from(config.top_k),
            Layout::new(config, case.ranks).row_bytes,
        );
        let (rows, of_rows) = match config.layout {
            RowLayout::ExpertMajor => (local * ranks * tokens, local * ranks * 8),
            RowLayout::RankMajor => (ranks * tokens, ranks * choices * 4),
        };
        let alloc = |bytes: u64| {
            let bytes = usize::try_from(bytes.max(16)).unwrap_or(usize::MAX);
            gpu.alloc(bytes, 128)
        };
        Ok(Self {
            x: alloc(tokens * row)?,
            experts: alloc(choices * 4)?,
            weights: alloc(choices * 4)?,
            recv_x: alloc(rows * row)?,
            counts: alloc(local.max(ranks) * 4)?,
            src_info: alloc(rows * 4)?,
            of_rows: alloc(of_rows)?,
            recv_weights: alloc(ranks * choices * 4)?,
            out: alloc(tokens * u64::from(config.hidden) * 2)?,
            valid: alloc(tokens)?,
        })
    }

    /// Tokens of random numbers, choices of the case, equal weights.
    fn fill(&self, case: &MoeCase, gpu: &Arc<dyn Gpu>, rank: u32) -> Result<(), BenchError> {
        let config = &case.config;
        let mut random = fastrand::Rng::with_seed(case.seed ^ u64::from(rank) << 32);
        let x: Vec<u16> = (0..u64::from(config.max_tokens) * u64::from(config.hidden))
            .map(|_| bf16::from_f32(random.f32() - 0.5))
            .collect();
        let experts = choices(
            case.routing,
            case.seed,
            rank,
            config.max_tokens,
            config.experts,
            config.top_k,
        );
        #[expect(clippy::cast_precision_loss, reason = "at most 32")]
        let weights = vec![1.0 / config.top_k as f32; experts.len()];
        gpu.write(self.x.addr(), bytemuck::cast_slice(&x))?;
        gpu.write(self.experts.addr(), bytemuck::cast_slice(&experts))?;
        Ok(gpu.write(self.weights.addr(), bytemuck::cast_slice(&weights))?)
    }

    fn output(&self, layout: RowLayout) -> DispatchOutput {
        let common = DispatchOutput {
            recv_x: self.recv_x.addr(),
            counts: self.counts.addr(),
            src_info: self.src_info.addr(),
            ..DispatchOutput::default()
        };
        match layout {
            RowLayout::ExpertMajor => DispatchOutput {
                layout_range: self.of_rows.addr(),
                ..common
            },
            RowLayout::RankMajor => DispatchOutput {
                recv_experts: self.of_rows.addr(),
                recv_weights: self.recv_weights.addr(),
                ..common
            },
        }
    }
}

fn step(
    case: &MoeCase,
    team: &Arc<Team>,
    device: &str,
    read: &ReadHca<'_>,
) -> Result<Phases, BenchError> {
    let gpu = team.gpu();
    let moe = Moe::new(team, "bench", case.config)?;
    let call = moe.call()?;
    let buffers = Buffers::new(case, gpu)?;
    buffers.fill(case, gpu, team.rank())?;
    let stream = gpu.default_stream();
    let input = DispatchInput {
        x: buffers.x.addr(),
        experts: buffers.experts.addr(),
        weights: buffers.weights.addr(),
        tokens: case.config.max_tokens,
        ..DispatchInput::default()
    };
    let output = buffers.output(case.config.layout);
    // The experts give back what they got.
    let back = CombineInput {
        y: buffers.recv_x.addr(),
        ..CombineInput::default()
    };
    let sums = CombineOutput {
        out: buffers.out.addr(),
        token_valid: buffers.valid.addr(),
        ..CombineOutput::default()
    };
    let wait = |event: Event| gpu.wait(&event, LONG);

    // Behind each barrier everybody has received, so that all that was posted has been counted.
    let at = |name: &str| -> Result<Counts, BenchError> {
        team.barrier(name)?;
        let counts = counts(team, device, read, case)?;
        team.barrier(&format!("{name}-read"))?;
        Ok(counts)
    };
    let launched = || -> Result<Phases, BenchError> {
        let start = at("start")?;
        // SAFETY: the buffers have the sizes of the shape, and they, handle and layer live behind the waits, or are never
        // freed; nobody else uses them.
        wait(unsafe { moe.dispatch_send(&stream, &call, &input) }?)?;
        // SAFETY: as above.
        wait(unsafe { moe.dispatch_receive(&stream, &call, &output) }?)?;
        let dispatched = at("dispatched")?;
        // SAFETY: as above.
        wait(unsafe { moe.combine_send(&stream, &call, &back) }?)?;
        // SAFETY: as above.
        wait(unsafe { moe.combine_receive(&stream, &call, &sums) }?)?;
        let combined = at("combined")?;
        call.check()?;
        Ok(Phases {
            dispatch: dispatched.since(&start),
            combine: combined.since(&dispatched),
        })
    };
    let result = launched();
    if matches!(result, Err(BenchError::Gpu(_))) {
        // A kernel that would not end still uses all of this.
        std::mem::forget((buffers, call, Arc::clone(&moe)));
    }
    result
}

/// What HCA and QPs of this rank have counted.
fn counts(
    team: &Team,
    device: &str,
    read: &ReadHca<'_>,
    case: &MoeCase,
) -> Result<Counts, BenchError> {
    let hca: HcaCounts = read(device).ok_or_else(|| BenchError::Wrong {
        case: case.to_string(),
        detail: format!("{device} has no counters"),
    })?;
    let (mut wqes, mut doorbells) = (0, 0);
    for peer in (0..team.ranks()).filter(|peer| *peer != team.rank()) {
        for qp in 0..team.config().qps_per_peer {
            let counters = team.counters(peer, qp)?;
            wqes += counters.posted;
            doorbells += counters.doorbells;
        }
    }
    Ok(Counts::new(hca, wqes, doorbells))
}
