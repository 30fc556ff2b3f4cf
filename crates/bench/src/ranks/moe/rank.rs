//! One rank of the measurement. It runs a step and counts each phase apart.

// UNSAFETY: launches phases on buffers that live to the end of the step.
#![expect(unsafe_code, reason = "launches of the MoE kernels")]

use std::sync::Arc;
use std::time::Duration;

use super::buffers::Buffers;
use super::case::{HcaCounts, MoeCase, OpenGpu, RankGpu, ReadHca};
use super::report::Counts;
use crate::error::BenchError;
use warpverbs::gpu::Event;
use warpverbs::gpu::simt::SimtGpu;
use warpverbs::moe::{CombineInput, CombineOutput, DispatchInput, Moe};
use warpverbs::team::{JoinOptions, MemoryStore, Team, TeamConfig};
use warpverbs::verbs::{Context, DeviceSelector};

/// The bound of every wait. It is long, because 64 ranks may share two cores.
const LONG: Duration = Duration::from_secs(600);
/// log2 of the WQEBBs of a send queue: the least that a layer takes.
const LOG_DEPTH: u8 = 8;

/// What one rank counted in each phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phases {
    pub(super) dispatch: Counts,
    pub(super) combine: Counts,
}

/// Runs one rank. If it fails, the other ranks get its error.
pub(super) fn run(
    case: &MoeCase,
    rank: u32,
    device: &str,
    store: Arc<MemoryStore>,
    read: &ReadHca<'_>,
    open: &OpenGpu<'_>,
) -> Result<Phases, BenchError> {
    let context = Context::open(&DeviceSelector::Name(device.to_owned()))?;
    let RankGpu { gpu, simt } = open()?;
    let config = TeamConfig::new(rank, case.ranks)
        .with_log_depth(LOG_DEPTH)
        .with_join_timeout(LONG)
        .with_deadline(LONG);
    let team = JoinOptions::new(config)
        .with_contexts([&context])
        .with_gpu(&gpu)
        .with_store(store)
        .join()?;
    let counted = step(case, &team, simt.as_deref(), device, read);
    match &counted {
        Ok(_) => team.barrier("counted")?,
        Err(error) => team.give_up(&error.to_string()),
    }
    counted
}

fn step(
    case: &MoeCase,
    team: &Arc<Team>,
    simt: Option<&SimtGpu>,
    device: &str,
    read: &ReadHca<'_>,
) -> Result<Phases, BenchError> {
    let gpu = team.gpu();
    let moe = Moe::new(team, "bench", case.config)?;
    let call = moe.call()?;
    let buffers = Buffers::new(case, gpu)?;
    buffers.fill(case, gpu, team.rank())?;
    let stream = gpu.default_stream();
    let input = DispatchInput::default()
        .with_x(buffers.x.addr())
        .with_experts(buffers.experts.addr())
        .with_weights(buffers.weights.addr())
        .with_tokens(case.config.max_tokens);
    let output = buffers.output(case.config.layout);
    // The experts give back the rows that they got.
    let back = CombineInput::default().with_y(buffers.recv_x.addr());
    let sums = CombineOutput::default()
        .with_out(buffers.out.addr())
        .with_token_valid(buffers.valid.addr());
    let wait = |event: Event| gpu.wait(&event, LONG);

    // At each barrier every rank has received, so all posted operations have been counted.
    let at = |name: &str| -> Result<Counts, BenchError> {
        team.barrier(name)?;
        let counts = counts(team, simt, device, read, case)?;
        team.barrier(&format!("{name}-read"))?;
        Ok(counts)
    };
    let launched = || -> Result<Phases, BenchError> {
        let start = at("start")?;
        // SAFETY: the buffers have the sizes of the shape. They, handle and layer live until after the waits, or are never freed.
        // No other code uses them.
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
        // A kernel that has not ended still uses all of these.
        std::mem::forget((buffers, call, Arc::clone(&moe)));
    }
    result
}

/// Returns what HCA and QPs of this rank have counted until now.
fn counts(
    team: &Team,
    simt: Option<&SimtGpu>,
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
    Ok(Counts::new(hca, wqes, doorbells, simt))
}
