//! What QPs have done, read while kernels use them.

use std::time::Duration;

use bytemuck::Pod;

use super::{Team, TeamError};
use crate::abi::{QpContext, Status};
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
    /// is `CQE_ERROR`. With `FLUSHED` it is that of a WQE behind the one that failed.
    pub syndrome: u32,
    /// Recoveries and replacements of the peer that it has been through.
    pub life: u32,
    /// Whether the host has ended the calls on it.
    pub aborted: bool,
}

impl Team {
    /// What QP `i` to `peer` has done. Kernels may run.
    ///
    /// # Errors
    /// A peer or QP that the team does not have; the device's.
    pub fn counters(&self, peer: u32, i: u32) -> Result<QpCounters, TeamError> {
        let state = self.peer(peer)?.state();
        let link = self.link(&state.links, i)?;
        let (at, skipped) = (link.layout().context_addr, link.skipped());
        // Completed before posted, so that it is not ahead of it.
        let completed: u64 = self.word(at, std::mem::offset_of!(QpContext, cons))?;
        let posted: u64 = self.word(at, std::mem::offset_of!(QpContext, resv))?;
        let ns: u64 = self.word(at, std::mem::offset_of!(QpContext, full_ring_ns))?;
        Ok(QpCounters {
            posted: posted.saturating_sub(skipped.posted),
            completed: completed.saturating_sub(skipped.completed),
            doorbells: self.word(at, std::mem::offset_of!(QpContext, doorbells))?,
            full_ring: Duration::from_nanos(ns),
            errors: self.word(at, std::mem::offset_of!(QpContext, errors))?,
        })
    }

    /// How QP `i` to `peer` is, at the HCA and for kernels. Kernels may run; a command of some hundred microseconds on silicon.
    ///
    /// # Errors
    /// A peer or QP that the team does not have; the HCA's, the device's.
    pub fn qp_status(&self, peer: u32, i: u32) -> Result<QpReport, TeamError> {
        let state = self.peer(peer)?.state();
        let link = self.link(&state.links, i)?;
        let at = link.layout().context_addr;
        // One word: a failure and its syndrome.
        let failure: u64 = self.word(at, std::mem::offset_of!(QpContext, err))?;
        let abort: u32 = self.word(at, std::mem::offset_of!(QpContext, abort))?;
        #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
        let status = Status(failure as u32);
        Ok(QpReport {
            qpn: link.qpn(),
            rail: link.rail(),
            hca: link.query()?,
            status,
            syndrome: u32::try_from(failure >> 32).expect("32 bits"),
            life: state.life,
            aborted: abort != 0,
        })
    }

    pub(super) fn word<T: Pod>(&self, context: u64, offset: usize) -> Result<T, TeamError> {
        let mut word = T::zeroed();
        self.gpu
            .read(context + offset as u64, bytemuck::bytes_of_mut(&mut word))?;
        Ok(word)
    }
}
