//! Which GPU copies a transfer within this machine.
//!
//! A transfer with memory of a GPU at either end is copied if one GPU reaches all memory of both ends. It is one of this side whose
//! memory the transfer has. Without such, within a process it is the peer's, and between processes any of this side. Else the NIC moves
//! the whole transfer.

use std::sync::Arc;

use crate::engine::error::{EngineError, Side};
use crate::engine::ledger::plan::Plan;
use crate::engine::memory::table::{LocalTable, Mapped, RemoteTable};
use crate::engine::route::link::Link;
use crate::gpu::Gpu;
use crate::provider::local::Reach;

/// Regions of the peer that are asked about once for a transfer; of more some are asked about again.
const KNOWN: usize = 32;

/// What moves memory of GPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct By {
    /// Some memory of this side is a GPU's.
    pub(super) has_gpu: bool,
    /// The number of the GPU that copies; 0: none does.
    pub(super) copier: u8,
}

/// Chooses for a transfer of which some memory of the peer may be a GPU's.
///
/// # Errors
/// [`EngineError::LocalGpu`]: copies alone are allowed, and no GPU makes them.
pub(super) fn choose(
    plan: &Plan,
    (link, local, remote): (&Link, &LocalTable, &RemoteTable),
    reaches_gpu: bool,
) -> Result<By, EngineError> {
    let has_gpu = has_gpu(plan, local);
    if !has_gpu && !reaches_gpu {
        return Ok(By::default());
    }
    let copier = link
        .reach()
        .and_then(|reach| copier(plan, (local, remote), reach));
    let side = if has_gpu { Side::Local } else { Side::Remote };
    match copier {
        None if link.only_copies() => Err(EngineError::LocalGpu { side }),
        copier => Ok(By {
            has_gpu,
            copier: copier.unwrap_or(0),
        }),
    }
}

fn has_gpu(plan: &Plan, local: &LocalTable) -> bool {
    let mut regions = plan.local_regions();
    regions.any(|number| local.get(number).is_some_and(|it| it.keys.is_of_gpu()))
}

fn copier(plan: &Plan, (local, remote): (&LocalTable, &RemoteTable), reach: &Reach) -> Option<u8> {
    let gpu = match own_gpu(plan, local) {
        Ok(Some(own)) => own,
        Ok(None) => {
            let regions = plan.remotes().filter_map(|(.., region)| remote.get(region));
            let mut of_gpu = regions.filter(|region| region.keys.is_of_gpu());
            reach.gpu_for(key_of(of_gpu.next()?))?
        }
        Err(NoCopier) => return None,
    };
    let (mut known, mut next) = ([None; KNOWN], 0);
    for (.., region) in plan.remotes() {
        let key = key_of(remote.get(region)?);
        if known.contains(&Some(key)) {
            continue;
        }
        if !reach.is_reached_by(&gpu, key) {
            return None;
        }
        known[next % KNOWN] = Some(key);
        next += 1;
    }
    reach.number_of(&gpu)
}

/// No GPU reaches all of it.
struct NoCopier;

/// The GPU whose memory of this side the transfer has; the first of several that reach each other.
fn own_gpu(plan: &Plan, local: &LocalTable) -> Result<Option<Arc<dyn Gpu>>, NoCopier> {
    let mut first: Option<&Arc<dyn Gpu>> = None;
    let regions = plan.local_regions().filter_map(|number| local.get(number));
    for region in regions.filter(|region| region.keys.is_of_gpu()) {
        let own = region.owner.copier().ok_or(NoCopier)?;
        if first.is_some_and(|it| it.copies_within() != own.copies_within()) {
            return Err(NoCopier);
        }
        first = first.or(Some(own));
    }
    Ok(first.cloned())
}

/// The key by which copies name a region of the peer.
fn key_of<T>(region: &Mapped<T>) -> u32 {
    region.keys.of(0)
}
