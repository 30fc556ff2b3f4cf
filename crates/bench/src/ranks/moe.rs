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
mod case;
mod need;
mod rank;
mod report;
mod routing;

use std::sync::Arc;

pub use case::{HcaCounts, MoeCase, ReadHca};
pub(crate) use case::{OpenGpu, RankGpu};
pub use need::{Need, lower_bound};
pub use report::{Counts, KernelWork, MoeReport, MoeRow};
pub use routing::Routing;

use super::together::{devices_of, together};
use crate::error::BenchError;
use warpverbs::team::MemoryStore;

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
pub(crate) fn measure_on(
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
