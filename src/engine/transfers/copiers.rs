//! The choice of the GPU that copies a transfer within this machine.
//!
//! A transfer with memory of a GPU at either end is copied if one GPU reaches all memory of both ends. If memory of this side is a GPU's,
//! that GPU copies. If not, the GPU of the peer copies within a process, and any GPU of this side between processes. If no GPU reaches all
//! memory, the NIC moves the whole transfer.

use std::sync::Arc;

use crate::engine::error::{EngineError, Side};
use crate::engine::ledger::plan::Plan;
use crate::engine::memory::table::{LocalTable, Mapped, Tables};
use crate::engine::route::link::Link;
use crate::gpu::Gpu;
use crate::provider::local::Reach;

/// The most regions of the peer that are remembered as reached by the GPU. A transfer with more regions asks again about some.
const KNOWN: usize = 32;

/// What moves memory of GPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct By {
    /// True if some memory of this side is a GPU's.
    pub(super) has_gpu: bool,
    /// The number of the GPU that copies. 0: none does.
    pub(super) copier: u8,
}

/// Chooses what moves a transfer. `reaches_gpu`: some memory of the peer may be a GPU's.
///
/// # Errors
/// [`EngineError::LocalGpu`]: only copies are allowed, and no GPU makes them.
pub(super) fn choose(
    plan: &Plan,
    link: &Link,
    tables: &Tables,
    reaches_gpu: bool,
) -> Result<By, EngineError> {
    let has_gpu = has_gpu(plan, &tables.local);
    if !has_gpu && !reaches_gpu {
        return Ok(By::default());
    }
    let copier = link
        .local()
        .and_then(|way| copier(plan, tables, &way.reach));
    let side = if has_gpu { Side::Local } else { Side::Remote };
    match copier {
        None if link.local().is_some_and(|way| way.is_only) => Err(EngineError::LocalGpu { side }),
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

/// Returns the number of the GPU that copies, if a GPU reaches all memory of both ends.
fn copier(plan: &Plan, tables: &Tables, reach: &Reach) -> Option<u8> {
    let remote = |number| tables.remote.get(number);
    let gpu = match own_gpu(plan, &tables.local) {
        Ok(Some(own)) => own,
        Ok(None) => {
            let regions = plan.remotes().filter_map(|it| remote(it.region));
            let mut of_gpu = regions.filter(|region| region.keys.is_of_gpu());
            reach.gpu_for(key_of(of_gpu.next()?))?
        }
        Err(NoCopier) => return None,
    };
    let (mut known, mut next) = ([None; KNOWN], 0);
    for it in plan.remotes() {
        let key = key_of(remote(it.region)?);
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

/// No GPU reaches all memory of this side.
struct NoCopier;

/// Returns the GPU that has memory of this side in the transfer: the first, if there are several and they reach each other. Returns None if
/// no memory of this side is a GPU's.
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

/// Returns the key by which copies name a region of the peer.
fn key_of<T>(region: &Mapped<T>) -> u32 {
    region.keys.of(0)
}
