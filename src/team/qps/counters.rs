//! What QPs have done, read while kernels use them.

use std::mem::offset_of;
use std::time::Duration;

use bytemuck::Pod;

use super::peer_qp::PeerQp;
use crate::abi::{QpContext, Status};
use crate::gpu::{Gpu, GpuError};
use crate::team::error::TeamError;
use crate::verbs::QpStatus;

/// What one QP has done in all its lives, probes of reunions included. It is read word by word while kernels run: `completed` is
/// never more than `posted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpCounters {
    /// WQEBBs posted.
    pub posted: u64,
    /// WQEBBs that have completed, as a kernel or the host has seen.
    pub completed: u64,
    /// Doorbells rung, by kernels or for them.
    pub doorbells: u64,
    /// Time that calls have waited for ring space, summed over all callers.
    pub full_ring: Duration,
    /// Failures that kernels have seen: at most one in each life.
    pub errors: u64,
}

/// The state of one QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpReport {
    /// The number of the QP at this rank.
    pub qpn: u32,
    /// The rail that the QP uses, from 0 on.
    pub rail: u32,
    /// The state as the HCA reports it. `state` is `ERR` after a failure, even if no kernel has seen the failure.
    pub hca: QpStatus,
    /// The first failure in this life that was seen; `ok` if none.
    pub status: Status,
    /// vendor_err_synd << 8 | syndrome of the error CQE that came with `status`; 0 without an error CQE. It is the cause only if
    /// `status` is `CQE_ERROR`. If `status` is `FLUSHED`, the CQE is that of a WQE after the one that failed.
    pub syndrome: u32,
    /// The number of recoveries and replacements of the peer that the QP has been through.
    pub life: u32,
    /// The host has ended the calls on the QP.
    pub aborted: bool,
}

/// Returns what a QP has done. Kernels may run.
pub(in crate::team) fn counters(gpu: &dyn Gpu, peer_qp: &PeerQp) -> Result<QpCounters, TeamError> {
    let (at, skipped) = (peer_qp.layout().context_addr, peer_qp.skipped());
    // `completed` is read before `posted`, so that it is not the larger one.
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

/// Returns the state of a QP in its life `life`, at the HCA and for kernels. Kernels may run.
pub(in crate::team) fn report(
    gpu: &dyn Gpu,
    peer_qp: &PeerQp,
    life: u32,
) -> Result<QpReport, TeamError> {
    let at = peer_qp.layout().context_addr;
    // A failure and its syndrome are one word.
    let failure = error_word(gpu, peer_qp)?;
    let abort: u32 = word(gpu, at, offset_of!(QpContext, abort))?;
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
    let status = Status(failure as u32);
    Ok(QpReport {
        qpn: peer_qp.qpn(),
        rail: peer_qp.rail(),
        hca: peer_qp.query()?,
        status,
        syndrome: u32::try_from(failure >> 32).expect("32 bits"),
        life,
        aborted: abort != 0,
    })
}

/// Returns the error word of a QP: its first failure and the syndrome.
pub(in crate::team) fn error_word(gpu: &dyn Gpu, peer_qp: &PeerQp) -> Result<u64, TeamError> {
    let at = peer_qp.layout().context_addr;
    Ok(word(gpu, at, offset_of!(QpContext, err))?)
}

/// The length of a ring, and its free WQEBBs as kernels find them.
#[derive(Clone, Copy, Debug)]
pub(in crate::team) struct Ring {
    pub(in crate::team) depth: u32,
    pub(in crate::team) free: u64,
}

/// Returns how much of the ring of a QP is free.
pub(in crate::team) fn ring(gpu: &dyn Gpu, peer_qp: &PeerQp) -> Result<Ring, TeamError> {
    let layout = peer_qp.layout();
    let at = |offset: usize| word::<u64>(gpu, layout.context_addr, offset);
    // `cons` is read first: a WQE that completes after that only makes more room.
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
