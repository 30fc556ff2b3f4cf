//! What QPs have done, read while kernels use them.

use std::mem::offset_of;
use std::time::Duration;

use bytemuck::Pod;

use super::link::Link;
use crate::abi::{QpContext, Status};
use crate::gpu::{Gpu, GpuError};
use crate::team::error::TeamError;
use crate::verbs::QpStatus;

/// What one QP has done in all its lives, probes of reunions included. Read word by word while kernels run: `completed` is never ahead of `posted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpCounters {
    /// WQEBBs posted.
    pub posted: u64,
    /// WQEBBs whose completion a kernel or the host has seen.
    pub completed: u64,
    /// Doorbells rung, by kernels or for them.
    pub doorbells: u64,
    /// Time that calls have waited for ring space, summed over all callers.
    pub full_ring: Duration,
    /// Failures that kernels have seen: at most one in each life.
    pub errors: u64,
}

/// How one QP is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpReport {
    /// QP number at this rank.
    pub qpn: u32,
    /// The rail that the QP uses, from 0 on.
    pub rail: u32,
    /// What the HCA says. `state` is `ERR` after a failure, whether or not a kernel has seen it.
    pub hca: QpStatus,
    /// The first failure that was seen in this life; `ok` if none.
    pub status: Status,
    /// vendor_err_synd << 8 | syndrome of the error CQE behind `status`; 0 without an error CQE. It is the cause only if `status`
    /// is `CQE_ERROR`. With `FLUSHED` it is that of a WQE after the one that failed.
    pub syndrome: u32,
    /// Recoveries and replacements of the peer that it has been through.
    pub life: u32,
    /// Whether the host has ended the calls on it.
    pub aborted: bool,
}

/// Returns what a QP has done. Kernels may run.
pub(in crate::team) fn counters(gpu: &dyn Gpu, link: &Link) -> Result<QpCounters, TeamError> {
    let (at, skipped) = (link.layout().context_addr, link.skipped());
    // Completed before posted, so that it is not ahead of it.
    let completed: u64 = word(gpu, at, offset_of!(QpContext, cons))?;
    let posted: u64 = word(gpu, at, offset_of!(QpContext, resv))?;
    let ns: u64 = word(gpu, at, offset_of!(QpContext, full_ring_ns))?;
    Ok(QpCounters {
        posted: posted.saturating_sub(skipped.posted),
        completed: completed.saturating_sub(skipped.completed),
        doorbells: word(gpu, at, offset_of!(QpContext, doorbells))?,
        full_ring: Duration::from_nanos(ns),
        errors: word(gpu, at, offset_of!(QpContext, errors))?,
    })
}

/// Returns how a QP of this `life` is, at the HCA and for kernels. Kernels may run.
pub(in crate::team) fn report(
    gpu: &dyn Gpu,
    link: &Link,
    life: u32,
) -> Result<QpReport, TeamError> {
    let at = link.layout().context_addr;
    // One word: a failure and its syndrome.
    let failure = error_word(gpu, link)?;
    let abort: u32 = word(gpu, at, offset_of!(QpContext, abort))?;
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
    let status = Status(failure as u32);
    Ok(QpReport {
        qpn: link.qpn(),
        rail: link.rail(),
        hca: link.query()?,
        status,
        syndrome: u32::try_from(failure >> 32).expect("32 bits"),
        life,
        aborted: abort != 0,
    })
}

/// Returns the word of its first failure and syndrome.
pub(in crate::team) fn error_word(gpu: &dyn Gpu, link: &Link) -> Result<u64, TeamError> {
    let at = link.layout().context_addr;
    Ok(word(gpu, at, offset_of!(QpContext, err))?)
}

/// The WQEBBs of its ring, as kernels find them.
#[derive(Clone, Copy, Debug)]
pub(in crate::team) struct Ring {
    pub(in crate::team) depth: u32,
    pub(in crate::team) free: u64,
}

/// Returns how much of its ring is free.
pub(in crate::team) fn ring(gpu: &dyn Gpu, link: &Link) -> Result<Ring, TeamError> {
    let layout = link.layout();
    let at = |offset: usize| word::<u64>(gpu, layout.context_addr, offset);
    // cons first: what completes in between only makes more room.
    let completed = at(offset_of!(QpContext, cons))?;
    // An exclusive QP has no `claim`. On other QPs `claim` is never below `resv`, and counts the posts that threads have begun.
    let asked = at(offset_of!(QpContext, claim))?.max(at(offset_of!(QpContext, resv))?);
    let taken = asked.saturating_sub(completed);
    Ok(Ring {
        depth: layout.depth,
        free: u64::from(layout.depth).saturating_sub(taken),
    })
}

fn word<T: Pod>(gpu: &dyn Gpu, context: u64, offset: usize) -> Result<T, GpuError> {
    let mut word = T::zeroed();
    gpu.read(context + offset as u64, bytemuck::bytes_of_mut(&mut word))?;
    Ok(word)
}
