//! A slot: what its transfer is, and what has gone wrong with it.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use super::prepared::Prepared;
use crate::engine::ids::TransferId;
use crate::engine::kind::Kind;
use crate::engine::ledger::account::AtomicAccount;
use crate::engine::ledger::plan::Plan;
use crate::engine::ledger::report::FirstCause;
use crate::engine::lives::attached::Attached;
use crate::engine::memory::table::{LocalTable, RemoteTable};
use crate::engine::route::link::{Link, Lives};
use crate::error::ThreadPanicked;
use crate::provider::{Cause, Tag};

/// One slot.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) account: AtomicAccount,
    pub(super) total: AtomicU32,
    pub(super) body: RwLock<Body>,
    pub(super) failures: Mutex<Failures>,
    /// How many slices wait in `failures` to be posted again.
    pub(super) to_retry: AtomicU32,
}

/// What a transfer is. Written while no worker knows it.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) id: Option<TransferId>,
    pub(super) own: Plan,
    pub(super) operations: u32,
    /// Some WRITE goes where one comes from.
    pub(super) overlaps: bool,
    pub(super) prepared: Option<Arc<Prepared>>,
    /// Some memory of the peer is a GPU's.
    pub(super) reaches_gpu: bool,
    /// Some memory of this side is a GPU's.
    pub(super) has_gpu: bool,
    /// The number of the GPU that copies it within this machine; 0: none does.
    pub(super) copier: u8,
    pub(super) deadline: Option<Instant>,
    /// At which each operation counts.
    pub(super) counter: Option<u32>,
    /// Rails of the peer that are near all of its memory; 0: any will do.
    pub(super) near: u8,
    /// Sent when it is concluded.
    pub(super) notice: Option<Attached>,
    /// None of a transfer that is concluded.
    pub(super) way: Option<Way>,
}

#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) link: Arc<Link>,
    pub(super) local: Arc<LocalTable>,
    pub(super) remote: Arc<RemoteTable>,
}

/// What has gone wrong with one transfer.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Slices that have failed for good.
    pub(super) slices: Vec<u32>,
    /// Slices that some worker is to post again. None once the account is closed.
    pub(super) to_retry: Vec<Retry>,
    /// How often each slice was given back for that, and by which lanes: a bit for each.
    pub(super) retries: HashMap<u32, (u32, u32)>,
    pub(super) first: Option<FirstCause>,
    /// Lives of lanes on which a slice was posted and failed, so that its packets may still be under way.
    pub(super) lost: Lives,
    pub(super) is_remote_unknown: bool,
    /// What was read is not known to have come to the GPU.
    pub(super) is_unflushed: bool,
    /// The worker that held some of it and has panicked.
    pub(super) panicked: Option<ThreadPanicked>,
}

/// A slice that is to be posted again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    pub(super) slice: u32,
    /// A bit for each lane on which it has failed. It goes to one that these failures do not concern, as far as such a lane works.
    pub(super) tried: u32,
}

impl Failures {
    /// As of a new transfer. The memory stays.
    pub(super) fn clear(&mut self) {
        self.slices.clear();
        self.to_retry.clear();
        self.retries.clear();
        *self = Self {
            slices: std::mem::take(&mut self.slices),
            to_retry: std::mem::take(&mut self.to_retry),
            retries: std::mem::take(&mut self.retries),
            ..Self::default()
        };
    }
}

impl Body {
    pub(super) fn plan(&self) -> &Plan {
        self.prepared.as_ref().map_or(&self.own, |it| &it.plan)
    }

    /// Returns whether neither a thread of this process nor a GPU can copy it.
    pub(super) fn is_for_nic(&self) -> bool {
        (self.has_gpu || self.reaches_gpu) && self.copier == 0
    }

    /// Returns whether the transfer reads into memory of a GPU.
    pub(super) fn fills_gpu(&self) -> bool {
        let is_read = |(_, kind, _)| kind == Kind::Read;
        self.has_gpu && self.plan().remotes().any(is_read)
    }
}

impl Place {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Body> {
        self.body.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Body> {
        self.body.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the first failure; one that only follows from another gives way.
    pub(super) fn note(&self, body: &Body, tag: Tag, by: By, cause: Option<Cause>) {
        let first = first_cause(body, tag.slice, by, cause);
        let is_better = |known: FirstCause| {
            known.cause.is_some_and(Cause::is_flush) && cause.is_some_and(|it| !it.is_flush())
        };
        let mut failures = self.failures();
        if failures.first.is_none_or(is_better) {
            failures.first = Some(first);
        }
    }
}

/// By which QP and rail a slice was posted, where that is known.
pub(super) type By = (Option<u32>, Option<u32>);

/// The failure of a slice, or of what was never posted from this one on.
pub(super) fn first_cause(
    body: &Body,
    slice: u32,
    (qp, rail): By,
    cause: Option<Cause>,
) -> FirstCause {
    let found = body.plan().range(slice..slice.saturating_add(1)).next();
    let (operation, remote) = found.map_or((0, 0), |it| (it.operations.start, it.remote));
    FirstCause {
        qp,
        rail,
        cause,
        operation,
        remote,
    }
}
